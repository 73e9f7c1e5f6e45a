"""Indexing by tensors: `x[i, :, j]`, `index_put`, `take`, `put`.

The ops take integer indices and the dimensions that they index. A mask becomes such indices first,
by `nonzero`, which cannot be captured. Where the indexed dimensions are adjacent, the shape of the
indices takes their place in the result's; else it comes first. Rules: TEN-2, TEN-7.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.errors import ArgumentError, DTypeError, IndexOutOfRangeError, ShapeError
from aotlite.ir.geometry import layout, sizes
from aotlite.ir.geometry.single_element import without_few
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.composite import composite
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.declare import common_device, pure
from aotlite.ir.ops.index.positions import (
    INDEX_DTYPES,
    adder,
    check_range,
    check_room,
    check_same_dtype,
    elements,
    flat_blocks,
    flat_copy,
    flat_part,
    numbered,
    place_of,
    spreads,
    without_leading_ones,
)
from aotlite.ir.ops.loops import Element, Loops, LoopTensor, Place, Position
from aotlite.ir.ops.views.forms import in_shape
from aotlite.ir.ops.views.view_ops import EXPAND
from aotlite.ir.scalar.expression import Scalar

Dims = tuple[int, ...]


# ------------------------------------------------------------------------------------- geometry
def _picked_layout(
    name: str, self: TensorMeta, indices: Sequence[TensorMeta], dims: Dims
) -> tuple[layout.Layout, int, tuple[int, ...]]:
    """(layout of self as PyTorch iterates over it, first indexed dimension, shape of the indices).

    The indexed dimensions have stride 0: there the indices move.
    """
    wrapped = sizes.wrap_dims(dims, len(self.shape), op=name)
    if not self.shape:
        raise ShapeError(f"{name}: the tensor has shape (), expected at least 1 dimension")
    if not dims or len(dims) != len(indices) or list(dims) != sorted(wrapped):
        raise ArgumentError(
            f"{name}: argument 'dims' is {dims}, expected one for each of {len(indices)} indices, "
            "in ascending order"
        )
    for index in indices:
        if index.dtype not in INDEX_DTYPES:
            raise DTypeError(f"{name}: an index has dtype {index.dtype}, expected int64 or int32")
    common = sizes.broadcast_shapes(*[index.shape for index in indices], op=name)
    for dim in dims:
        check_room(name, self.shape[dim], common)
    adjacent = dims == tuple(range(dims[0], dims[0] + len(dims)))
    begin = dims[0] if adjacent else 0
    kept = [dim for dim in range(len(self.shape)) if dim not in dims]
    shape, stride = ([each[dim] for dim in kept] for each in (self.shape, self.stride))
    shape[begin:begin], stride[begin:begin] = common, (0,) * len(common)
    return (tuple(shape), tuple(stride)), begin, common


def _index_layout(
    index: TensorMeta, common: tuple[int, ...], before: int, after: int
) -> layout.Layout:
    """The index as PyTorch iterates over it: broadcast, with sizes of 1 around."""
    own = sizes.same_shape(index.shape, common)
    stride = index.stride if own else EXPAND.rule(index, common)[0].stride
    stride = without_few(common, stride)
    if index.dtype is not dtypes.int64:
        stride = layout.clone_strides(common, stride)
    shape = (1,) * before + common + (1,) * after
    return shape, layout.view_strides(common, stride, shape) or (0,) * len(shape)


def _index_rule(self: TensorMeta, indices: tuple[TensorMeta, ...], dims: Dims) -> TensorMeta:
    source, begin, common = _picked_layout("index", self, indices, dims)
    shape = source[0]
    after = len(shape) - begin - len(common)
    others = [_index_layout(index, common, begin, after) for index in indices]
    device = common_device("index", [self, *indices])
    return tensor_meta(
        shape, layout.elementwise_strides([source, *others], shape), self.dtype, device
    )


def _key(
    xp: Namespace, name: str, a: Array, indices: Sequence[Array], dims: Dims
) -> tuple[Array, ...]:
    """The key for NumPy's indexing, after checking ranges. Raises IndexOutOfRangeError."""
    key: list[Any] = [slice(None)] * len(a.shape)
    for index, dim in zip(indices, dims, strict=True):
        check_range(xp, name, index, a.shape[dim], negative=True)
        key[dim] = index
    return tuple(key)


def _index_kernel(
    xp: Namespace, meta: TensorMeta, a: Array, indices: tuple[Array, ...], dims: Dims
) -> Array:
    if 0 in meta.shape:
        return xp.zeros(meta.shape, dtype=meta.dtype.numpy)
    return a[_key(xp, "index", a, indices, dims)]


