"""Factories: `zeros`, `full`, `arange`, `linspace`, `eye`, ...

Each takes `dtype`, `device`, `requires_grad` and `out`. Sizes may be separate arguments.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.namespace import function
from aotlite.eager.dispatch.named_call import call
from aotlite.ir import dtypes
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.dtypes import DType, as_dtype
from aotlite.ir.errors import ArgumentError, ShapeError
from aotlite.ir.geometry import sizes
from aotlite.ir.geometry.memory_format import MemoryFormat, strides_in
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.floats.symfloat import SymFloat
from aotlite.ir.symbols.python_number import plain

Place = Device | str | None


def made(
    name: str,
    args: tuple[Any, ...],
    wishes: tuple[DType | type | None, Place],
    requires_grad: builtins.bool,
    out: Tensor | None = None,
) -> Tensor:
    """The result of an op for these arguments, a dtype and a device; written to `out` if given."""
    dtype, device = wishes
    result: Tensor
    if out is None:
        result = call(name, *args, dtype=dtype, device=device or CPU)
    else:
        derived: Any = function(name)
        result = derived(*args, dtype=dtype or out.dtype, device=device or CPU, out=out)
    return result.requires_grad_() if requires_grad else result


def size_of(given: tuple[object, ...], size: object = None) -> Any:
    """The size (2, 3) from each of `zeros(2, 3)`, `zeros((2, 3))` and `zeros(size=(2, 3))`."""
    if size is not None and not given:
        return size
    return given[0] if len(given) == 1 and isinstance(given[0], (tuple, list)) else given


def full(
    size: Sequence[int] | int,
    fill_value: Any,
    *,
    dtype: DType | type | None = None,
    device: Place = None,
    requires_grad: builtins.bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """A tensor of this size with one value everywhere."""
    return made("full", (size, fill_value), (dtype, device), requires_grad, out)


def zeros(
    *sizes: object,
    size: object = None,
    dtype: DType | type | None = None,
    device: Place = None,
    requires_grad: builtins.bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Zeros, float32 by default. `zeros(2, 3)` and `zeros((2, 3))` are the same."""
    return made("full", (size_of(sizes, size), 0.0), (dtype, device), requires_grad, out)


