"""Reductions, orders and products: the ops that targets have operations for.

Sums of 16-bit floats are formed in float32 and rounded once. Spec: `specs/onnx.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aotlite.interchange.arrays.registry import lowering_of
from aotlite.interchange.arrays.target import (
    NARROW,
    ArrayTarget,
    ConvolutionWindow,
    Value,
    broadcast_shapes,
)
from aotlite.ir import dtypes
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.precision import accumulator

Dims = Sequence[int] | None


def _all_dims(x: Value, dim: Dims | int) -> list[int]:
    if dim is None or dim == ():
        return list(range(len(x.shape)))
    given = (dim,) if isinstance(dim, int) else dim
    return sorted({each % max(len(x.shape), 1) for each in given}) if x.shape else []


def _reduced(t: ArrayTarget, kind: str, meta: TensorMeta, x: Value, dim: Dims | int) -> Value:
    dims = [] if dim == () and kind in ("any", "all") else _all_dims(x, dim)
    return t.reshape(t.reduce(kind, x, dims), meta.shape)


# ----------------------------------------------------------------------------------------- sums
@lowering_of("sum")
def summed(
    t: ArrayTarget, meta: TensorMeta, x: Value, dim: Dims, keepdim: bool, *rest: object
) -> Value:
    """The sum over dimensions."""
    wide = t.cast(x, accumulator(meta.dtype))
    return t.cast(_reduced(t, "sum", meta, wide, dim), meta.dtype)


@lowering_of("prod")
def multiplied(
    t: ArrayTarget, meta: TensorMeta, x: Value, dim: int | None, keepdim: bool, *rest: object
) -> Value:
    """The product over a dimension, or over all."""
    wide = t.cast(x, accumulator(meta.dtype))
    return t.cast(_reduced(t, "prod", meta, wide, dim), meta.dtype)


@lowering_of("amax")
def greatest(t: ArrayTarget, meta: TensorMeta, x: Value, dim: Dims, keepdim: bool) -> Value:
    """The greatest element; NaN where there is one."""
    return _reduced(t, "max", meta, x, dim)


@lowering_of("amin")
def least(t: ArrayTarget, meta: TensorMeta, x: Value, dim: Dims, keepdim: bool) -> Value:
    """The least element; NaN where there is one."""
    return _reduced(t, "min", meta, x, dim)


@lowering_of("any")
def any_true(t: ArrayTarget, meta: TensorMeta, x: Value, dim: Dims, keepdim: bool) -> Value:
    """Whether one element is not 0."""
    found = _reduced(t, "any", meta, t.cast(x, dtypes.bool_), dim)
    return t.cast(found, meta.dtype)


@lowering_of("all")
def all_true(t: ArrayTarget, meta: TensorMeta, x: Value, dim: Dims, keepdim: bool) -> Value:
    """Whether no element is 0."""
    found = _reduced(t, "all", meta, t.cast(x, dtypes.bool_), dim)
    return t.cast(found, meta.dtype)


# --------------------------------------------------------------------------------------- orders
@lowering_of("sort")
def sorted_along(
    t: ArrayTarget, meta: Any, x: Value, dim: int, descending: bool, *rest: object
) -> tuple[Value, Value]:
    """The elements in order, and their positions."""
    return _first(t, x, dim, x.shape[dim] if x.shape else 1, descending)


@lowering_of("topk")
def top(
    t: ArrayTarget, meta: Any, x: Value, k: int, dim: int, largest: bool, *rest: object
) -> tuple[Value, Value]:
    """The k greatest or least elements in order, and their positions."""
    return _first(t, x, dim, k, largest)


@lowering_of("kthvalue")
def kth(
    t: ArrayTarget, meta: Any, x: Value, k: int, dim: int, keepdim: bool
) -> tuple[Value, Value]:
    """The k-th least element, and its position."""
    values, places = _first(t, x, dim, k, False)
    if x.shape:
        begin, end = [0] * len(x.shape), list(values.shape)
        begin[dim] = k - 1
        values, places = t.slice(values, begin, end), t.slice(places, begin, end)
    return t.reshape(values, meta[0].shape), t.reshape(places, meta[1].shape)


def _first(t: ArrayTarget, x: Value, dim: int, count: int, descending: bool) -> tuple[Value, Value]:
    if not x.shape:
        shape: tuple[int, ...] = ()
        return x, t.full(shape, 0, dtypes.int64)
    dim %= len(x.shape)
    if not x.numel:
        order = t.full(x.shape, 0, dtypes.int64)
    else:
        order = t.order(key_of(t, x), dim, descending=descending)
    end = list(x.shape)
    end[dim] = count
    order = t.slice(order, [0] * len(x.shape), end)
    return taken_along(t, x, order, dim), order


def key_of(t: ArrayTarget, x: Value) -> Value:
    """Integers in the order of the elements. Both zeros are one; NaN is the greatest."""
    dtype = x.dtype
    if dtype in NARROW:
        return key_of(t, t.cast(x, dtypes.float32))
    if dtype is dtypes.uint64:
        changed = t.primitive("bit_xor", x, t.constant(1 << 63, dtype))
        return t.bits(changed, dtypes.int64)
    if not dtype.is_floating_point:
        return t.cast(x, dtypes.int64)
    integer = dtypes.int32 if dtype is dtypes.float32 else dtypes.int64
    most = t.constant((1 << 8 * dtype.itemsize - 1) - 1, integer)
    zero = t.constant(0.0, dtype)
    bits = t.bits(t.where(t.primitive("eq", x, zero), zero, x), integer)
    negative = t.primitive("lt", bits, t.constant(0, integer))
    key = t.where(negative, t.primitive("bit_xor", bits, most), bits)
    return t.where(t.primitive("ne", x, x), most, key)


def taken_along(t: ArrayTarget, x: Value, index: Value, dim: int) -> Value:
    """The elements at the positions of an index along a dimension, line by line."""
    rank = len(x.shape)
    place = t.full((1,) * rank, 0, dtypes.int64)
    for k, n in enumerate(x.shape):
        step = t.constant(int(np.prod(x.shape[k + 1 :])), dtypes.int64)
        own = index if k == dim else t.positions(index.shape[k], rank, k)
        if k == dim or n > 1:
            place = t.primitive("add", place, t.primitive("mul", own, step))
    return t.take(t.reshape(x, (x.numel,)), t.broadcast(place, index.shape))


@lowering_of("gather")
def gathered(t: ArrayTarget, meta: TensorMeta, x: Value, dim: int, index: Value) -> Value:
    """The elements at the positions of an index along a dimension."""
    if not x.shape or not meta.numel:
        return NotImplemented
    return taken_along(t, x, t.cast(index, dtypes.int64), dim % len(x.shape))


# ------------------------------------------------------------------------------------- products
@lowering_of("matmul")
def product(t: ArrayTarget, meta: TensorMeta, a: Value, b: Value) -> Value:
    """The matrix product, with NumPy's rules for vectors and batches."""
    dtype = accumulator(meta.dtype)
    if dtype is dtypes.bool_:
        return NotImplemented
    left = t.reshape(a, (1, *a.shape)) if len(a.shape) == 1 else a
    right = t.reshape(b, (*b.shape, 1)) if len(b.shape) == 1 else b
    batch = broadcast_shapes(left.shape[:-2], right.shape[:-2])
    left = t.broadcast(t.cast(left, dtype), (*batch, *left.shape[-2:]))
    right = t.broadcast(t.cast(right, dtype), (*batch, *right.shape[-2:]))
    shape = (*batch, left.shape[-2], right.shape[-1])
    if 0 in (*shape, left.shape[-1]):
        return t.full(meta.shape, 0, meta.dtype)
    return t.reshape(t.cast(t.product(left, right), meta.dtype), meta.shape)


