"""Relations about views: the same view by other ops."""

from __future__ import annotations

from collections.abc import Iterator

from aotlite.testing.programs.program import Program
from aotlite.testing.programs.vocabulary import MULTI, WINDOW_OPS
from aotlite.testing.relations.relation import Relation, Same, Traced
from aotlite.testing.relations.step_edits import Loose, Node, Use, instead
from aotlite.testing.relations.step_facts import Fact, Look


# ------------------------------------------------------------------------- replay as as_strided
def _strided(traced: Traced) -> Iterator[Program]:
    places = [
        i for i, facts in enumerate(traced.steps) if _is_window(facts) and not traced.is_fragile(i)
    ]
    if len(places) > 1:
        yield _with_windows(traced, places)
    for place in places:
        yield _with_windows(traced, [place])


def _is_window(facts: list[Fact]) -> bool:
    """Whether `as_strided` with one geometry gives the view of a step in all calls."""
    if not all(fact.step.op in WINDOW_OPS and fact.is_view for fact in facts):
        return False
    geometries = {tuple(map(_geometry, fact.results)) for fact in facts}
    return len(geometries) == 1 and not any(fact.operands[0].overlaps_itself for fact in facts)


def _geometry(look: Look) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    return look.shape, look.stride, look.offset


def _with_windows(traced: Traced, places: list[int]) -> Program:
    loose = traced.loose()
    for place in reversed(places):
        node = loose.nodes[place]
        parts = [_window(node, look) for look in traced.steps[place][0].results]
        loose.nodes[place : place + 1] = parts
        for number, part in enumerate(parts):
            old = Use(node, number if node.op in MULTI else None)
            loose.rename(instead(old, Use(part)))
    return loose.program()


def _window(node: Node, look: Look) -> Node:
    return Node("as_strided", (node.args[0], *_geometry(look)), node.no_grad)


STRIDED = Relation(
    "replay as as_strided",
    "View ops, all of a program or one, are replaced by the equal as_strided. All is equal but the"
    " layout of gradients. Not for tensors that overlap themselves, where gradients of views add up"
    " in another order (TEN-17).",
    ("FUN-8", "FUN-11", "TEN-3"),
    _strided,
    Same(("gradient stride", "gradient storage")),
)


# --------------------------------------------------------------------------- an identity between
def _through_alias(traced: Traced) -> Iterator[Program]:
    for place, facts in enumerate(traced.steps):
        if all(map(_has_target, facts)) and not traced.is_fragile(place):
            loose = traced.loose()
            node = loose.nodes[place]
            alias = loose.put(place, "alias", node.args[0], no_grad=node.no_grad)
            node.args = (alias, *node.args[1:])
            yield loose.program()


def _has_target(fact: Fact) -> bool:
    """Whether it writes a tensor that is not also another operand (which TEN-7 allows)."""
    targets = [each for each in fact.operands if each.identity == fact.operands[0].identity]
    return fact.writes_data and len(targets) == 1


THROUGH_ALIAS = Relation(
    "write through an identity view",
    "A write goes to an alias of its target instead. All is equal but the layout of gradients, as"
    " both have one memory, history and version.",
    ("FUN-3", "FUN-7", "TEN-3", "TEN-17"),
    _through_alias,
    Same(("gradient stride", "gradient storage")),
)


# ------------------------------------------------------------------------------- an unused view
def _looked_at(traced: Traced) -> Iterator[Program]:
    for place, facts in enumerate(traced.steps):
        if all(fact.operands for fact in facts) and not traced.is_fragile(place):
            for op in ("alias", "detach"):
                loose = traced.loose()
                loose.put(place, op, loose.nodes[place].args[0])
                yield loose.program()


LOOKED_AT = Relation(
    "take an unused view",
    "A view is taken and not used. All is equal.",
    ("FUN-3", "META-10"),
    _looked_at,
)


# ---------------------------------------------------------------------------------- unused reads
def _read(traced: Traced) -> Iterator[Program]:
    count = len(traced.steps)
    for place in range(count + 1):
        for name in _names(traced, place):
            loose = traced.loose()
            loose.put(place, "clone", _value(loose, name), no_grad=True)
            yield loose.program()


def _names(traced: Traced, place: int) -> list[int]:
    """Tensors before a step: the first argument, and the last two made."""
    made = [
        i
        for i, facts in enumerate(traced.steps[:place])
        if all(fact.kind is None and len(fact.results) == 1 for fact in facts)
        and facts[0].step.op not in MULTI
    ]
    return [-1, *made[-2:]] if traced.program.arity else made[-2:]


def _value(loose: Loose, place: int) -> Use:
    return Use(0) if place < 0 else Use(loose.nodes[place])


READ = Relation(
    "read without use",
    "A value is cloned under no_grad, and the clone is not used. All is equal: a read updates the"
    " history of a view and changes nothing else.",
    ("FUN-6", "GEN-1"),
    _read,
)
