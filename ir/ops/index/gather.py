"""Ops that read and write at positions along a dimension: gather, take_along_dim, scatter_add."""

from __future__ import annotations

from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError
from aotlite.ir.geometry import sizes
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.composite import composite
from aotlite.ir.op.dims import along
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.declare import common_device, pure
from aotlite.ir.ops.index.positions import (
    adder,
    check_index_dtype,
    check_range,
    check_room,
    check_same_dtype,
    extents,
    flat_copy,
    line,
    places_in,
    put,
    read_at,
    values_at,
    write_at,
)
from aotlite.ir.ops.loops import Loops, LoopTensor, Position
from aotlite.ir.scalar.expression import Scalar


def check_window(
    name: str, self: TensorMeta, dim: int, index: TensorMeta, other: TensorMeta | None = None
) -> None:
    """Raises ShapeError unless the index is within self (except along `dim`) and within `other`."""
    dim = sizes.wrap_dim(dim, len(self.shape), op=name)
    mine, its = extents(self.shape), extents(index.shape)
    if index.numel == 0:
        return
    if len(mine) != len(its):
        raise ShapeError(
            f"{name}: the index has shape {index.shape}, expected {len(mine)} dimensions like self"
        )
    check_room(name, mine[dim], its)
    for i, (n, m) in enumerate(zip(mine, its, strict=True)):
        if i != dim and n < m:
            raise ShapeError(
                f"{name}: the index has shape {index.shape}, expected at most size {n} in "
                f"dimension {i}, as in self of shape {self.shape}"
            )
    if other is not None:
        _check_covered(name, index, other)


def _check_covered(name: str, index: TensorMeta, src: TensorMeta) -> None:
    its, theirs = extents(index.shape), extents(src.shape)
    small = len(its) == len(theirs) and all(n >= m for m, n in zip(its, theirs, strict=True))
    if not small:
        raise ShapeError(
            f"{name}: argument 'src' has shape {src.shape}, expected at least the index's shape "
            f"{index.shape} in each dimension"
        )


def _gather_rule(self: TensorMeta, dim: int, index: TensorMeta) -> TensorMeta:
    check_index_dtype("gather", index)
    check_window("gather", self, dim, index)
    device = common_device("gather", [self, index])
    return tensor_meta(index.shape, None, self.dtype, device)


def _gather_kernel(xp: Namespace, meta: TensorMeta, a: Array, dim: int, index: Array) -> Array:
    if 0 in index.shape:
        return xp.zeros(meta.shape, dtype=meta.dtype.numpy)
    source = xp.reshape(a, extents(a.shape))
    lookup = xp.reshape(index, extents(index.shape))
    dim %= len(source.shape)
    check_range(xp, "gather", lookup, source.shape[dim])
    window = tuple(slice(0, None if i == dim else n) for i, n in enumerate(lookup.shape))
    return xp.reshape(xp.take_along_axis(source[window], lookup, axis=dim), meta.shape)


def _gather_loops(
    k: Loops, meta: TensorMeta, a: LoopTensor, dim: int, index: LoopTensor
) -> LoopTensor:
    lookup = line(index)
    return read_at(k, meta, a, dim, index, lambda at: lookup[at])


GATHER: PureOp = pure(
    "gather(Tensor self, int dim, Tensor index) -> Tensor",
    meta=_gather_rule,
    kernel=_gather_kernel,
    # PyTorch saves self for its shape; a write to it before the backward raises there too.
    vjp={
        "self": lambda grad, self, dim, index: grad.new_zeros(self.shape).scatter_add(
            dim, index, grad
        )
    },
    cost=Cost.INDEXING,
    moves=("self",),
    dims=along("dim"),
    linear=(("self",),),
    loops=_gather_loops,
)


@composite("gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor")
def gather(self: Operand, dim: int, index: Operand, sparse_grad: bool) -> Operand:
    """The elements at positions `index` along `dim`, in the index's shape."""
    if sparse_grad:
        raise ArgumentError("gather: argument 'sparse_grad' is True, expected False")
    return self._do("gather", dim, index)