def _parts_read(i: Sequence[Place], begin: int, count: int) -> tuple[Sequence[Place], list[Place]]:
    """Splits result positions: (those in the indices, those in the other dimensions)."""
    return i[begin : begin + count], [*i[:begin], *i[begin + count :]]


def _places(
    k: Loops, a: LoopTensor, indices: Sequence[LoopTensor], dims: Dims, begin: int
) -> Callable[[Sequence[Place]], list[Place]]:
    """A function from positions in the result to positions in `a`. Checks the indices."""
    count = max([index.ndim for index in indices])
    for index, dim in zip(indices, dims, strict=True):
        k.check_index(index, -a.shape[dim], a.shape[dim])

    def places(i: Sequence[Place]) -> list[Place]:
        inside, rest = _parts_read(i, begin, count)
        found = dict(zip([dim for dim in range(a.ndim) if dim not in dims], rest, strict=True))
        for index, dim in zip(indices, dims, strict=True):
            found[dim] = place_of(k, index.at(inside), a.shape[dim], negative=True)
        return [found[dim] for dim in range(a.ndim)]

    return places


def _index_loops(
    k: Loops, meta: TensorMeta, a: LoopTensor, indices: tuple[LoopTensor, ...], dims: Dims
) -> LoopTensor:
    _, begin, _ = _picked_layout("index", a.meta, [index.meta for index in indices], dims)
    if 0 in meta.shape:
        return k.new(meta)
    places = _places(k, a, indices, dims, begin)
    return k.map(meta, lambda *i: a[tuple(places(i))])


INDEX: PureOp = pure(
    "index(Tensor self, Tensor[] indices, int[] dims) -> Tensor",
    meta=_index_rule,
    kernel=_index_kernel,
    vjp={
        "self": lambda grad, self_meta, indices, dims: grad.new_zeros(self_meta.shape)._do(
            "index_put", tuple(indices), dims, grad, True
        )
    },
    cost=Cost.INDEXING,
    moves=("self",),
    loops=_index_loops,
)
"""The elements at integer `indices`, broadcast to each other, along the dimensions `dims`."""


# ---------------------------------------------------------------------------------------- writing
def _index_put_rule(
    self: TensorMeta,
    indices: tuple[TensorMeta, ...],
    dims: Dims,
    values: TensorMeta,
    accumulate: bool,
) -> TensorMeta:
    (shape, _), _, _ = _picked_layout("index_put", self, indices, dims)
    check_same_dtype("index_put", self, values, "values")
    common_device("index_put", [self, values, *indices])
    if not spreads(values.shape, shape):
        raise ShapeError(
            f"index_put: argument 'values' has shape {without_leading_ones(values.shape)}, "
            f"expected one that broadcasts to {shape}, that of what is indexed"
        )
    return self.with_stride(layout.clone_strides(self.shape, self.stride))


def _index_put_kernel(
    xp: Namespace,
    meta: TensorMeta,
    a: Array,
    indices: tuple[Array, ...],
    dims: Dims,
    values: Array,
    accumulate: bool,
) -> Array:
    result = xp.array(a, copy=True)
    if 0 in a.shape or any(0 in index.shape for index in indices):
        return result
    key = _key(xp, "index_put", a, indices, dims)
    if accumulate:
        xp.add.at(result, key, values)
    else:
        result[key] = values
    return result


def _rest(
    grad: Operand,
    indices: tuple[Operand, ...],
    dims: Dims,
    values_meta: TensorMeta,
    accumulate: bool,
) -> Operand:
    """The gradient of self: unchanged where values were accumulated, else 0 where written."""
    if accumulate:
        return grad
    nothing = grad.new_zeros(values_meta.shape)
    return grad._do("index_put", tuple(indices), dims, nothing, False)


def _index_put_loops(
    k: Loops,
    meta: TensorMeta,
    a: LoopTensor,
    indices: tuple[LoopTensor, ...],
    dims: Dims,
    values: LoopTensor,
    accumulate: bool,
) -> LoopTensor | None:
    metas = [index.meta for index in indices]
    (shape, _), begin, common = _picked_layout("index_put", a.meta, metas, dims)
    combine = adder(meta.dtype) if accumulate else None
    if accumulate and combine is None:
        return None
    result = k.map(meta, lambda *i: a[i])
    if 0 in a.shape or 0 in shape:
        return result
    places = _places(k, a, indices, dims, begin)
    ordered = range(begin, begin + len(common))
    return k.scatter(
        result, shape, lambda *i: (places(i), values.at(i)), ordered=ordered, combine=combine
    )


