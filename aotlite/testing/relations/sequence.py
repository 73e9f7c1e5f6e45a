"""Several relations one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from aotlite.testing.programs.program import Program
from aotlite.testing.relations.argument_passing import COPY_BACK, DUPLICATE, MERGE, PERMUTE, UNUSED
from aotlite.testing.relations.equivalent_views import LOOKED_AT, READ, STRIDED, THROUGH_ALIAS
from aotlite.testing.relations.equivalent_writes import (
    COPIED_IN,
    NAMED_ANEW,
    NO_GRAD,
    WRITTEN_AGAIN,
)
from aotlite.testing.relations.relation import Relation, Same, Traced, Variant
from aotlite.testing.relations.step_order import (
    DISJOINT_WRITES,
    READS_PAST_WRITES,
    VIEWS_PAST_WRITES,
)

PARTS = (
    COPY_BACK,
    DISJOINT_WRITES,
    READS_PAST_WRITES,
    VIEWS_PAST_WRITES,
    PERMUTE,
    DUPLICATE,
    MERGE,
    UNUSED,
    STRIDED,
    THROUGH_ALIAS,
    LOOKED_AT,
    READ,
    NAMED_ANEW,
    NO_GRAD,
    COPIED_IN,
    WRITTEN_AGAIN,
)
"""The relations that change the program alone."""

LENGTH = 4
"""The number of changes."""


def _mixed(traced: Traced) -> Iterator[Variant]:
    for seed in range(2):
        rng = Random(f"{seed}:{traced.program}")
        last = traced
        for _ in range(LENGTH):
            last = _changed(last, rng)
        if len(last.traces) == len(traced.traces):
            yield Variant(last.program, cut=rng.randint(0, len(last.program.body)) or None)


def _changed(traced: Traced, rng: Random) -> Traced:
    """The program after a relation that applies to it."""
    for which in rng.sample(PARTS, len(PARTS)):
        found = list(which.variants(traced))
        if found:
            chosen = rng.choice(found)
            program = chosen if isinstance(chosen, Program) else chosen.program
            return Traced.of(traced.library, program)
    return traced


MIXED = Relation(
    "several at once",
    "Relations that change the program are applied one after the other, and the program is split in"
    " two. Values, identity and aliasing are equal, and gradients if no backward raises. The"
    " differences that one of the relations allows are allowed.",
    ("GEN-1", "GEN-11"),
    _mixed,
    Same(
        ("gradient stride", "gradient storage"),
        added_writes=None,
        of_made=("base", "offset"),
        backward=False,
    ),
)