@composite("take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor")
def take_along_dim(self: Operand, indices: Operand, dim: int | None) -> Operand:
    """`gather` whose index and self are broadcast to each other, except along `dim`, where the
    index counts around.
    """
    if indices.dtype is not dtypes.int64:
        raise DTypeError(
            f"take_along_dim: argument 'indices' has dtype {indices.dtype}, expected {dtypes.int64}"
        )
    if dim is None:
        flat = self.reshape((sizes.numel(self.shape),))
        return flat.gather(0, indices.reshape((sizes.numel(indices.shape),)))
    if len(self.shape) != len(indices.shape):
        raise ShapeError(
            f"take_along_dim: argument 'indices' has shape {indices.shape}, expected "
            f"{len(self.shape)} dimensions like self"
        )
    dim = sizes.wrap_dim(dim, len(self.shape), op="take_along_dim")
    mine, its = list(self.shape), list(indices.shape)
    n, m = mine[dim], its[dim]
    mine[dim] = its[dim] = 1
    common = list(sizes.broadcast_shapes(tuple(mine), tuple(its), op="take_along_dim"))
    wide, places = [*common[:dim], n, *common[dim + 1 :]], [*common[:dim], m, *common[dim + 1 :]]
    return self.expand(wide).gather(dim, indices.remainder(n).expand(places))


def _scatter_add_rule(self: TensorMeta, dim: int, index: TensorMeta, src: TensorMeta) -> TensorMeta:
    check_index_dtype("scatter_add", index)
    check_same_dtype("scatter_add", self, src, "src")
    check_window("scatter_add", self, dim, index, src)
    device = common_device("scatter_add", [self, index, src])
    return tensor_meta(self.shape, None, self.dtype, device)


def _scatter_add_kernel(
    xp: Namespace, meta: TensorMeta, a: Array, dim: int, index: Array, src: Array
) -> Array:
    if 0 in index.shape:
        return a
    flat = flat_copy(xp, a)
    for part, places in places_in(xp, "scatter_add", a, dim, index):
        xp.add.at(flat, places, values_at(xp, index, src, part))
    return xp.reshape(flat, meta.shape)


def _scatter_add_loops(
    k: Loops, meta: TensorMeta, a: LoopTensor, dim: int, index: LoopTensor, src: LoopTensor
) -> LoopTensor | None:
    if 0 in index.shape:
        return k.map(meta, lambda *i: a[i])
    lookup, values = line(index), line(src)
    dim %= lookup.ndim
    if lookup.shape[dim] == 1:
        k.check_index(index, 0, extents(meta.shape)[dim])
        return _added_at_one(k, meta, a, (dim, lookup, values))
    combine = adder(meta.dtype)
    if combine is None:
        return None
    result = k.map(meta, lambda *i: a[i])
    return write_at(k, result, (dim, index), lambda i: values[i], combine)


def _added_at_one(
    k: Loops, meta: TensorMeta, a: LoopTensor, added_: tuple[int, LoopTensor, LoopTensor]
) -> LoopTensor:
    """For an index of one position a line: each element compares its own, so that it fuses."""
    dim, lookup, values = added_

    def element(*i: Position) -> Scalar:
        own = a[i]
        at: tuple[Any, ...] = i or (0,)
        first = put(at, dim, 0)
        own_dims = [d for d in range(len(at)) if d != dim]
        spanned = k.all(*[at[d] < lookup.shape[d] for d in own_dims])
        hit = k.make("eq", k.cast(lookup[first], dtypes.int64), k.position(at[dim]))
        both = k.cast(k.wide(own) + k.wide(values[first]), meta.dtype)
        return k.where(spanned, k.where(hit, both, own), own)

    return k.map(meta, element)


SCATTER_ADD: PureOp = pure(
    "scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor",
    meta=_scatter_add_rule,
    kernel=_scatter_add_kernel,
    vjp={
        "self": lambda grad: grad,
        "src": lambda grad, dim, index, src_meta: padded(grad.gather(dim, index), src_meta.shape),
    },
    cost=Cost.INDEXING,
    dims=along("dim"),
    linear=(("self", "src"),),
    inplace=True,
    loops=_scatter_add_loops,
)


def padded(grad: Operand, shape: tuple[int, ...]) -> Operand:
    """A gradient padded with zeros to `src`'s shape, for the part that the index does not reach."""
    if len(grad.shape) != len(shape):
        if grad.numel() == 0:  # an empty index of any rank: nothing was read
            return grad.new_zeros(shape)
        if not shape:  # a tensor without dimensions counts as one of size 1
            return grad.view(shape)
        grad = grad.unsqueeze(0)
    for dim, (have, wanted) in enumerate(zip(grad.shape, shape, strict=True)):
        if have != wanted:
            hole = grad.new_zeros((*grad.shape[:dim], wanted, *grad.shape[dim + 1 :]))
            grad = hole.slice_scatter(grad, dim, 0, have, 1)
    return grad
