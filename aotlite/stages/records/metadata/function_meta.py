"""`FunctionMeta`, the record of stage 2, with derived numbers and sentences.

Its fields are those of `FunctionFacts`. It is a record of its own, because the modules of numbers
and sentences import `FunctionFacts`. Rules: META-2..META-19. Spec: `specs/s2_analyze.md`.
"""

from __future__ import annotations

import attrs

from aotlite.stages.records.metadata.derived_counts import DerivedCounts, counts_of
from aotlite.stages.records.metadata.explain_text import explain_meta
from aotlite.stages.records.metadata.function_facts import FunctionFacts


@attrs.frozen(eq=False, repr=False)
class FunctionMeta(FunctionFacts):
    """What a function writes, what its results alias, and what is differentiable.

    `print(meta.explain())` says it in sentences.
    """

    @property
    def counts(self) -> DerivedCounts:
        """The numbers and orders that are derived from the records (META-19)."""
        return counts_of(self)

    def explain(self) -> str:
        """The record as sentences, a line each."""
        return explain_meta(self)
