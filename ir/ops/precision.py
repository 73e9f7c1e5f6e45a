"""In which dtype a kernel computes: 16-bit floats are summed in float32 and rounded once."""

from __future__ import annotations

from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType

_NARROW = (dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3fn, dtypes.float8_e5m2)


def accumulator(dtype: DType) -> DType:
    """The dtype in which sums that end in this dtype are formed."""
    return dtypes.float32 if dtype in _NARROW else dtype


def number_in(dtype: DType, number: Any) -> Any:
    """What a tensor of this dtype holds of a number: integers wrap, 16-bit floats are rounded."""
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


def taken_by(dtype: DType, number: Any) -> Any:
    """A number as arrays of the dtype take it: extension dtypes take no int above 2**63."""
    if type(number) is int and number >= 1 << 63 and dtype.kind == dtypes.FLOATING:
        return float(number)
    return number


def widened(operand: Any, dtype: DType | None = None) -> Any:
    """An operand of a formula in the dtype in which sums that end in `dtype`, or its own, are
    formed.

    Of a gradient formula, the engine casts the gradient back.
    """
    return operand.to(accumulator(dtype or operand.dtype))


def cast(xp: Any, a: Any, dtype: DType) -> Any:
    """The array in this dtype; itself, not a copy, if it is in it already."""
    if a.dtype == dtype.numpy:
        return a
    return converted(xp, a, dtype)


def converted(xp: Any, a: Any, dtype: DType) -> Any:
    """A copy of the array in this dtype. Of complex numbers reals keep the real part, quietly."""
    if dtype is dtypes.float8_e4m3fn:
        a = saturated(xp, a)
    elif not (dtype.is_complex or dtype is dtypes.bool_) and is_complex(a):
        a = xp.real(a)
    return xp.astype(a, dtype.numpy)


def is_complex(a: Any) -> bool:
    """Whether the array's elements are complex."""
    return dtypes.from_numpy(a.dtype).is_complex


LARGEST = 448.0
"""Of float8_e4m3fn, which has no infinity."""


def saturated(xp: Any, a: Any) -> Any:
    """What float8_e4m3fn holds of each element: as in PyTorch the largest number, not nan."""
    real = xp.real(a) if is_complex(a) else a
    return xp.clip(xp.astype(real, xp.float64), -LARGEST, LARGEST)


def wide(xp: Any, a: Any, dtype: DType) -> Any:
    """The array in the dtype in which sums that end in `dtype` are formed."""
    return cast(xp, a, accumulator(dtype))


def horner(x: Any, coefficients: tuple[float, ...]) -> Any:
    """The polynomial with these coefficients, highest power first, at each element."""
    total = x * coefficients[0] + coefficients[1]
    for coefficient in coefficients[2:]:
        total *= x
        total += coefficient
    return total
