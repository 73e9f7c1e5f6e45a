"""The expression of a pointwise op for operands of given dtypes: what its kernel computes.

Operands and numbers are cast, and the result is rounded, as the op's kernel does it
(`ir/ops/declare.py`): `x * 0.1` of a bfloat16 computes in float32 and rounds once. Loops, the law
"scalar = kernel", and questions about formulas read it. Spec: `specs/lowering.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Number
from typing import Any, Protocol

from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import PureOp
from aotlite.ir.op.binding import NUMBERS
from aotlite.ir.ops.precision import COMPUTED_NUMBERS, WIDE_NUMBERS, number_in
from aotlite.ir.scalar.expression import Scalar, cast, const, number, parameter
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.symint import SymInt

_KINDS = frozenset(NUMBERS)


class Elements(Protocol):
    """An operand, of which an expression depends on the dtype, and on whether it has dimensions."""

    @property
    def dtype(self) -> DType:
        """The elements' dtype."""

    @property
    def shape(self) -> Sequence[Any]:
        """The sizes."""


def expression_of(op: PureOp, result: DType, args: Sequence[Any], tensors: Sequence[int]) -> Scalar:
    """Returns one element of the op's result. `args[i]` for i in `tensors` have `Elements`; the
    k-th of them is parameter(k). The other arguments are literals.

    Raises ArithmeticError where no number is the result: an integer that the dtype does not hold,
    a number divided by 0.
    """
    assert op.scalar is not None
    if op.numbers in COMPUTED_NUMBERS and _computes_with_symbols(op, args):
        raise ArithmeticError(f"{op.name}: {args} has symbols, expected numbers to compute with")
    narrow = wide = result  # of an op that only chooses or casts
    if op.computes is not None and op.holds is not None:
        promoted = _promoted(op, args, tensors)
        narrow, wide = op.holds(promoted), op.computes(promoted)
    operands = [
        _operand(op, i, a, tensors.index(i), narrow, wide)
        if i in tensors
        else _number(op, i, a, narrow, wide)
        for i, a in enumerate(args)
    ]
    try:
        value = op.scalar(*operands)
    except TypeError as error:
        if {SymInt, SizeFloat, Scalar}.isdisjoint(map(type, args)):
            raise
        what = f"{op.name}: its formula looks at a number that is not known, of {args}"
        raise ArithmeticError(f"{what}, expected a number") from error
    if type(value) is Scalar:
        return cast(value, result)
    if not isinstance(value, Number):
        raise TypeError(f"{op.name}: its 'scalar' gives {value!r}, expected a Scalar or a number")
    return cast(number(value, wide), result)


def _computes_with_symbols(op: PureOp, args: Sequence[Any]) -> bool:
    """Whether the kernel would compute with doubles that are not known yet."""
    kinds = [parameter.type for parameter in op.schema.parameters]
    return any(
        kind.holds_number and (type(a) in _SYMBOLIC or type(a) in _KINDS)
        for kind, a in zip(kinds, args, strict=True)
    ) and any(type(a) in _SYMBOLIC for a in args)


def expression_of_call(op: PureOp, result: DType, args: Sequence[object]) -> Scalar | None:
    """Returns one element of the result of a graph's call, where metas stand for tensors.

    The k-th tensor is parameter(k); numbers that are not known yet are parameters, too. None where
    no number is the result.
    """
    tensors = [i for i, a in enumerate(args) if type(a) is TensorMeta]
    known = [
        parameter(len(args) + i, _SYMBOLIC.get(type(a), dtypes.int64))
        if i in op.mixed and type(a) in _SYMBOLIC
        else a
        for i, a in enumerate(args)
    ]
    try:
        return expression_of(op, result, known, tensors)
    except ArithmeticError:
        return None


def _promoted(op: PureOp, args: Sequence[Any], tensors: Sequence[int]) -> DType:
    """Returns the dtype to which operands, and numbers in an operand's place, promote."""
    found: list[Any] = []
    parameters = op.schema.parameters
    for i, a in enumerate(args):
        if i in tensors:
            found.append((a.dtype, len(a.shape)))
        elif not parameters[i].type.holds_number:
            continue  # the kernel computes with it, in the operands' dtype
        elif type(a) in _KINDS:
            found.append(a)
        elif type(a) is SymInt:
            found.append(0)
        elif i in op.mixed and type(a) is SizeFloat:
            found.append(0.0)
    return dtypes.result_type(found)


_SYMBOLIC: dict[type, DType] = {SymInt: dtypes.int64, SizeFloat: dtypes.float64}
"""The dtype of what stands for a symbolic number."""
_SINGLE_ROUNDED = (dtypes.float32, dtypes.float64)


def _size_float(op: PureOp, value: SizeFloat, narrow: DType, wide: DType) -> Scalar:
    """Returns a float made of sizes as the kernel holds it: a double, rounded once."""
    held = wide if op.numbers in WIDE_NUMBERS else narrow
    if op.numbers == "unwrapped" or held not in _SINGLE_ROUNDED or wide not in _SINGLE_ROUNDED:
        raise OverflowError(f"{op.name}: {value} as {held}, expected a number")
    return cast(const(value, held), wide)


def _number(op: PureOp, i: int, value: object, narrow: DType, wide: DType) -> object:
    """Returns a number rounded to the dtype in which the op's kernel holds it."""
    kind = type(value)
    if type(value) is SizeFloat and i in op.mixed:
        return _size_float(op, value, narrow, wide)
    if kind is SymInt and i in op.mixed:
        if wide.kind == dtypes.INTEGER and wide is not dtypes.int64:
            raise OverflowError(f"{op.name}: {value} as {wide}, which may not hold it")
        return cast(const(value, wide if op.numbers in WIDE_NUMBERS else narrow), wide)
    if kind is SizeFloat:
        raise OverflowError(f"{op.name}: {value}, expected a number")
    if kind not in _KINDS:
        return value
    if i not in op.held:
        if wide.kind == dtypes.INTEGER and kind is int and number_in(wide, value) != value:
            raise OverflowError(f"{op.name}: {value} as {wide}, which the kernel may refuse")
        return value
    if kind is int and op.numbers == "unwrapped":
        return value
    return number_in(wide if op.numbers in WIDE_NUMBERS else narrow, value)


def _operand(op: PureOp, i: int, a: Elements, k: int, narrow: DType, wide: DType) -> Scalar:
    """Returns the parameter of an operand's elements, cast to the dtype of the computation."""
    value = parameter(k, a.dtype)
    if wide is not narrow and not (op.numbers in WIDE_NUMBERS and i and not a.shape):
        value = cast(value, narrow)  # 16-bit floats: rounded before they are widened
    return cast(value, wide)
