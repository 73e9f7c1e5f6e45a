"""Relations about the passing of arguments."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, cycle

import attrs

from aotlite.testing.programs.program import Program
from aotlite.testing.programs.vocabulary import MULTI
from aotlite.testing.relations.relation import Relation, Same, Traced
from aotlite.testing.relations.step_edits import Change, Use, instead
from aotlite.testing.relations.step_facts import Look, Trace


# ---------------------------------------------------------------------------------- permutations
def _permuted(traced: Traced) -> Iterator[Program]:
    loose = traced.loose()
    last = loose.arity - 1
    if last > 0:
        loose.calls = tuple(attrs.evolve(call, args=call.args[::-1]) for call in loose.calls)
        loose.rename(
            lambda use: Use(last - use.source, use.part) if isinstance(use.source, int) else use
        )
        yield loose.program()


PERMUTE = Relation(
    "permute arguments",
    "The arguments and the parameters of the body are in the opposite order. All is equal.",
    ("DUP-1", "SYN-1", "GEN-1"),
    _permuted,
)


# ------------------------------------------------------------------------------------ duplicates
def _duplicated(traced: Traced) -> Iterator[Program]:
    for place in range(traced.program.arity):
        loose = traced.loose()
        loose.rename(_alternately(place, loose.arity))
        loose.pass_more(lambda call, place=place: call.args[place])  # type: ignore[misc]
        yield loose.program()


def _alternately(place: int, more: int) -> Change:
    """Replaces every other use of an argument by another argument."""
    turn = cycle((False, True))
    return lambda use: Use(more) if use.source == place and next(turn) else use


DUPLICATE = Relation(
    "duplicate an argument",
    "An argument is passed twice, and every other use of it is of the second parameter."
    " All is equal: both are one object.",
    ("DUP-1", "DUP-2", "GEN-1"),
    _duplicated,
)


def _merged(traced: Traced) -> Iterator[Program]:
    for kept, dropped in combinations(range(traced.program.arity), 2):
        if all(_are_one(seen, kept, dropped) for seen in traced.traces):
            loose = traced.loose()
            loose.rename(instead(Use(dropped), Use(kept)))
            loose.drop(dropped)
            yield loose.program()


def _are_one(seen: Trace, kept: int, dropped: int) -> bool:
    return seen.arguments[kept].identity == seen.arguments[dropped].identity


MERGE = Relation(
    "merge equal arguments",
    "Of two parameters with one object in every call, the body keeps one. All is equal.",
    ("DUP-1", "DUP-2", "GEN-1"),
    _merged,
)


# ----------------------------------------------------------------------------- an unused argument
def _unused(traced: Traced) -> Iterator[Program]:
    calls = traced.program.calls
    for place in range(min(len(call.setup) for call in calls)):
        if all(call.setup[place].op not in MULTI for call in calls):
            loose = traced.loose()
            loose.pass_more(lambda _, name=f"${place}": name)  # type: ignore[misc]
            yield loose.program()


UNUSED = Relation(
    "add an unused argument",
    "A value of the setup, often on memory of other arguments, is passed and not used."
    " All is equal, and its gradient is still None.",
    ("SYN-1", "SYN-5", "META-2", "GEN-1"),
    _unused,
)


# --------------------------------------------------------------------------- clone and copy back
def _copied_back(traced: Traced) -> Iterator[Program]:
    for place in range(traced.program.arity):
        if all(_is_replaceable(seen, place) for seen in traced.traces):
            modes = {_is_written(seen, place) for seen in traced.traces}
            if len(modes) == 1:
                yield _with_clone(traced, place, modes.pop())


def _with_clone(traced: Traced, place: int, written: str) -> Program:
    loose = traced.loose()
    argument = Use(place)
    results, loose.results = loose.results, ()
    clone = loose.put(0, "clone", argument)
    loose.rename(instead(argument, clone), 1)
    if written:
        loose.put(len(loose.nodes), "copy_", argument, clone, no_grad=written == "untracked")
    loose.results = results
    return loose.program()


def _is_replaceable(seen: Trace, place: int) -> bool:
    """Whether a clone can replace the argument.

    No other argument and no other result is on its memory, no step changes a geometry or memory,
    and a clone has its layout.
    """
    argument = seen.arguments[place]
    others = [each for i, each in enumerate(seen.arguments) if i != place]
    shown = [each for each in seen.results if each.identity != argument.identity]
    moved = any(fact.kind in ("geometry", "resize", "set") for fact in seen.facts)
    shared = any(each.storage == argument.storage for each in (*others, *shown))
    hidden = any(fact.step.op == "hidden_alias" for fact in seen.facts)
    return not (moved or shared or hidden) and is_dense(argument)


def is_dense(look: Look) -> bool:
    """Whether a clone has the same strides: the elements are dense, in any order."""
    expected = 1
    for stride, size in sorted(zip(look.stride, look.shape, strict=True)):
        if size == 1:
            return False  # its stride may be any number
        if stride != expected:
            return False
        expected *= size
    return expected > 0


def _is_written(seen: Trace, place: int) -> str:
    """Returns "tracked" if autograd records a write of the argument's memory, "untracked" if it
    records none of the writes, and "" without a write (META-16)."""
    storage = seen.arguments[place].storage
    writes = [f for f in seen.facts if f.writes_data and f.operands[0].storage == storage]
    if not writes:
        return ""
    visible = any(not (f.step.no_grad or f.operands[0].is_cut) for f in writes)
    return "tracked" if visible else "untracked"


COPY_BACK = Relation(
    "clone and copy back",
    "An argument whose memory no other argument or result shares is replaced by a clone at the"
    " start, and the clone is copied back at the end if the argument is written: under no_grad if"
    " autograd records none of the writes. Values, gradients, identity and aliasing are equal."
    " Versions differ: many writes become one (FUN-23). A gradient that goes through a clone may be"
    " laid out in another way.",
    ("FUN-4", "FUN-17", "FUN-20", "META-16", "FUN-23"),
    _copied_back,
    Same(("gradient stride", "gradient storage"), added_writes=None),
)
