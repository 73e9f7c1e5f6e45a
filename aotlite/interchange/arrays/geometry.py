"""Views and the ops that move elements: in a pure graph a view is a copy. Strides do not exist.

A view of memory (`as_strided`, `diagonal`, `unfold`) takes from the operand's elements at the
positions where its window lies. Spec: `specs/onnx.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aotlite.interchange.arrays.memory import LARGEST
from aotlite.interchange.arrays.registry import lowering_of
from aotlite.interchange.arrays.scan import scanned
from aotlite.interchange.arrays.target import ArrayTarget, NotPrinted, Value
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.geometry import sizes
from aotlite.ir.geometry.single_element import without_few
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import PureOp, ViewOp
from aotlite.ir.ops.precision import number_in
from aotlite.ir.ops.views.view_ops import AS_STRIDED
from aotlite.ir.symbols.symint import SymInt


# ------------------------------------------------------------------------------------------ views
@lowering_of("alias", "detach", "hidden_alias", "clone", "restride")
def same(t: ArrayTarget, meta: TensorMeta, x: Value, *rest: object) -> Value:
    """The operand itself: a graph's values are never written."""
    return x


@lowering_of("view", "reshape_copy", "unsqueeze", "squeeze")
def reshaped(t: ArrayTarget, meta: TensorMeta, x: Value, *rest: object) -> Value:
    """The elements in another shape."""
    return t.reshape(x, meta.shape)


@lowering_of("expand")
def expanded(t: ArrayTarget, meta: TensorMeta, x: Value, *rest: object) -> Value:
    """The elements repeated."""
    return t.broadcast(x, meta.shape)


@lowering_of("permute")
def permuted(t: ArrayTarget, meta: TensorMeta, x: Value, dims: Sequence[int]) -> Value:
    """The dimensions in another order."""
    return t.transpose(x, [dim % len(x.shape) for dim in dims])


@lowering_of("transpose")
def transposed(t: ArrayTarget, meta: TensorMeta, x: Value, a: int, b: int) -> Value:
    """Two dimensions exchanged."""
    order = list(range(len(x.shape)))
    if order:
        order[a], order[b] = order[b], order[a]
    return t.transpose(x, order)


@lowering_of("t")
def matrix_transposed(t: ArrayTarget, meta: TensorMeta, x: Value) -> Value:
    """A matrix transposed."""
    return t.transpose(x, range(len(x.shape))[::-1])


@lowering_of("select")
def selected(t: ArrayTarget, meta: TensorMeta, x: Value, dim: int, index: int) -> Value:
    """One position of a dimension."""
    place = index % x.shape[dim]
    return t.reshape(_cut(t, x, dim, place, place + 1, 1), meta.shape)


@lowering_of("slice")
def sliced(
    t: ArrayTarget,
    meta: TensorMeta,
    x: Value,
    dim: int,
    start: int | None,
    end: int | None,
    step: int,
) -> Value:
    """Positions of a dimension at equal distances."""
    begin, stop = sizes.slice_bounds(start, end, x.shape[dim])
    return _cut(t, x, dim, begin, stop, step)


def _cut(t: ArrayTarget, x: Value, dim: int, begin: int, end: int, step: int) -> Value:
    dim %= len(x.shape)
    begins, ends, steps = [0] * len(x.shape), list(x.shape), [1] * len(x.shape)
    begins[dim], ends[dim], steps[dim] = begin, end, step
    return t.slice(x, begins, ends, steps)


def in_window(
    t: ArrayTarget, op: ViewOp, x: Value, layout: TensorMeta, args: Sequence[Any]
) -> Value:
    """A view by its window: its elements are taken from those of the operand.

    Raises NotPrinted where it shows memory between the operand's elements.
    """
    meta, start = op.rule(layout, *args)
    found = _elements(layout, meta, start)
    if found.size == x.numel and np.array_equal(found.reshape(-1), np.arange(x.numel)):
        return t.reshape(x, meta.shape)
    return t.take(t.reshape(x, (x.numel,)), t.constant(found, dtypes.int64))


def window_replaced(
    t: ArrayTarget, op: PureOp, x: Value, source: Value, layout: TensorMeta, args: Sequence[Any]
) -> Value:
    """The operand with the elements replaced that a window of its memory shows."""
    seen, start = AS_STRIDED.rule(layout, *args)
    index = t.constant(_elements(layout, seen, start).reshape(-1), dtypes.int64)
    values = t.reshape(t.cast(source, x.dtype), (source.numel,))
    return t.reshape(t.scatter(t.reshape(x, (x.numel,)), index, values, None), x.shape)


def _elements(layout: TensorMeta, meta: TensorMeta, start: int) -> np.ndarray:
    """The number of the element of `layout`, in row-major order, that lies at each element of a
    window of its memory."""
    if max(meta.numel, layout.span) > LARGEST:
        raise NotPrinted(f"takes {meta.numel} scattered elements, which no constant holds")
    places = np.full(max(layout.span, 1), -1, np.int64)
    places[_addresses(layout, 0)] = np.arange(layout.numel).reshape(layout.shape)
    addresses = _addresses(meta, start)
    if meta.numel and addresses.max() >= places.size:
        raise NotPrinted(f"shows memory beside the elements of {layout}")
    found = places[addresses] if meta.numel else np.zeros(meta.shape, np.int64)
    if (found < 0).any():
        raise NotPrinted(f"shows memory between the elements of {layout}")
    return found


