"""`fitted`: converts a Python number to an element of a dtype, and refuses one out of its range."""

from __future__ import annotations

import cmath
import math
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.dtypes import COMPLEX, FLOATING, DType
from aotlite.ir.dtypes.limits import finfo, iinfo
from aotlite.ir.errors import ArgumentError


def fitted(op: str, value: Any, dtype: DType) -> Any:
    """The number converted to the dtype. Raises ArgumentError for one out of its range.

    As in PyTorch, fractions are truncated, infinities are in the range of floats, and a negative
    number wraps in an unsigned dtype.
    """
    if dtype is dtypes.bool_:
        return bool(value)
    if dtype.kind == COMPLEX:
        number = complex(value)
        return complex(_real(op, value, number.real, dtype), _real(op, value, number.imag, dtype))
    if isinstance(value, complex):
        if value.imag:
            raise _unfit(op, value, dtype)
        value = value.real
    if dtype.kind == FLOATING:
        return _real(op, value, value, dtype)
    return _whole(op, value, dtype)


def _real(op: str, value: Any, part: Any, dtype: DType) -> float:
    try:
        number = float(part)
    except OverflowError as error:
        raise _unfit(op, value, dtype) from error
    if cmath.isfinite(number) and abs(number) > finfo(dtype).max:
        raise _unfit(op, value, dtype)
    return number


def _whole(op: str, value: Any, dtype: DType) -> int:
    limits = iinfo(dtype)
    if not math.isfinite(value):
        raise _unfit(op, value, dtype)
    number = int(value)
    least = limits.min if dtype.is_signed else -limits.max
    if not least <= number <= limits.max:
        raise _unfit(op, value, dtype)
    return number if dtype.is_signed else number % (limits.max + 1)


def _unfit(op: str, value: Any, dtype: DType) -> ArgumentError:
    return ArgumentError(f"{op}: value is {value}, expected one that {dtype} can hold")
