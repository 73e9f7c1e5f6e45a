"""`FunctionMeta`: what stage 2 finds, with the numbers and the sentences that follow from it.

Its fields are those of `FunctionFacts`. A record of its own, since sentences are made of
those records, and stand below this one. Rules: META-2..META-19. Spec: `specs/s2_analyze.md`.
"""

from __future__ import annotations

import attrs

from aotlite.stages.records.metadata.derived_counts import DerivedCounts, counts_of
from aotlite.stages.records.metadata.explain_text import explain_meta
from aotlite.stages.records.metadata.function_facts import FunctionFacts


@attrs.frozen(eq=False, repr=False)
class FunctionMeta(FunctionFacts):
    """What a function does to its inputs, what its results alias, what is differentiable.

    `print(meta.explain())` says it in sentences.
    """

    @property
    def counts(self) -> DerivedCounts:
        """The numbers and orders that follow from the records (META-19)."""
        return counts_of(self)

    def explain(self) -> str:
        """The record as sentences, a line each."""
        return explain_meta(self)
