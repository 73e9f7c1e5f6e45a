"""Relations about writes: the same change of elements by other steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from aotlite.testing.programs.program import Program
from aotlite.testing.programs.vocabulary import INDEXED, POINTWISE
from aotlite.testing.relations.relation import Relation, Same, Traced
from aotlite.testing.relations.step_edits import Loose, Use, instead
from aotlite.testing.relations.step_facts import Fact


def _rewritten(
    traced: Traced, fits: Callable[[Fact], bool], change: Callable[[Loose, int], None]
) -> Iterator[Program]:
    """The programs with one step changed, which has to fit in all calls."""
    for place, facts in enumerate(traced.steps):
        if all(map(fits, facts)) and not traced.is_fragile(place):
            loose = traced.loose()
            change(loose, place)
            yield loose.program()


# ------------------------------------------------------------------------- the object of a write
def _named_anew(traced: Traced) -> Iterator[Program]:
    for place, facts in enumerate(traced.steps):
        if facts[0].kind is not None:
            loose = traced.loose()
            node = loose.nodes[place]
            loose.rename(instead(node.args[0], Use(node)), place + 1)
            yield loose.program()


NAMED_ANEW = Relation(
    "a write gives what it wrote",
    "Later steps use the result of a write in place of its target. All is equal: both are one"
    " object.",
    ("FUN-4", "GEN-1"),
    _named_anew,
)


# ---------------------------------------------------------------------------------- under no_grad
def _no_grad(traced: Traced) -> Iterator[Program]:
    def fits(fact: Fact) -> bool:
        return fact.writes_data and not fact.is_tracked and not fact.step.no_grad

    def change(loose: Loose, place: int) -> None:
        loose.nodes[place].no_grad = True

    return _rewritten(traced, fits, change)


NO_GRAD = Relation(
    "write under no_grad what requires no grad",
    "A write whose target and operands require no grad runs under no_grad. All is equal.",
    ("FUN-20", "META-16"),
    _no_grad,
)


# -------------------------------------------------------------------- out of place, and copied in
def _copied_in(traced: Traced) -> Iterator[Program]:
    def fits(fact: Fact) -> bool:
        return fact.kind in ("pointwise", "index") and fact.step.op in OUT_OF_PLACE

    def change(loose: Loose, place: int) -> None:
        node = loose.nodes[place]
        target, under = node.args[0], node.no_grad
        result = loose.put(place, node.op[:-1], *node.args, no_grad=under)
        node.op, node.args = "copy_", (target, result)

    return _rewritten(traced, fits, change)


OUT_OF_PLACE = frozenset({*POINTWISE, *INDEXED} - {"index_put_"})
"""The writes with a functional form."""

COPIED_IN = Relation(
    "out of place and copied in",
    "A write runs out of place, and its result is copied in. All is equal but the layout of"
    " gradients: each counts as one write. The two save different values (TEN-12), so that either"
    " backward may raise; gradients are compared if neither does.",
    ("FUN-4", "FUN-5", "TEN-9", "TEN-12"),
    _copied_in,
    Same(("gradient stride", "gradient storage"), backward=False),
)


# ------------------------------------------------------------------ the present value, once more
def _written_again(traced: Traced) -> Iterator[Program]:
    def fits(fact: Fact) -> bool:
        return fact.writes_data and not fact.operands[0].overlaps_itself

    def change(loose: Loose, place: int) -> None:
        target = loose.nodes[place].args[0]
        clone = loose.put(place, "clone", target, no_grad=True)
        loose.put(place + 1, "copy_", target, clone, no_grad=True)

    return _rewritten(traced, fits, change)


WRITTEN_AGAIN = Relation(
    "write what is there",
    "Before a write, its target is overwritten with a clone of itself under no_grad. Values,"
    " gradients, identity and aliasing are equal. Versions are higher by this one write (TEN-10);"
    " the backward may raise for a value saved before it (TEN-12).",
    ("FUN-4", "FUN-20", "TEN-10", "TEN-12"),
    _written_again,
    Same(added_writes=1, backward=False),
)
