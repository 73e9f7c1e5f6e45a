"""The loads, names and axes of an expression, computed once and kept in `Scalar.facts`.

Passes ask for them so often that walking the trees again would take most of fusion's time. Spec:
`specs/fusion.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from aotlite.ir.scalar.expression import Scalar


@attrs.frozen(eq=False)
class ExpressionFacts:
    """The loads, names and axes of the whole tree of an expression."""

    loads: tuple[Scalar, ...] = ()
    """Each load once, in order of first use; also those in addresses."""
    names: frozenset[int] = frozenset()
    """The names of statements that it uses."""
    axes: frozenset[int] = frozenset()
    """The axes whose positions it computes with. Axes in addresses do not count."""
    branches: bool = False
    """Whether there is a `where`."""


_NOTHING = ExpressionFacts()


def facts(root: Scalar) -> ExpressionFacts:
    """Returns the facts of an expression."""
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
    """Whether a value may differ between neighbors along an axis. A name counts as varying."""
    found = facts(root)
    steps = [load.args[1].coefficients[axis : axis + 1] for load in found.loads]
    return bool(found.names) or axis in found.axes or any(map(any, steps))


def _is_known(value: Scalar) -> bool:
    """Whether a scalar's facts are known. A load keeps none, since they would contain the load
    itself, a reference cycle: they are made each time."""
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
    """Returns the union of several expressions' facts, as one of these objects where possible."""
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
