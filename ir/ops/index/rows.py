"""Ops that move whole slices by position: index_select, index_add, index_copy, index_fill."""

from __future__ import annotations

from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError
from aotlite.ir.geometry import layout, sizes
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.composite import composite
from aotlite.ir.op.dims import Args, Dims, Metas, along, numbered
from aotlite.ir.op.operand import Operand
from aotlite.ir.op.parameter_types import Number
from aotlite.ir.ops.declare import common_device, pure
from aotlite.ir.ops.index.positions import (
    adder,
    check_index_dtype,
    check_range,
    check_room,
    check_same_dtype,
    extents,
    fits,
    flat_copy,
    line,
    placed,
    read_at,
    replaced,
    taken,
    write_at,
)
from aotlite.ir.ops.index.scatter import REDUCTIONS
from aotlite.ir.ops.loops import Element, Loops, LoopTensor, Place
from aotlite.ir.ops.precision import number_in, whole
from aotlite.ir.ops.views.forms import in_shape
from aotlite.ir.scalar.expression import Scalar


def _check_rows(name: str, self: TensorMeta, dim: int, index: TensorMeta) -> int:
    check_index_dtype(name, index)
    if len(index.shape) > 1:
        raise ShapeError(f"{name}: the index has shape {index.shape}, expected 1 dimension")
    dim = sizes.wrap_dim(dim, len(self.shape), op=name)
    check_room(name, extents(self.shape)[dim], index.shape)
    return dim


def _index_select_rule(self: TensorMeta, dim: int, index: TensorMeta) -> TensorMeta:
    dim = _check_rows("index_select", self, dim, index)
    shape = replaced(self.shape, dim, index.numel) if self.shape else ()
    if not self.shape and index.numel != 1:
        raise ShapeError(
            f"index_select: the index has shape {index.shape}, expected 1 element for a 0-d tensor"
        )
    return tensor_meta(shape, None, self.dtype, common_device("index_select", [self, index]))


def _index_select_kernel(
    xp: Namespace, meta: TensorMeta, a: Array, dim: int, index: Array
) -> Array:
    source = a if a.shape else xp.reshape(a, (1,))
    check_range(xp, "index_select", index, source.shape[dim])
    rows = taken(xp, source, index if index.shape else xp.reshape(index, (1,)), dim)
    return rows if a.shape else xp.reshape(rows, meta.shape)


def _index_select_loops(
    k: Loops, meta: TensorMeta, a: LoopTensor, dim: int, index: LoopTensor
) -> LoopTensor:
    dim %= len(extents(a.shape))
    lookup = line(index)
    return read_at(k, meta, a, dim, index, lambda at: lookup[at[dim]])


INDEX_SELECT: PureOp = pure(
    "index_select(Tensor self, int dim, Tensor index) -> Tensor",
    meta=_index_select_rule,
    kernel=_index_select_kernel,
    vjp={
        "self": lambda grad, self_meta, dim, index: grad.new_zeros(self_meta.shape).index_add(
            dim, index, grad
        )
    },
    cost=Cost.INDEXING,
    moves=("self",),
    dims=along("dim", whole=("index",)),
    linear=(("self",),),
    loops=_index_select_loops,
)
"""Whole slices by position along one dimension."""


def _embedding_rule(
    weight: TensorMeta, indices: TensorMeta, padding_idx: int, scale_grad_by_freq: bool
) -> TensorMeta:
    check_index_dtype("embedding", indices)
    if len(weight.shape) != 2:
        raise ShapeError(
            f"embedding: argument 'weight' has shape {weight.shape}, expected 2 dimensions"
        )
    device = common_device("embedding", [weight, indices])
    return tensor_meta((*indices.shape, weight.shape[1]), None, weight.dtype, device)


def _embedding_kernel(
    xp: Namespace, meta: TensorMeta, weight: Array, indices: Array, *rest: object
) -> Array:
    check_range(xp, "embedding", indices, weight.shape[0])
    return taken(xp, weight, indices, 0)


