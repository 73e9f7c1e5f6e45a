"""Rewrites an op's expression into one of primitives, and functions that have a body.

`written` puts the inline forms of functions in their place, and 1 in the place of an integer
divisor that is 0, which the op refuses. Raises NoLoops for what kernels do not compute: complex
numbers, functions without a body, an integer divided by the number 0. Spec: `specs/lowering.md`.
"""

from __future__ import annotations

import attrs

from aotlite.backends.loops.lowering.builder import NoLoops
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.scalar.expression import (
    Scalar,
    const,
    function,
    make,
    rebuilt,
    walk,
    where,
    with_operands,
)
from aotlite.ir.scalar.functions import FUNCTIONS, has
from aotlite.ir.scalar.primitives import ARITHMETIC, INTEGER, PRIMITIVES
from aotlite.ir.symbols.symint import SymInt


@attrs.frozen
class WrittenExpression:
    """What a kernel computes, and the condition under which the op refuses the operands' values,
    such as an integer divided by 0; None for one that refuses none."""

    value: Scalar
    refuses: Scalar | None


def written(root: Scalar) -> WrittenExpression:
    """Returns an op's expression as a kernel computes it."""
    refused: list[Scalar] = []

    def change(value: Scalar) -> Scalar | None:
        row = FUNCTIONS.get(value.op)
        if row is None:
            return None
        operands = value.operands
        if row.divides and operands[1].dtype.kind <= dtypes.INTEGER:
            operands = (operands[0], _divisor(operands[1], refused))
        found = None if row.inline is None else row.inline(*operands)
        return with_operands(value, operands) if found is None else found

    value = rebuilt(root, change)
    for each in walk([value]):
        _check(each)
    return WrittenExpression(value, _any_of(refused))


def _divisor(value: Scalar, refused: list[Scalar]) -> Scalar:
    """Returns the divisor with 1 in the place of 0, and adds "it is 0" to `refused`."""
    if value.op == "const":
        if _may_be_0(value.args[0]):
            raise NoLoops
        return value
    zero = make("eq", value, 0)
    refused.append(zero)
    return where(zero, const(1, value.dtype), value)


def _may_be_0(number: object) -> bool:
    if type(number) is SymInt:
        return number.table.known_truth(number, "!=", 0) is not True
    return bool(number == 0)


def _any_of(conditions: list[Scalar]) -> Scalar | None:
    found: Scalar | None = None
    for condition in conditions:
        found = condition if found is None else found | condition
    return found


def _check(value: Scalar) -> None:
    """Raises NoLoops if kernels do not compute an operation."""
    if value.dtype.is_complex:
        raise NoLoops
    kinds = [each.dtype for each in value.operands]
    if value.op not in PRIMITIVES:
        if not has(value.op, kinds):
            raise NoLoops
    elif value.op in ARITHMETIC and dtypes.bool_ in kinds:
        raise NoLoops
    elif value.op in INTEGER and any(kind.kind != dtypes.INTEGER for kind in kinds):
        raise NoLoops


def called(op: str, *args: Scalar, dtype: DType | None = None) -> Scalar:
    """Returns the call of a library function. Raises NoLoops if there is none for these dtypes."""
    kinds = [a.dtype for a in args]
    if not has(op, kinds):
        raise NoLoops
    return function(op, dtype or FUNCTIONS[op].result(kinds[0]), *args)
