"""How an operation of `ir.scalar` on scalars becomes a node: a primitive, or a call of the library.

What lowering uses. A constant exponent becomes products; functions that are one primitive, that
primitive.
"""

from __future__ import annotations

from aotlite.backends.loops.expr import (
    ARITHMETIC,
    COMPARISONS,
    INTEGER,
    LOGICAL,
    Scalar,
    function,
    make,
)
from aotlite.backends.loops.functions.powers import power_of_constant
from aotlite.backends.loops.functions.registry import find
from aotlite.ir import dtypes

_FLOAT_ONLY = frozenset(("div", "sqrt", "floor", "ceil", "trunc", "rint"))


def call(op: str, *operands: Scalar) -> Scalar:
    """The scalar that `op` computes of operands of one dtype. Raises GraphError if nothing does.

    >>> from aotlite.backends.loops.expr import const, parameter
    >>> x = parameter(0, dtypes.float32)
    >>> str(call("pow", x, const(3, dtypes.float32))), str(call("round", x))
    ('(x0 * (x0 * x0))', 'rint(x0)')
    >>> str(call("exp", x)), str(call("floor", parameter(0, dtypes.int32)))
    ('exp(x0)', 'x0')
    """
    if _is_primitive(op, operands[0]):
        return make(op, *operands)
    if op == "round" and operands[0].dtype.is_floating_point:
        return make("rint", *operands)
    if op == "pow" and operands[1].op == "const":
        short = power_of_constant(operands[0], operands[1].args[0])
        if short is not None:
            return short
    found = find(op, [operand.dtype for operand in operands])
    if found.body.op == "parameter":
        return operands[found.body.args[0]]
    return function(op, found.result, *operands)


def _is_primitive(op: str, first: Scalar) -> bool:
    """Whether the operation is one of the expressions' own on operands of this dtype."""
    if op in _FLOAT_ONLY:
        return first.dtype.is_floating_point
    if op in LOGICAL or op in INTEGER:
        return (first.dtype is dtypes.bool_) == (op in LOGICAL)
    return op in ARITHMETIC or op in COMPARISONS
