"""The dtype that a kernel computes in: 16-bit floats are summed in float32, and rounded once."""

from __future__ import annotations

from typing import Any, TypeVar

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.dtypes import DType
from aotlite.ir.op.operand import Operand

WIDE_NUMBERS = ("wide", "wide, computed")
"""The `PureOp.numbers` of ops whose numbers are float32 beside 16-bit floats."""
COMPUTED_NUMBERS = ("held, computed", "wide, computed")
"""Of ops whose kernel computes with a number itself, before it meets arrays."""
_NARROW = (dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3fn, dtypes.float8_e5m2)


def accumulator(dtype: DType) -> DType:
    """The dtype for sums whose result has this dtype: float32 for 16-bit floats, else the same."""
    return dtypes.float32 if dtype in _NARROW else dtype


def number_in(dtype: DType, number: Any) -> Any:
    """The number as an element of this dtype: integers wrap, 16-bit floats are rounded."""
    kind = type(number)
    if kind is int and dtype.kind == dtypes.INTEGER:
        bits = 8 * dtype.itemsize
        low = -(1 << bits - 1) if dtype.is_signed else 0
        return number if low <= number < low + (1 << bits) else (number - low) % (1 << bits) + low
    number = taken_by(dtype, number)
    kind = type(number)
    if kind is float and accumulator(dtype) is not dtype:
        return float(dtype.numpy.type(dtypes.float32.numpy.type(number)))
    return number


def whole(number: Any) -> int:
    """The number without its fraction. Raises OverflowError for nan, as for infinities."""
    if number != number:
        raise OverflowError("cannot convert float NaN to integer")
    return int(number)


def taken_by(dtype: DType, number: object) -> Any:
    """A number that arrays of the dtype accept: extension dtypes accept no int above 2**63."""
    if type(number) is int and number >= 1 << 63 and dtype.kind == dtypes.FLOATING:
        return float(number)
    return number


OperandT = TypeVar("OperandT", bound=Operand)


def widened(operand: OperandT, dtype: DType | None = None) -> OperandT:
    """An operand cast to the accumulator of `dtype` (default: its own dtype).

    For gradient formulas: the engine casts the gradient back.
    """
    return operand.to(accumulator(dtype or operand.dtype))


def cast(xp: Namespace, a: Array, dtype: DType) -> Array:
    """The array in this dtype; the array itself if it has it."""
    if a.dtype == dtype.numpy:
        return a
    return converted(xp, a, dtype)


def converted(xp: Namespace, a: Array, dtype: DType) -> Array:
    """A copy of the array in this dtype. A real dtype keeps the real part, without a warning."""
    if dtype is dtypes.float8_e4m3fn:
        a = saturated(xp, a)
    elif not (dtype.is_complex or dtype is dtypes.bool_) and is_complex(a):
        a = xp.real(a)
    return xp.astype(a, dtype.numpy)


def is_complex(a: Array) -> bool:
    """Whether the array's elements are complex."""
    return dtypes.from_numpy(a.dtype).is_complex


LARGEST = 448.0
"""The largest float8_e4m3fn, which has no infinity."""


def saturated(xp: Namespace, a: Array) -> Array:
    """The array with elements too large for float8_e4m3fn set to its largest, as in PyTorch."""
    real = xp.real(a) if is_complex(a) else a
    return xp.clip(xp.astype(real, xp.float64), -LARGEST, LARGEST)


def wide(xp: Namespace, a: Array, dtype: DType) -> Array:
    """The array in the accumulator of `dtype`."""
    return cast(xp, a, accumulator(dtype))
