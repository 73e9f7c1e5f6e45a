"""Relations about the order of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from aotlite.testing.programs.program import Program
from aotlite.testing.relations.relation import Relation, Same, Traced
from aotlite.testing.relations.step_edits import uses_in
from aotlite.testing.relations.step_facts import Fact

Kind = Callable[[Fact], bool]


def _swaps(traced: Traced, passed: Kind) -> Iterator[Program]:
    """The programs in which a write has changed places with a step of a kind.

    In all calls it commutes with this step and with all steps between the two. Not on memory that
    requires grad and has views made several at once or under no_grad: a write before their next
    use is an error (TEN-19).
    """
    count = len(traced.steps)
    for write in range(count):
        if _all(traced, write, lambda fact: fact.writes_data) and not traced.is_fragile(write):
            for direction in (-1, 1):
                yield from _moved(traced, write, direction, passed)


def _moved(traced: Traced, write: int, direction: int, passed: Kind) -> Iterator[Program]:
    """The programs in which a write is moved past steps in one direction."""
    other = write + direction
    while 0 <= other < len(traced.steps) and _commute(traced, write, other):
        is_write = _all(traced, other, lambda fact: fact.writes_data)
        if _all(traced, other, passed) and not (is_write and direction > 0):
            loose = traced.loose()
            loose.nodes.insert(other, loose.nodes.pop(write))
            yield loose.program()
        other += direction


def _all(traced: Traced, place: int, kind: Kind) -> bool:
    return all(map(kind, traced.steps[place]))


def _commute(traced: Traced, write: int, other: int) -> bool:
    """Whether a write commutes with a step, given that it does with all between the two."""
    nodes = traced.loose().nodes
    first, second = (nodes[place] for place in sorted((write, other)))
    depends = any(use.source is first for use in uses_in(second.args))
    pairs = list(zip(traced.steps[write], traced.steps[other], strict=True))
    if depends or traced.is_fragile(other):
        return False
    if traced.library.name == "torch" and any(_begins_history(*pair) for pair in pairs):
        return False
    return all(_are_apart(*pair) for pair in pairs)


def _begins_history(write: Fact, other: Fact) -> bool:
    """Whether a write makes the memory of a view require grad. In PyTorch a view from before the
    write counts as a leaf until its history is read (TEN-18)."""
    target = write.operands[0]
    begins = write.is_tracked and not target.requires_grad
    return begins and other.is_view and other.operands[0].storage == target.storage


def _are_apart(write: Fact, other: Fact) -> bool:
    """Whether the order of the two makes no difference."""
    if other.writes_data:
        return _misses(write, other) and _misses(other, write)
    return other.is_view or (other.is_pure and _misses(write, other))


def _misses(write: Fact, other: Fact) -> bool:
    """Whether the other step neither reads nor writes the elements that this one writes."""
    return not any(write.operands[0].meets(each) for each in other.operands)


def _disjoint_writes(traced: Traced) -> Iterator[Program]:
    return _swaps(traced, lambda fact: fact.writes_data)


DISJOINT_WRITES = Relation(
    "reorder disjoint writes",
    "Two writes change places; neither writes elements that the other reads or writes, and steps"
    " between them commute too. All is equal, versions too, as each counts once. A version belongs"
    " to a storage, so that one write outdates the values that the other saved: either backward may"
    " raise (TEN-12), and gradients are compared if neither does.",
    ("FUN-4", "FUN-7", "TEN-10", "TEN-12", "TEN-19"),
    _disjoint_writes,
    Same(backward=False),
)


def _reads_past_writes(traced: Traced) -> Iterator[Program]:
    return _swaps(traced, lambda fact: fact.is_pure)


READS_PAST_WRITES = Relation(
    "read past a disjoint write",
    "A functional step and a write change places; the write changes no element that the step reads."
    " All is equal; either backward may raise, as for two writes.",
    ("FUN-6", "TEN-12", "TEN-19"),
    _reads_past_writes,
    Same(backward=False),
)


def _views_past_writes(traced: Traced) -> Iterator[Program]:
    return _swaps(traced, lambda fact: fact.is_view)


VIEWS_PAST_WRITES = Relation(
    "take a view before or after a write",
    "A view and a write change places, even if the write changes the viewed elements: a view shows"
    " later writes. All is equal; if a read is passed too, either backward may raise. Not in"
    " PyTorch if the write begins the memory's history: there, a view from before is a leaf until"
    " its history is read (TEN-18).",
    ("FUN-3", "FUN-6", "TEN-17", "TEN-18", "TEN-19"),
    _views_past_writes,
    Same(backward=False),
)