def _embedding_vjp(
    grad: Operand,
    weight_meta: TensorMeta,
    indices: Operand,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> Operand:
    rows, width = in_shape(indices, (indices.numel(),)), weight_meta.shape[1]
    grad = in_shape(grad, (rows.numel(), width))
    if padding_idx >= 0:
        grad = (rows == padding_idx).unsqueeze(-1).where(0, grad)
    if scale_grad_by_freq:
        found = grad.new_zeros(weight_meta.shape[:1]).index_add(0, rows, grad.new_ones(rows.shape))
        grad = grad / found.index_select(0, rows).unsqueeze(-1)
    return grad.new_zeros(weight_meta.shape).index_add(0, rows, grad)


def _embedding_dims(args: Args, results: Metas) -> Dims:
    """Positions and columns can be sharded; rows of the table cannot, as any may be read."""
    places = numbered(args["indices"])
    return Dims({"weight": (None, "column"), "indices": places}, ((*places, "column"),))


# Beside a kernel: as one, it takes 3.4 times as long for few rows, as it asks for the meta of
# `index_select`, of which an index out of range would speak then.
def _embedding_expanded(
    weight: Operand, indices: Operand, padding_idx: int = -1, scale_grad_by_freq: bool = False
) -> Operand:
    """The lookup; the last two parameters only change the gradient."""
    rows = weight.index_select(0, in_shape(indices, (sizes.numel(indices.shape),)))
    return rows.view((*indices.shape, *weight.shape[1:]))


EMBEDDING: PureOp = pure(
    "embedding(Tensor weight, Tensor indices, int padding_idx=-1, bool scale_grad_by_freq=False) "
    "-> Tensor",
    meta=_embedding_rule,
    kernel=_embedding_kernel,
    vjp={"weight": _embedding_vjp},
    cost=Cost.INDEXING,
    dims=_embedding_dims,
    linear=(("weight",),),
    expands=_embedding_expanded,
)
"""(n, d) (*,) -> (*, d): rows by position. The row `padding_idx` (-1: none) gets no gradient;
`scale_grad_by_freq` divides a row's gradient by the number of times that it occurs."""


def _index_add_rule(
    self: TensorMeta, dim: int, index: TensorMeta, source: TensorMeta, alpha: type
) -> TensorMeta:
    dim = _check_rows("index_add", self, dim, index)
    check_same_dtype("index_add", self, source, "source")
    expected = replaced(extents(self.shape), dim, index.numel)
    if extents(source.shape) != expected or len(source.shape) != len(self.shape):
        raise ShapeError(
            f"index_add: argument 'source' has shape {source.shape}, expected {expected}"
        )
    device = common_device("index_add", [self, index, source])
    return tensor_meta(self.shape, None, self.dtype, device)


def _index_add_dims(args: Args, results: Metas) -> Dims:
    """Rows of the source can be sharded: the sums of the shards are then added."""
    meta = args["self"]
    if not meta.shape or len(args["source"].shape) != len(meta.shape):
        return Dims({}, ((None,) * len(meta.shape),))
    dim = args["dim"] % len(meta.shape)
    kept = numbered(meta, (dim,))
    source = tuple(["rows" if i == dim else i for i in range(len(meta.shape))])
    index = ("rows",) * len(args["index"].shape)
    found = {"self": kept, "index": index, "source": source}
    return Dims(found, (kept,), joins="sum", added=("self",))


def _index_add_kernel(
    xp: Namespace, meta: TensorMeta, a: Array, dim: int, index: Array, source: Array, alpha: Number
) -> Array:
    if 0 in source.shape:
        return a
    shape = extents(a.shape)
    dim %= len(shape)
    check_range(xp, "index_add", index, shape[dim])
    values = xp.reshape(source, extents(source.shape))
    column = xp.reshape(index, tuple([-1 if i == dim else 1 for i in range(len(shape))]))
    lookup = xp.broadcast_to(column, values.shape)
    flat, factor = flat_copy(xp, a), xp.astype(xp.asarray(alpha), meta.dtype.numpy)
    for part, places in placed(xp, lookup, dim, shape):
        given = values[part] if alpha == 1 else values[part] * factor
        xp.add.at(flat, places, xp.reshape(given, (-1,)))
    return xp.reshape(flat, meta.shape)


def _index_add_source(
    grad: Operand, dim: int, index: Operand, source: Operand, alpha: Number
) -> Operand:
    rows = grad.index_select(dim, index)
    if rows.shape != source.shape:  # one element in a 0-d and in a 1-d tensor
        rows = in_shape(rows, source.shape)
    return rows if alpha == 1 else rows * alpha


def _index_add_loops(
    k: Loops,
    meta: TensorMeta,
    a: LoopTensor,
    dim: int,
    index: LoopTensor,
    source: LoopTensor,
    alpha: Number,
) -> LoopTensor | None:
    combine, values = adder(meta.dtype), line(source)
    if combine is None or meta.dtype is dtypes.bool_ and alpha != 1:
        return None
    if type(alpha) is float and meta.dtype.kind == dtypes.INTEGER:
        alpha = whole(alpha)

    def value(i: tuple[Place, ...]) -> Scalar:
        if alpha == 1:
            return values[i]
        return values[i] * k.number(number_in(meta.dtype, alpha), meta.dtype)

    result = k.map(meta, lambda *i: a[i])
    return write_at(k, result, (dim, index), value, combine, rows=True)


INDEX_ADD: PureOp = pure(
    "index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor",
    meta=_index_add_rule,
    kernel=_index_add_kernel,
    # PyTorch saves source for its shape.
    vjp={"self": lambda grad: grad, "source": _index_add_source},
    cost=Cost.INDEXING,
    dims=_index_add_dims,
    inplace=True,
    loops=_index_add_loops,
)


# ------------------------------------------------------------------------------- writing slices
def _index_copy_rule(
    self: TensorMeta, dim: int, index: TensorMeta, source: TensorMeta
) -> TensorMeta:
    name = "index_copy"
    _check_rows(name, self, dim, index)
    if index.dtype is not dtypes.int64:
        raise DTypeError(f"{name}: the index has dtype {index.dtype}, expected {dtypes.int64}")
    check_same_dtype(name, self, source, "source")
    mine = extents(self.shape)
    dim = sizes.wrap_dim(dim, len(mine), op=name)
    expected = replaced(mine, dim, index.numel)
    if not sizes.same_shape(extents(source.shape), expected):
        raise ShapeError(f"{name}: argument 'source' has shape {source.shape}, expected {expected}")
    return tensor_meta(self.shape, None, self.dtype, common_device(name, [self, index, source]))


def _row_key(
    xp: Namespace, name: str, shape: tuple[int, ...], dim: int, index: Array
) -> tuple[slice | Array, ...]:
    """The key for slices of a dimension. Raises IndexOutOfRangeError."""
    dim %= len(shape)
    check_range(xp, name, index, shape[dim], negative=name == "index_fill")
    return (*[slice(None)] * dim, xp.reshape(index, (-1,)))


def _index_copy_kernel(
    xp: Namespace, meta: TensorMeta, a: Array, dim: int, index: Array, source: Array
) -> Array:
    result = xp.array(xp.reshape(a, extents(a.shape)), copy=True)
    if index.size:
        key = _row_key(xp, "index_copy", result.shape, dim, index)
        result[key] = xp.reshape(source, extents(source.shape))
    return xp.reshape(result, meta.shape)


def _index_copy_source(grad: Operand, dim: int, index: Operand, source: Operand) -> Operand:
    return in_shape(grad.index_select(dim, index), source.shape)


def _index_copy_loops(
    k: Loops, meta: TensorMeta, a: LoopTensor, dim: int, index: LoopTensor, source: LoopTensor
) -> LoopTensor:
    result, values = k.map(meta, lambda *i: a[i]), line(source)
    return write_at(k, result, (dim, index), lambda i: values[i], rows=True)


INDEX_COPY: PureOp = pure(
    "index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor",
    meta=_index_copy_rule,
    kernel=_index_copy_kernel,
    # PyTorch saves source for its shape.
    vjp={
        "self": lambda grad, dim, index: grad.index_fill(dim, index, 0),
        "source": _index_copy_source,
    },
    cost=Cost.INDEXING,
    moves=("self", "source"),
    dims=along("dim", whole=("index",)),
    inplace=True,
    loops=_index_copy_loops,
)
"""A copy with the slices of `source` at positions of a dimension; where these repeat, the last."""


def _index_fill_rule(self: TensorMeta, dim: int, index: TensorMeta, value: Any) -> TensorMeta:
    name = "index_fill"
    _check_rows(name, self, dim, index)
    if index.dtype is not dtypes.int64:
        raise DTypeError(f"{name}: the index has dtype {index.dtype}, expected {dtypes.int64}")
    if type(value) is TensorMeta and value.shape:
        raise ShapeError(f"{name}: the value has shape {value.shape}, expected 0 dimensions")
    dtype = value.dtype if type(value) is TensorMeta else dtypes.dtype_of_scalar(value())
    if dtype.is_complex and not self.dtype.is_complex:
        raise DTypeError(f"{name}: the value has dtype {dtype}, expected a real one")
    common_device(name, [self, index])
    return self.with_stride(layout.clone_strides(self.shape, self.stride))


def _index_fill_kernel(
    xp: Namespace, meta: TensorMeta, a: Array, dim: int, index: Array, value: Array | Number
) -> Array:
    result = xp.array(xp.reshape(a, extents(a.shape)), copy=True)
    if index.size:
        key = _row_key(xp, "index_fill", result.shape, dim, index)
        result[key] = xp.astype(xp.asarray(value), meta.dtype.numpy)
    return xp.reshape(result, meta.shape)


def _index_fill_loops(
    k: Loops,
    meta: TensorMeta,
    a: LoopTensor,
    dim: int,
    index: LoopTensor,
    value: Any,
) -> LoopTensor | None:
    if not hasattr(value, "meta") and not fits(meta.dtype, value):
        return None

    def new(i: tuple[Place, ...]) -> Element:
        return k.cast(value[()], meta.dtype) if hasattr(value, "meta") else value

    result = k.map(meta, lambda *i: a[i])
    return write_at(k, result, (dim, index), new, rows=True, negative=True)


INDEX_FILL: PureOp = pure(
    "index_fill(Tensor self, int dim, Tensor index, Tensor|Scalar value) -> Tensor",
    meta=_index_fill_rule,
    kernel=_index_fill_kernel,
    vjp={
        "self": lambda grad, dim, index: grad.index_fill(dim, index, 0),
        "value": lambda grad, dim, index, value_meta: (
            _rows_at(grad, dim, index).sum().to_kind(value_meta.dtype)
        ),
    },
    cost=Cost.INDEXING,
    moves=("self", "value"),
    dims=along("dim", whole=("index", "value")),
    inplace=True,
    loops=_index_fill_loops,
)
"""A copy with one value in the slices at positions of a dimension."""


def _rows_at(grad: Operand, dim: int, index: Operand) -> Operand:
    """The gradient's slices that were filled, each once, as indices may repeat or be negative."""
    filled = grad.new_zeros(grad.shape, dtype=dtypes.bool_).index_fill(dim, index, True)
    return filled.where(grad, 0)


# ---------------------------------------------------------------------------------- reducing
@composite(
    "index_reduce(Tensor self, int dim, Tensor index, Tensor source, str reduce, *, "
    "bool include_self=True) -> Tensor",
    inplace="Reduces the slices at positions of a dimension with those of `source`.",
)
def index_reduce(
    self: Operand,
    dim: int,
    index: Operand,
    source: Operand,
    reduce: str,
    include_self: bool,
    end: str = "",
) -> Operand:
    """A copy in which slices of `source` are reduced with those at positions of a dimension."""
    rows = _reduced_rows(self, dim, index, source, reduce)
    return self._do("scatter_reduce" + end, dim, rows, source, reduce, include_self=include_self)


def _reduced_rows(self: Operand, dim: int, index: Operand, source: Operand, reduce: str) -> Operand:
    """The index of `scatter_reduce`: the same position for all of a slice."""
    if reduce == "sum" or reduce not in REDUCTIONS:  # a sum is `index_add`
        raise ArgumentError(
            f"index_reduce: argument 'reduce' is {reduce!r}, expected prod, mean, amax or amin"
        )
    dim = _check_rows("index_reduce", self.meta, dim, index.meta)
    expected = replaced(extents(self.shape), dim, index.numel())
    if not sizes.same_shape(extents(source.shape), expected):
        raise ShapeError(
            f"index_reduce: argument 'source' has shape {source.shape}, expected {expected}"
        )
    if not self.shape:
        return index.reshape(source.shape)
    column = [index.numel() if i == dim else 1 for i in range(len(self.shape))]
    return index.reshape(column).expand(source.shape)