def _addresses(meta: TensorMeta, start: int) -> np.ndarray:
    total = np.full(meta.shape, start, np.int64)
    for k, step in enumerate(without_few(meta.shape, meta.stride)):
        line = np.arange(meta.shape[k]) * step
        total += line.reshape([-1 if d == k else 1 for d in range(len(meta.shape))])
    return total


# ----------------------------------------------------------------------------------------- copies
@lowering_of("copy")
def copied(t: ArrayTarget, meta: TensorMeta, x: Value, source: Value) -> Value:
    """The elements of another tensor in the shape and dtype of this one."""
    return t.broadcast(t.cast(source, meta.dtype), meta.shape)


@lowering_of("to_device")
def moved(t: ArrayTarget, meta: TensorMeta, x: Value, *rest: object) -> Value:
    """The operand itself: where a program runs is said to the runtime."""
    return x


@lowering_of("view_dtype", "view_dtype_copy")
def recast(t: ArrayTarget, meta: TensorMeta, x: Value, dtype: DType) -> Value:
    """The bytes of the elements in another dtype: of the last dimension, where sizes differ."""
    given, wanted = _whole_number(x.dtype), _whole_number(dtype)
    whole = t.cast(x, given) if x.dtype is dtypes.bool_ else t.bits(x, given)
    ratio = max(given.itemsize, wanted.itemsize) // min(given.itemsize, wanted.itemsize)
    if ratio > 1 and not meta.numel:
        whole = t.full(meta.shape, 0, wanted)
    elif given.itemsize > wanted.itemsize:
        whole = t.reshape(_cut_up(t, whole, wanted, ratio), meta.shape)
    elif given.itemsize < wanted.itemsize:
        whole = t.reshape(_put_together(t, whole, wanted, ratio), meta.shape)
    return t.cast(whole, dtype) if dtype is dtypes.bool_ else t.bits(whole, dtype)


def _whole_number(dtype: DType) -> DType:
    return dtypes.by_name(f"uint{8 * dtype.itemsize}")


def _cut_up(t: ArrayTarget, x: Value, dtype: DType, ratio: int) -> Value:
    """Each integer as several small ones, the lowest first, along a new last dimension."""
    bits = 8 * dtype.itemsize
    mask = t.constant((1 << bits) - 1, x.dtype)
    parts = []
    for k in range(ratio):
        moved = t.primitive("shr", x, t.constant(bits * k, x.dtype)) if k else x
        part = t.cast(t.primitive("bit_and", moved, mask), dtype)
        parts.append(t.reshape(part, (*x.shape, 1)))
    return t.concatenate(parts, len(x.shape))