INDEX_PUT: PureOp = pure(
    "index_put(Tensor self, Tensor[] indices, int[] dims, Tensor values, bool accumulate=False) "
    "-> Tensor",
    meta=_index_put_rule,
    kernel=_index_put_kernel,
    vjp={
        "self": _rest,
        "values": lambda grad, indices, dims, values_meta: grad._do(
            "index", tuple(indices), dims
        ).sum_to(values_meta.shape),
    },
    cost=Cost.INDEXING,
    moves=("self", "values"),
    inplace=True,
    loops=_index_put_loops,
)
"""A copy with `values`, broadcast, written to the positions that `index` reads. Where positions
repeat, the last value is kept, or all are added (`accumulate`)."""


# ---------------------------------------------------------------------------------- index lists
def integer_indices(
    self: Operand, indices: Sequence[Operand | None], *, op: str = "index"
) -> tuple[tuple[Operand, ...], Dims]:
    """The integer indices and their dims of a list with masks, and None for a whole dimension.

    Raises IndexOutOfRangeError for more indices than dimensions, ShapeError for a mask that is not
    of the size of what it masks.
    """
    found: list[Operand] = []
    dims: list[int] = []
    dim = 0
    for index in indices:
        if index is None:
            dim += 1
            continue
        parts: tuple[Operand, ...] = (index,)
        if index.dtype in (dtypes.bool_, dtypes.uint8):
            parts = _places_of_mask(self, index, dim, op)
        found += parts
        dims += range(dim, dim + len(parts))
        dim += len(parts)
    _check_count(self, dim, op)
    return tuple(found), tuple(dims)


def check_indices(self: Operand, indices: Sequence[Operand | None], *, op: str) -> None:
    """Raises the errors of `integer_indices`, without reading the masks."""
    dim = 0
    for index in indices:
        if index is None or index.dtype not in (dtypes.bool_, dtypes.uint8):
            dim += 1
        else:
            _check_mask(self, index, dim, op)
            dim += len(index.shape)
    _check_count(self, dim, op)


def _check_count(self: Operand, count: int, op: str) -> None:
    if count > len(self.shape):
        raise IndexOutOfRangeError(
            f"{op}: {count} indices are given for shape {self.shape}, expected at most "
            f"{len(self.shape)}"
        )


def _places_of_mask(self: Operand, mask: Operand, dim: int, op: str) -> tuple[Operand, ...]:
    _check_mask(self, mask, dim, op)
    return tuple(mask._do("nonzero").unbind(1))


def _check_mask(self: Operand, mask: Operand, dim: int, op: str) -> None:
    expected = self.shape[dim : dim + len(mask.shape)]
    if mask.shape != expected:
        raise ShapeError(
            f"{op}: the mask has shape {mask.shape}, expected {expected}, that of what it masks"
        )


_INDEX_PUT = "(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor"


@composite("index_put" + _INDEX_PUT)
def index_put(
    self: Operand, indices: Sequence[Operand | None], values: Operand, accumulate: bool
) -> Operand:
    """A copy with `values` at indices, one for each dimension (None: all of it) or by masks."""
    found, dims = integer_indices(self, indices, op="index_put")
    if not dims:
        return self._do("copy", values)
    return self._do("index_put", found, dims, values, accumulate)


@composite("index_put_" + _INDEX_PUT)
def index_put_(
    self: Operand, indices: Sequence[Operand | None], values: Operand, accumulate: bool
) -> Operand:
    """Writes `values` at indices, one for each dimension (None: all of it) or by masks."""
    found, dims = integer_indices(self, indices, op="index_put_")
    if not dims:
        return self._do("copy_", values)
    target = self if accumulate else unrepeated(self, dims, found, values)
    target._do("index_put_", found, dims, values, accumulate)
    return self


def unrepeated(target: Operand, dims: Dims, indices: Sequence[Operand], values: Operand) -> Operand:
    """The destination without its expanded dimensions (stride 0), if one value is written to all.

    TEN-7 allows such a write through an expanded tensor.
    """
    metas = [index.meta for index in indices]
    (shape, _), begin, common = _picked_layout("index_put", target.meta, metas, dims)
    kept = [dim for dim in range(len(target.shape)) if dim not in dims]
    places = [*range(begin), *range(begin + len(common), len(shape))]
    given = (1,) * (len(shape) - len(values.shape)) + tuple(values.shape)
    for dim, place in zip(kept, places, strict=True):
        repeated = target.stride(dim) == 0
        if repeated and target.shape[dim] > 1:
            if given[place] == 1:
                target = target.narrow(dim, 0, 1)
    return target


