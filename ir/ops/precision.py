"""In which dtype a kernel computes: 16-bit floats are summed in float32 and rounded once."""

from __future__ import annotations

from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType

_NARROW = (dtypes.float16, dtypes.bfloat16, dtypes.float8_e4m3fn, dtypes.float8_e5m2)


def accumulator(dtype: DType) -> DType:
    """The dtype in which sums that end in this dtype are formed."""
    return dtypes.float32 if dtype in _NARROW else dtype


def widened(operand: Any) -> Any:
    """An operand of a gradient formula in the dtype in which sums that end in its own are formed.

    The engine casts the gradient back.
    """
    return operand.to(accumulator(operand.dtype))


def cast(xp: Any, a: Any, dtype: DType) -> Any:
    """The array in this dtype; itself, not a copy, if it is in it already."""
    return a if a.dtype == dtype.numpy else xp.astype(a, dtype.numpy)


def wide(xp: Any, a: Any, dtype: DType) -> Any:
    """The array in the dtype in which sums that end in `dtype` are formed."""
    return cast(xp, a, accumulator(dtype))