def _put_together(t: ArrayTarget, x: Value, dtype: DType, ratio: int) -> Value:
    """Several small integers of the last dimension as one, the lowest first."""
    laid = t.reshape(x, (*x.shape[:-1], x.shape[-1] // ratio, ratio))
    total: Value | None = None
    for k in range(ratio):
        begin, end = [0] * len(laid.shape), list(laid.shape)
        begin[-1], end[-1] = k, k + 1
        part = t.cast(t.slice(laid, begin, end), dtype)
        shift = t.constant(8 * k * (dtype.itemsize // ratio), dtype)
        moved = t.primitive("shl", part, shift) if k else part
        total = moved if total is None else t.primitive("bit_or", total, moved)
    assert total is not None
    return total


@lowering_of("full")
def filled(t: ArrayTarget, meta: TensorMeta, size: object, number: Any, *rest: object) -> Value:
    """An array of one number."""
    return _full(t, meta, number)


@lowering_of("fill")
def refilled(t: ArrayTarget, meta: TensorMeta, x: Value, number: Any) -> Value:
    """An array of one number like another."""
    return _full(t, meta, number)


def _full(t: ArrayTarget, meta: TensorMeta, number: Any) -> Value:
    if isinstance(number, SymInt):  # a size: its value is known in each call
        return t.broadcast(t.cast(t.size(number), meta.dtype), meta.shape)
    return t.full(meta.shape, number_in(meta.dtype, number), meta.dtype)


@lowering_of("cat")
def joined(t: ArrayTarget, meta: TensorMeta, tensors: Sequence[Value], dim: int) -> Value:
    """Tensors one behind the other."""
    rank = len(meta.shape)
    kept = [t.cast(each, meta.dtype) for each in tensors if len(each.shape) == rank]
    return t.concatenate(kept, dim % rank) if meta.numel else t.full(meta.shape, 0, meta.dtype)


@lowering_of("stack")
def stacked(t: ArrayTarget, meta: TensorMeta, tensors: Sequence[Value], dim: int) -> Value:
    """Tensors one behind the other, in a dimension of their own."""
    dim %= len(meta.shape)
    one = (*meta.shape[:dim], 1, *meta.shape[dim + 1 :])
    parts = [t.reshape(t.cast(each, meta.dtype), one) for each in tensors]
    return t.concatenate(parts, dim) if meta.numel else t.full(meta.shape, 0, meta.dtype)


@lowering_of("flip")
def flipped(t: ArrayTarget, meta: TensorMeta, x: Value, dims: Sequence[int]) -> Value:
    """Dimensions in reverse order."""
    return t.reverse(x, [dim % len(x.shape) for dim in dims])


@lowering_of("constant_pad_nd")
def padded(t: ArrayTarget, meta: TensorMeta, x: Value, pad: Sequence[int], number: Any) -> Value:
    """Numbers around the elements; a negative pad cuts off."""
    rank = len(x.shape)
    low, high = [0] * rank, [0] * rank
    for k in range(len(pad) // 2):
        low[rank - 1 - k], high[rank - 1 - k] = pad[2 * k], pad[2 * k + 1]
    if not meta.numel:
        return t.full(meta.shape, 0, meta.dtype)
    begin = [max(-each, 0) for each in low]
    end = [n - max(-each, 0) for n, each in zip(x.shape, high, strict=True)]
    if any(a > b for a, b in zip(begin, end, strict=True)):
        return NotImplemented
    inside = t.slice(x, begin, end)
    before, behind = ([max(each, 0) for each in side] for side in (low, high))
    return t.pad(inside, before, behind, t.constant(number_in(meta.dtype, number), meta.dtype))


@lowering_of("select_scatter")
def select_replaced(
    t: ArrayTarget, meta: TensorMeta, x: Value, source: Value, dim: int, index: int
) -> Value:
    """One position of a dimension replaced."""
    dim %= len(x.shape)
    part = t.reshape(source, [1 if k == dim else n for k, n in enumerate(x.shape)])
    place = index % x.shape[dim]
    return _spliced(t, x, part, dim, place, place + 1)


@lowering_of("slice_scatter")
def slice_replaced(
    t: ArrayTarget,
    meta: TensorMeta,
    x: Value,
    source: Value,
    dim: int,
    start: Any,
    end: Any,
    step: int,
) -> Value:
    """Positions of a dimension replaced."""
    begin, stop = sizes.slice_bounds(start, end, x.shape[dim])
    if step != 1:
        return NotImplemented
    return _spliced(t, x, source, dim % len(x.shape), begin, stop)


def _spliced(t: ArrayTarget, x: Value, part: Value, dim: int, begin: int, end: int) -> Value:
    part = t.cast(part, x.dtype)
    before, behind = _cut(t, x, dim, 0, begin, 1), _cut(t, x, dim, end, x.shape[dim], 1)
    return t.concatenate([before, part, behind], dim)


@lowering_of("repeat")
def repeated(t: ArrayTarget, meta: TensorMeta, x: Value, repeats: Sequence[int]) -> Value:
    """The elements repeated along dimensions."""
    shape = (1,) * (len(repeats) - len(x.shape)) + x.shape
    pairs = [each for pair in zip(repeats, shape, strict=True) for each in pair]
    laid = [each for n in shape for each in (1, n)]
    if not math.prod(pairs):
        return t.full(meta.shape, 0, meta.dtype)
    return t.reshape(t.broadcast(t.reshape(x, laid), pairs), meta.shape)


@lowering_of("index_select")
def rows_selected(t: ArrayTarget, meta: TensorMeta, x: Value, dim: int, index: Value) -> Value:
    """Positions of a dimension, by an index from 0 on."""
    if not x.shape:
        return t.broadcast(x, meta.shape)
    return t.reshape(t.take(x, t.cast(index, dtypes.int64), dim % len(x.shape)), meta.shape)


@lowering_of("embedding")
def embedded(
    t: ArrayTarget, meta: TensorMeta, weight: Value, indices: Value, *rest: object
) -> Value:
    """Rows of a matrix, by an index from 0 on."""
    return t.take(weight, t.cast(indices, dtypes.int64), 0)


@lowering_of("masked_scatter")
def masked_replaced(
    t: ArrayTarget, meta: TensorMeta, x: Value, mask: Value, source: Value
) -> Value:
    """The elements where the mask is true, replaced by those of a source in order."""
    if not meta.numel or not source.numel:
        return t.broadcast(x, meta.shape)
    x, mask = t.broadcast(x, meta.shape), t.broadcast(mask, meta.shape)
    flat = t.reshape(t.cast(mask, dtypes.int64), (meta.numel,))
    one, last = t.constant(1, dtypes.int64), t.constant(source.numel - 1, dtypes.int64)
    place = t.primitive("sub", scanned(t, "sum", [flat], 0)[0], one)
    none = t.constant(0, dtypes.int64)
    place = t.where(t.primitive("lt", place, none), none, place)
    place = t.where(t.primitive("gt", place, last), last, place)
    found = t.take(t.reshape(source, (source.numel,)), place)
    return t.where(mask, t.cast(t.reshape(found, meta.shape), meta.dtype), x)