# ------------------------------------------------------------------------------------- flat places
def _check_flat(name: str, self: TensorMeta, index: TensorMeta) -> None:
    if index.dtype is not dtypes.int64:
        raise DTypeError(f"{name}: the index has dtype {index.dtype}, expected {dtypes.int64}")
    if self.numel == 0 and index.numel != 0:
        raise IndexOutOfRangeError(
            f"{name}: the index has shape {index.shape}, expected an empty one for an empty tensor"
        )


def _take_rule(self: TensorMeta, index: TensorMeta) -> TensorMeta:
    _check_flat("take", self, index)
    device = common_device("take", [self, index])
    return tensor_meta(index.shape, None, self.dtype, device)


def _take_kernel(xp: Namespace, meta: TensorMeta, a: Array, index: Array) -> Array:
    if 0 in meta.shape:
        return xp.zeros(meta.shape, dtype=meta.dtype.numpy)
    check_range(xp, "take", index, a.size, negative=True)
    return elements(xp, a, index)


def _take_loops(k: Loops, meta: TensorMeta, a: LoopTensor, index: LoopTensor) -> LoopTensor:
    if 0 in meta.shape:
        return k.new(meta)
    size = a.meta.numel
    k.check_index(index, -size, size)

    def element(*i: Position) -> Scalar:
        source, at = numbered(k, a, place_of(k, index[i], size, negative=True))
        return source[at]

    return k.map(meta, element)


TAKE: PureOp = pure(
    "take(Tensor self, Tensor index) -> Tensor",
    meta=_take_rule,
    kernel=_take_kernel,
    # PyTorch saves self for its shape; a write to it before the backward raises there too.
    vjp={"self": lambda grad, self, index: grad.new_zeros(self.shape).put(index, grad, True)},
    cost=Cost.INDEXING,
    moves=("self",),
    loops=_take_loops,
)
"""The elements at positions in row-major order, in the shape of the index."""


def _put_rule(
    self: TensorMeta, index: TensorMeta, source: TensorMeta, accumulate: bool
) -> TensorMeta:
    _check_flat("put", self, index)
    check_same_dtype("put", self, source, "source")
    if index.numel != source.numel:
        raise ShapeError(
            f"put: argument 'source' has shape {source.shape}, expected {index.numel} elements, "
            "one for each index"
        )
    common_device("put", [self, index, source])
    return self.with_stride(layout.clone_strides(self.shape, self.stride))


def _put_kernel(
    xp: Namespace, meta: TensorMeta, a: Array, index: Array, source: Array, accumulate: bool
) -> Array:
    flat = flat_copy(xp, a)
    check_range(xp, "put", index, a.size, negative=True)
    for begin, end in flat_blocks(index.size):
        places, values = flat_part(xp, index, begin, end), flat_part(xp, source, begin, end)
        if accumulate:
            xp.add.at(flat, places, values)
        else:
            flat[places] = values
    return xp.reshape(flat, meta.shape)


def _put_self(grad: Operand, index: Operand, source: Operand, accumulate: bool) -> Operand:
    return grad if accumulate else grad.put(index, grad.new_zeros(source.shape), False)


def _put_loops(
    k: Loops,
    meta: TensorMeta,
    a: LoopTensor,
    index: LoopTensor,
    source: LoopTensor,
    accumulate: bool,
) -> LoopTensor | None:
    combine, size = adder(meta.dtype) if accumulate else None, meta.numel
    if accumulate and combine is None:
        return None
    result = k.map(meta, lambda *i: a[i])
    if 0 in index.shape:
        return result
    k.check_index(index, -size, size)

    # The source may have another shape: both are met in row-major order.
    def element(n: Position) -> tuple[Sequence[Place], Element]:
        indices, here = numbered(k, index, n)
        values, beside = numbered(k, source, n)
        at = place_of(k, indices[here], size, negative=True)
        return numbered(k, result, at)[1], values[beside]

    out = numbered(k, result, k.number(0, dtypes.int64))[0]
    k.scatter(out, (index.meta.numel,), element, ordered=(0,), combine=combine)
    return result


PUT: PureOp = pure(
    "put(Tensor self, Tensor index, Tensor source, bool accumulate=False) -> Tensor",
    meta=_put_rule,
    kernel=_put_kernel,
    # PyTorch saves source for its shape.
    vjp={
        "self": _put_self,
        "source": lambda grad, index, source: in_shape(grad.take(index), source.shape),
    },
    cost=Cost.INDEXING,
    inplace=True,
    loops=_put_loops,
)
"""A copy with the elements of `source` at positions in row-major order."""
