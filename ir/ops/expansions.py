"""Helpers of decompositions: ops written as simpler ops, in operand methods (`PureOp.expands`).

A decomposition has the parameters of its op, and computes the same as the kernel up to rounding.
16-bit floats are computed in float32 and rounded once; infinities and nan are the same.
"""

from __future__ import annotations

from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.geometry import sizes
from aotlite.ir.ops.precision import widened

Given = tuple[int, ...] | int | None


def dims_of(x: Any, dim: Given) -> tuple[int, ...]:
    """The dimensions that are reduced, ascending: all for None and for an empty list."""
    if dim is None or dim == () or not x.ndim:
        return tuple(range(x.ndim))
    return tuple(sorted(sizes.wrap_dims((dim,) if isinstance(dim, int) else dim, x.ndim)))


def count_of(x: Any, dims: tuple[int, ...]) -> int:
    """The number of elements that each result of a reduction reduces."""
    return sizes.numel([x.shape[d] for d in dims])


def floating(x: Any) -> DType:
    """The operand's dtype; the default one for integers."""
    return x.dtype if x.dtype.is_differentiable else dtypes.default_dtype


def total(x: Any, dims: tuple[int, ...], *, keepdim: bool = True) -> Any:
    """The sum over these dimensions; the operand itself if there are none."""
    return x.sum(dims, keepdim) if dims else x


def over(x: Any, count: Any) -> Any:
    """`x / count`, which is nan or infinite for 0, where Python's division would raise."""
    if type(count) in (int, float) and count != 0:
        return x / float(count)
    return x / x.new_full((), count)


def standard(x: Any, dims: tuple[int, ...], eps: float) -> tuple[Any, Any, Any]:
    """(the operand with mean 0 and variance 1 over these dimensions, its mean, its variance)."""
    # In the same ops as the gradient formulas, so that CSE can share them with the backward.
    mean = x.mean(dims, True)
    centered = x - mean
    var = (centered * centered).mean(dims, True)
    return centered * (var + eps).rsqrt(), mean, var


def affine(unit: Any, weight: Any, bias: Any) -> Any:
    """The operand times weight, plus bias, in the operand's dtype; either may be None."""
    unit = unit if weight is None else unit * widened(weight)
    return unit if bias is None else unit + widened(bias)


def by_channel(x: Any, *values: Any) -> list[Any]:
    """(c,) -> (1, c, 1, ...) each, to go with `x`; None stays."""
    return [None if v is None else v.view(1, -1, *[1] * (x.ndim - 2)) for v in values]
