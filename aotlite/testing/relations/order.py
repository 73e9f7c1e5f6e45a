"""Relations about the order of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from aotlite.testing.programs import Program
from aotlite.testing.relations.base import Relation, Same, Traced
from aotlite.testing.relations.facts import Fact
from aotlite.testing.relations.rewriting import Node, uses_in

Commute = Callable[[Fact, Fact], bool]


def _swaps(traced: Traced, commute: Commute, *, fragile: bool = True) -> Iterator[Program]:
    """The programs in which two neighbouring steps that commute in all calls have changed places.

    `fragile=False`: not on memory of which views have a history that may be refused.
    """
    steps = traced.steps
    for i in range(len(steps) - 1):
        pairs = zip(steps[i], steps[i + 1], strict=True)
        if not fragile and any(map(traced.is_fragile, (i, i + 1))):
            continue
        loose = traced.loose()
        first, second = loose.nodes[i : i + 2]
        if not _uses(second, first) and all(commute(a, b) for a, b in pairs):
            loose.nodes[i : i + 2] = [second, first]
            yield loose.program()


def _uses(node: Node, other: Node) -> bool:
    return any(use.source is other for use in uses_in(node.args))


def _misses(write: Fact, other: Fact) -> bool:
    """Whether nothing that the other step reads or writes lies where this one writes."""
    return not any(write.operands[0].meets(each) for each in other.operands)


# ------------------------------------------------------------------------------- disjoint writes
def _disjoint_writes(traced: Traced) -> Iterator[Program]:
    def commute(a: Fact, b: Fact) -> bool:
        both = a.writes_data and b.writes_data
        return both and _misses(a, b) and _misses(b, a)

    return _swaps(traced, commute)


DISJOINT_WRITES = Relation(
    "reorder disjoint writes",
    "Two neighbouring writes change places, of which neither writes what the other reads or writes."
    " All is equal, versions too: each counts once. The counter belongs to the storage, so that"
    " what the one saved is out of date after the other or before it: either backward may raise"
    " (TEN-12), and gradients are compared where none does.",
    ("FUN-4", "FUN-7", "TEN-10", "TEN-12"),
    _disjoint_writes,
    Same(backward=False),
)


# -------------------------------------------------------------------------- a read past a write
def _reads_past_writes(traced: Traced) -> Iterator[Program]:
    def commute(a: Fact, b: Fact) -> bool:
        if a.writes_data and b.is_pure:
            return _misses(a, b)
        return b.writes_data and a.is_pure and _misses(b, a)

    return _swaps(traced, commute)


READS_PAST_WRITES = Relation(
    "read past a disjoint write",
    "A step that makes new memory and a neighbouring write change places, where the write meets"
    " nothing that the other reads. All is equal; either backward may raise, as for two writes.",
    ("FUN-6", "TEN-12"),
    _reads_past_writes,
    Same(backward=False),
)


# -------------------------------------------------------------------------- a view past a write
def _views_past_writes(traced: Traced) -> Iterator[Program]:
    def commute(a: Fact, b: Fact) -> bool:
        return (a.writes_data and b.is_view) or (b.writes_data and a.is_view)

    return _swaps(traced, commute, fragile=False)


VIEWS_PAST_WRITES = Relation(
    "take a view before or after a write",
    "A view and a neighbouring write change places, also where the write goes to what is viewed:"
    " a view shows what is written later. All is equal. Not on memory that requires grad and has"
    " views which came with others or under no_grad: a write before their next use is an error"
    " (TEN-19).",
    ("FUN-3", "FUN-6", "TEN-17", "TEN-19"),
    _views_past_writes,
)