def ones(
    *sizes: object,
    size: object = None,
    dtype: DType | type | None = None,
    device: Place = None,
    requires_grad: builtins.bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Ones, float32 by default."""
    return made("full", (size_of(sizes, size), 1.0), (dtype, device), requires_grad, out)


def empty(
    *sizes: object,
    size: object = None,
    dtype: DType | type | None = None,
    device: Place = None,
    requires_grad: builtins.bool = False,
    memory_format: MemoryFormat | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """A tensor with unspecified values; here zeros, so that runs are reproducible."""
    if out is not None:
        return zeros(size_of(sizes, size), dtype=dtype, device=device, out=out)
    result = zeros(size_of(sizes, size), dtype=dtype, device=device)
    if memory_format is not None:
        stride = strides_in(memory_format, result.shape, result.stride(), op="empty")
        result = result if result.stride() == stride else result.restride(stride)
    return result.requires_grad_() if requires_grad else result


def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: DType | type | None = None,
    device: Place = None,
    requires_grad: builtins.bool = False,
) -> Tensor:
    """`empty` with these strides, in elements."""
    stride, size = _ints("stride", stride), _ints("size", size)
    if len(stride) != len(size) or any(step < 0 for step in stride):
        raise ShapeError(
            f"empty_strided: stride is {stride}, expected {len(size)} numbers, none negative"
        )
    result: Tensor = zeros(tuple(size), dtype=dtype, device=device).restride(stride)
    return result.requires_grad_() if requires_grad else result


def _ints(argument: str, given: Any) -> tuple[int, ...]:
    listed = isinstance(given, (tuple, list)) and None not in map(sizes.as_size, given)
    if not listed:
        raise ArgumentError(
            f"empty_strided: argument '{argument}' is {given!r}, expected a tuple of integers"
        )
    return tuple(given)


def scalar_tensor(
    s: object,
    *,
    dtype: DType | type | None = None,
    device: Place = None,
    requires_grad: builtins.bool = False,
) -> Tensor:
    """A 0-d tensor that holds a number, float32 by default."""
    return made("full", ((), s), (dtype or dtypes.default_dtype, device), requires_grad)


def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: DType | type | None = None,
    device: Place = None,
    requires_grad: builtins.bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """The (n, m) matrix with ones on the diagonal and zeros elsewhere; m is n by default."""
    return made("eye", (n, m), (dtype, device), requires_grad, out)


# ------------------------------------------------------------------------------------- counting
def linspace(
    start: object,
    end: object,
    steps: int,
    *,
    dtype: DType | type | None = None,
    device: Place = None,
    requires_grad: builtins.bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """`steps` numbers evenly spaced from `start` to `end`, both included."""
    return made("linspace", (start, end, steps), (dtype, device), requires_grad, out)


def logspace(
    start: object,
    end: object,
    steps: int,
    base: float = 10.0,
    *,
    dtype: DType | type | None = None,
    device: Place = None,
    requires_grad: builtins.bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """`base` to the powers that `linspace` gives."""
    return made("logspace", (start, end, steps, base), (dtype, device), requires_grad, out)


def arange(
    start: object = None,
    end: object = None,
    step: object = 1,
    *,
    dtype: DType | type | None = None,
    device: Place = None,
    requires_grad: builtins.bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """Numbers from `start` (0 if only one bound is given) up to `end`, without it.

    int64 where all are ints, else float32.

    >>> arange(1, 2, 0.5).tolist(), arange(3, 0, -2).tolist()
    ([1.0, 1.5], [3, 1])
    """
    if end is None:
        start, end = 0, start
    start = 0 if start is None else start
    start, end, step = [
        v.item() if isinstance(v, Tensor) and not v.shape else v for v in (start, end, step)
    ]
    floats = (SymFloat, SizeFloat)
    start, end, step = [plain(v) if type(v) in floats else v for v in (start, end, step)]
    bounds = {"start": start, "end": end, "step": step}
    for name, value in bounds.items():
        if not isinstance(value, (int, float)) and sizes.as_size(value) is None:
            raise ArgumentError(f"arange: argument '{name}' is {value!r}, expected a real number")
        if isinstance(value, float) and not math.isfinite(value):
            raise ArgumentError(f"arange: argument '{name}' is {value}, expected a finite number")
    dtype = as_dtype(dtype)
    if dtype is None:
        has_floats = any(isinstance(value, float) for value in bounds.values())
        dtype = dtypes.default_dtype if has_floats else dtypes.int64
        dtype = dtype if out is None else out.dtype
    if dtype is dtypes.int64:
        start, end, step = [int(v) if isinstance(v, float) else v for v in (start, end, step)]
    args = (_count(start, end, step), start, step)
    return made("arange_of", args, (dtype, device), requires_grad, out)


def _count(start: Any, end: Any, step: Any) -> int:
    """The number of steps from `start` to `end`, exclusive."""
    if step == 0:
        raise ArgumentError("arange: step is 0, expected another number")
    if (end < start) if step > 0 else (end > start):
        first, last, by = map(_number_text, (start, end, step))
        raise ArgumentError(
            f"arange: the range is {first} to {last}, expected one in the direction of step {by}"
        )
    if any(isinstance(v, float) for v in (start, end, step)):
        try:
            return math.ceil((end - start) / step)
        except OverflowError:  # of an int as a float, or of infinity as an int
            raise ShapeError(
                "arange: the range divided by the step is too large, expected at most 2**63 - 1 "
                "numbers"
            ) from None
    return -((start - end) // step)


def _number_text(number: Any) -> str:
    """The text of a number: Python does not print ints of more than 4300 digits."""
    is_long = isinstance(number, int) and number.bit_length() > 64
    return f"an int of {number.bit_length()} bits" if is_long else str(number)
