"""Scalar expressions on arrays: pointwise ops, and the elements of loops.

A function of the library (`ir/scalar/functions`) is the target's operation where it has one, else a
formula of the target, else the inline form or body from which kernels are printed.
Spec: `specs/onnx.md`, `specs/stablehlo.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotlite.interchange.arrays.target import NARROW, ArrayTarget, NotPrinted, Value
from aotlite.ir import dtypes
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import PureOp
from aotlite.ir.ops.pointwise_expression import expression_of
from aotlite.ir.scalar.expression import Scalar, cast, rebuilt, unknown
from aotlite.ir.scalar.functions import FUNCTIONS, find, has, substituted
from aotlite.ir.scalar.primitives import PRIMITIVES

Leaf = Callable[[Scalar], Value]
"""Gives the array of a leaf: a parameter, a load, an axis, a name."""


def pointwise(t: ArrayTarget, op: PureOp, meta: TensorMeta, args: Sequence[Any]) -> Value:
    """The result of a pointwise op on arrays, by the expression of its declaration."""
    tensors = [i for i, a in enumerate(args) if isinstance(a, Value)]
    operands = [args[i] for i in tensors]
    try:
        root = expression_of(op, meta.dtype, args, tensors)
    except ArithmeticError as error:
        raise NotPrinted(f"has no number as its result ({error})") from error
    found = evaluated(t, root, lambda leaf: operands[leaf.args[0]])
    return t.broadcast(found, meta.shape)


def evaluated(
    t: ArrayTarget, root: Scalar, leaf: Leaf, found: dict[Scalar, Value] | None = None
) -> Value:
    """The array of an expression. Expressions with common parts may share `found`."""
    root = printable(t, root)
    found = {} if found is None else found
    for scalar in unknown(root, found):
        found[scalar] = _own(t, scalar, [found[each] for each in scalar.operands], leaf)
    return found[root]


def _own(t: ArrayTarget, scalar: Scalar, operands: list[Value], leaf: Leaf) -> Value:
    match scalar.op:
        case "const":
            return t.constant(scalar.args[0], scalar.dtype)
        case "parameter" | "load" | "axis" | "name":
            return leaf(scalar)
        case "cast":
            return t.cast(operands[0], scalar.dtype)
        case "bits":
            return t.bits(operands[0], scalar.dtype)
        case "where":
            return t.where(operands[0], operands[1], operands[2])
        case op if op in PRIMITIVES:
            return t.primitive(op, *operands)
    return t.emit_function(scalar.op, operands, scalar.dtype)


def printable(t: ArrayTarget, root: Scalar, done: dict[Scalar, Scalar] | None = None) -> Scalar:
    """The expression in primitives, and functions that the target has. Raises NotPrinted."""
    found = {} if done is None else done
    return rebuilt(root, lambda value: _printable(t, value, found), found)


def _printable(t: ArrayTarget, value: Scalar, done: dict[Scalar, Scalar]) -> Scalar | None:
    if value.dtype.is_complex or any(each.dtype.is_complex for each in value.operands):
        raise NotPrinted("computes with complex numbers, which are not printed")
    row = FUNCTIONS.get(value.op)
    if row is None:
        return None
    operands = value.operands
    kinds = [each.dtype for each in operands]
    if kinds[0] in NARROW and value.op not in PRIMITIVES:
        wide: Any = row(*[cast(each, dtypes.float32) for each in operands])
        return printable(t, cast(wide, value.dtype), done)
    inline = None if row.inline is None else row.inline(*operands)
    if inline is not None and inline is not value:
        return printable(t, inline, done)
    if value.op in PRIMITIVES:
        return None
    if t.has_function(value.op, kinds[0]):
        return None
    if has(value.op, kinds):
        return printable(t, substituted(find(value.op, kinds).body, operands), done)
    formula = t.formula(value.op, kinds[0])
    if formula is None:
        raise NotPrinted(f"computes {value.op} of {kinds[0].name}, which the target lacks")
    return printable(t, cast(formula(*operands), value.dtype), done)
