"""Pointwise ops as loops, by the scalar expression of their declaration.

Operands are cast, numbers held, and results rounded as the op's kernel does it
(`ir/ops/declare.py`). Spec: `specs/lowering.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.backends.loops.expr import Scalar, cast
from aotlite.backends.loops.lowering.builder import NoLoops
from aotlite.backends.loops.lowering.typed import scalar_of, typed
from aotlite.backends.loops.lowering.writer import Operand, Writer
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import NUMBERS, PureOp
from aotlite.ir.ops.declare import number_in
from aotlite.ir.scalar import symbol

_KINDS = frozenset(NUMBERS)


def pointwise_loops(k: Writer, op: PureOp, meta: TensorMeta, args: tuple[Any, ...]) -> Operand:
    """The kernel of a pointwise op. Raises NoLoops where it has no loop form."""
    assert op.scalar is not None and op.computes is not None and op.holds is not None
    promoted = _promoted(op, args)
    narrow, wide = op.holds(promoted), op.computes(promoted)
    if wide.is_complex:
        raise NoLoops
    numbers = [_number(op, i, a, narrow, wide) for i, a in enumerate(args)]
    symbols = [symbol(str(i)) if type(a) is Operand else a for i, a in enumerate(numbers)]
    tree = op.scalar(*symbols)

    def element(*positions: Any) -> Scalar:
        operands = {
            str(i): _operand(op, i, a, positions, (narrow, wide))
            for i, a in enumerate(args)
            if type(a) is Operand
        }
        return cast(scalar_of(typed(tree, operands, wide), wide), meta.dtype)

    return k.map(meta, element)


def _promoted(op: PureOp, args: tuple[Any, ...]) -> DType:
    """The dtype that operands and numbers in a tensor's place promote to."""
    found: list[Any] = []
    for i, a in enumerate(args):
        if type(a) is Operand:
            found.append((a.dtype, a.ndim))
        elif i in op.mixed and type(a) in _KINDS:
            found.append(a)
    return dtypes.result_type(found)


def _number(op: PureOp, i: int, value: Any, narrow: DType, wide: DType) -> Any:
    """A number as the kernel sees it."""
    kind = type(value)
    if kind not in _KINDS:
        return value
    if i not in op.held:
        if wide.kind == dtypes.INTEGER and kind is int and number_in(wide, value) != value:
            raise NoLoops  # the kernel may refuse it
        return value
    if kind is int and op.numbers == "unwrapped":
        return value
    return number_in(wide if op.numbers == "wide" else narrow, value)


def _operand(
    op: PureOp, i: int, a: Operand, positions: Any, computes: tuple[DType, DType]
) -> Scalar:
    """An operand's element in the dtype that is computed in."""
    narrow, wide = computes
    value = a.at(positions)
    if wide is not narrow and not (op.numbers == "wide" and i and not a.shape):
        value = cast(value, narrow)  # 16-bit floats: rounded before they are widened
    return cast(value, wide)