def _pair(given: Sequence[int]) -> tuple[int, int]:
    return (given[0], given[0]) if len(given) == 1 else (given[0], given[1])


@lowering_of("conv2d")
def convolved(
    t: ArrayTarget,
    meta: TensorMeta,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Value:
    """The convolution of images."""
    dtype = accumulator(meta.dtype)
    up, across = _pair(padding)
    sides = (up, up), (across, across)
    window = ConvolutionWindow(_pair(stride), sides, (1, 1), _pair(dilation), groups)
    found = _convolution(t, meta, x, weight, window)
    if found is None:
        return NotImplemented
    if bias is not None:
        column = t.reshape(t.cast(bias, dtype), (1, bias.numel, 1, 1))
        found = t.primitive("add", found, column)
    return t.cast(found, meta.dtype)


def _convolution(
    t: ArrayTarget, meta: TensorMeta, x: Value, weight: Value, window: ConvolutionWindow
) -> Value | None:
    dtype = accumulator(meta.dtype)
    if not dtype.is_floating_point or 0 in (*meta.shape, *x.shape, *weight.shape):
        return None
    return t.convolve(t.cast(x, dtype), t.cast(weight, dtype), window)


@lowering_of("conv2d_input")
def image_gradient(
    t: ArrayTarget,
    meta: TensorMeta,
    grad: Value,
    weight: Value,
    size: object,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Value:
    """The gradient of the image: the correlation of the spread gradient with the turned weight."""
    filters, channels, *kernel = weight.shape
    each = filters // groups
    turned = t.reverse(weight, [2, 3])
    turned = t.reshape(turned, (groups, each, channels, *kernel))
    turned = t.reshape(t.transpose(turned, (0, 2, 1, 3, 4)), (groups * channels, each, *kernel))
    steps, apart = _pair(stride), _pair(dilation)
    sides = []
    for k, cut in enumerate(_pair(padding)):
        reach = apart[k] * (kernel[k] - 1)
        low = reach - cut
        spread = (grad.shape[2 + k] - 1) * steps[k] + 1
        sides.append((low, meta.shape[2 + k] + reach - spread - low))
    window = ConvolutionWindow((1, 1), (sides[0], sides[1]), steps, apart, groups)
    found = _convolution(t, meta, grad, turned, window)
    return NotImplemented if found is None else t.cast(found, meta.dtype)


@lowering_of("conv2d_weight")
def weight_gradient(
    t: ArrayTarget,
    meta: TensorMeta,
    grad: Value,
    x: Value,
    size: object,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Value:
    """The gradient of the weight: the correlation of the image with the gradient, by channels."""
    batch, wide = x.shape[0], x.shape[1] // groups
    filters = grad.shape[1]
    # Channels become images, and images channels; groups stand side by side.
    images = t.reshape(x, (batch, groups, wide, *x.shape[2:]))
    images = t.transpose(images, (2, 1, 0, 3, 4))
    images = t.reshape(images, (wide, groups * batch, *x.shape[2:]))
    steps, apart = _pair(stride), _pair(dilation)
    sides = []
    for k, cut in enumerate(_pair(padding)):
        reach = steps[k] * (grad.shape[2 + k] - 1) + 1
        needed = reach + apart[k] * (meta.shape[2 + k] - 1)
        sides.append((cut, needed - x.shape[2 + k] - cut))
    window = ConvolutionWindow(apart, (sides[0], sides[1]), (1, 1), steps, groups)
    found = _convolution(t, meta, images, t.transpose(grad, (1, 0, 2, 3)), window)
    if found is None:
        return NotImplemented
    assert found.shape[:2] == (wide, filters)
    return t.cast(t.transpose(found, (1, 0, 2, 3)), meta.dtype)
