"""What an expression is made of, found once and kept with it.

Ground floor of the loop IR, above `expr`. Input: scalars; output: their loads, names and axes
without walking the tree again. Spec: `specs/fusion.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from aotlite.backends.loops.expr import Scalar


@attrs.frozen(eq=False)
class ExpressionFacts:
    """Of the whole tree of an expression."""

    loads: tuple[Scalar, ...] = ()
    """Each load once, in order of first use; those of addresses too."""
    names: frozenset[int] = frozenset()
    """Of statements."""
    axes: frozenset[int] = frozenset()
    """That are computed with; those of addresses are not counted."""
    branches: bool = False
    """Whether there is a `where`."""


_NOTHING = ExpressionFacts()


def facts(root: Scalar) -> ExpressionFacts:
    """The facts of an expression."""
    if root.facts is not None:
        return root.facts
    stack = [root]
    while stack:
        value = stack[-1]
        missing = [operand for operand in value.operands if not _is_known(operand)]
        if missing:
            stack += missing
            continue
        stack.pop()
        if value.op != "load":
            object.__setattr__(value, "facts", _own(value))
    return _known(root)


def varies_along(root: Scalar, axis: int) -> bool:
    """Whether a value may differ between neighbours along an axis; of statements' all may."""
    found = facts(root)
    steps = [load.args[1].coefficients[axis : axis + 1] for load in found.loads]
    return bool(found.names) or axis in found.axes or any(map(any, steps))


def _is_known(value: Scalar) -> bool:
    """A load's are made anew: kept, they would be a cycle of references."""
    if value.op == "load":
        return all(map(_is_known, value.operands))
    return value.facts is not None


def _known(value: Scalar) -> ExpressionFacts:
    if value.op == "load":
        inside = _joined(value.operands) if value.args[1].dynamic else _NOTHING
        return ExpressionFacts((*inside.loads, value), inside.names, inside.axes, inside.branches)
    found: ExpressionFacts = value.facts
    return found


def _own(value: Scalar) -> ExpressionFacts:
    match value.op:
        case "axis":
            return ExpressionFacts(axes=frozenset(value.args))
        case "name":
            return ExpressionFacts(names=frozenset(value.args))
    found = _joined(value.operands)
    if value.op != "where" or found.branches:
        return found
    return ExpressionFacts(found.loads, found.names, found.axes, branches=True)


def _joined(values: Sequence[Scalar]) -> ExpressionFacts:
    """Of several expressions; one of them where the others have nothing."""
    different: list[ExpressionFacts] = []
    for value in values:
        found = _known(value)
        if found is not _NOTHING and found not in different:
            different.append(found)
    if len(different) < 2:
        return different[0] if different else _NOTHING
    return ExpressionFacts(
        tuple(dict.fromkeys([each for one in different for each in one.loads])),
        frozenset().union(*[one.names for one in different]),
        frozenset().union(*[one.axes for one in different]),
        any(one.branches for one in different),
    )
