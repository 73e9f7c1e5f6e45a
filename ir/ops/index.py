"""Ops that move elements by position: gather, scatter_add, index_select, embedding, index_add, cat,
stack, flip, roll, tril, triu. An index out of range raises before anything is written."""

from __future__ import annotations

from typing import Any

from aotlite.ir import dtypes, layout, sizes
from aotlite.ir.errors import ArgumentError, DTypeError, IndexOutOfRangeError, ShapeError
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.ops.declare import common_device, pure
from aotlite.ir.ops.memory_format import agreed_strides
from aotlite.ir.ops.precision import cast

_INDEX = (dtypes.int64, dtypes.int32)


# ------------------------------------------------------------------------------ what all check
def _check_index_dtype(name: str, index: TensorMeta) -> None:
    if index.dtype not in _INDEX:
        raise DTypeError(f"{name}: the index has dtype {index.dtype}, expected int64 or int32")


def _check_same_dtype(name: str, self: TensorMeta, other: TensorMeta, argument: str) -> None:
    if self.dtype is not other.dtype:
        raise DTypeError(
            f"{name}: argument '{argument}' has dtype {other.dtype}, expected {self.dtype}"
        )


def _check_range(xp: Any, name: str, index: Any, size: int) -> None:
    """Raises IndexOutOfRangeError naming the first index that is negative or not below `size`."""
    flat = xp.reshape(index, (-1,))
    wrong = xp.logical_or(flat < 0, flat >= size)
    if bool(xp.any(wrong)):
        found = flat[xp.argmax(wrong)].tolist()
        raise IndexOutOfRangeError(
            f"{name}: an index is {found}, expected 0 <= index < {size}, the size of the dimension"
        )


def _extents(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape with a 0-d tensor counted as one of size 1, as index ops see it."""
    return shape or (1,)


# --------------------------------------------------------------------------- gather and scatter
def _check_window(
    name: str, self: TensorMeta, dim: int, index: TensorMeta, other: TensorMeta | None = None
) -> None:
    """The index spans no more than self (except along `dim`), and no more than `other`."""
    dim = sizes.wrap_dim(dim, len(self.shape), op=name)
    mine, its = _extents(self.shape), _extents(index.shape)
    if sizes.known_equal(index.numel, 0):
        return
    if len(mine) != len(its):
        raise ShapeError(
            f"{name}: the index has shape {index.shape}, expected {len(mine)} dimensions like self"
        )
    for i, (n, m) in enumerate(zip(mine, its, strict=True)):
        if i != dim and sizes.known_less(n, m):
            raise ShapeError(
                f"{name}: the index has shape {index.shape}, expected at most size {n} in "
                f"dimension {i}, as in self of shape {self.shape}"
            )
    if other is not None:
        _check_covered(name, index, other)


def _check_covered(name: str, index: TensorMeta, src: TensorMeta) -> None:
    its, theirs = _extents(index.shape), _extents(src.shape)
    small = len(its) == len(theirs) and all(
        not sizes.known_less(n, m) for m, n in zip(its, theirs, strict=True)
    )
    if not small:
        raise ShapeError(
            f"{name}: argument 'src' has shape {src.shape}, expected at least the index's shape "
            f"{index.shape} in each dimension"
        )


def _gather_rule(self: TensorMeta, dim: int, index: TensorMeta) -> TensorMeta:
    _check_index_dtype("gather", index)
    _check_window("gather", self, dim, index)
    device = common_device("gather", [self, index])
    return tensor_meta(index.shape, None, self.dtype, device)


def _gather_kernel(xp: Any, meta: TensorMeta, a: Any, dim: int, index: Any) -> Any:
    if 0 in index.shape:
        return xp.zeros(meta.shape, dtype=meta.dtype.numpy)
    source = xp.reshape(a, _extents(a.shape))
    lookup = xp.reshape(index, _extents(index.shape))
    dim %= len(source.shape)
    _check_range(xp, "gather", lookup, source.shape[dim])
    window = tuple(slice(0, None if i == dim else n) for i, n in enumerate(lookup.shape))
    return xp.reshape(xp.take_along_axis(source[window], lookup, axis=dim), meta.shape)


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
)


def _scatter_add_rule(self: TensorMeta, dim: int, index: TensorMeta, src: TensorMeta) -> TensorMeta:
    _check_index_dtype("scatter_add", index)
    _check_same_dtype("scatter_add", self, src, "src")
    _check_window("scatter_add", self, dim, index, src)
    device = common_device("scatter_add", [self, index, src])
    return tensor_meta(self.shape, None, self.dtype, device)


def _addresses(xp: Any, index: Any, dim: int, shape: tuple[int, ...]) -> Any:
    """Row-major position in `shape` of each element's place: its own, but `index` along `dim`."""
    total = xp.zeros((), dtype=xp.int64)
    for i, step in enumerate(layout.contiguous_strides(shape)):
        if i == dim:
            place = xp.astype(index, xp.int64)
        else:
            ones = [1] * len(shape)
            ones[i] = index.shape[i]
            place = xp.reshape(xp.arange(index.shape[i], dtype=xp.int64), tuple(ones))
        total = total + place * step
    return total


def _added(xp: Any, meta: TensorMeta, a: Any, places: Any, values: Any) -> Any:
    """A copy of `a` with `values` added in at row-major positions; a position may come often."""
    # `+ 0` would turn -0.0 into 0.0: a copy has to be asked for.
    flat = xp.array(xp.reshape(a, (-1,)), copy=True)
    xp.add.at(flat, xp.reshape(places, (-1,)), xp.reshape(values, (-1,)))
    return xp.reshape(flat, meta.shape)


def _scatter_add_kernel(xp: Any, meta: TensorMeta, a: Any, dim: int, index: Any, src: Any) -> Any:
    if 0 in index.shape:
        return a
    shape, lookup = _extents(a.shape), xp.reshape(index, _extents(index.shape))
    dim %= len(shape)
    _check_range(xp, "scatter_add", lookup, shape[dim])
    window = tuple(slice(0, n) for n in lookup.shape)
    values = xp.reshape(src, _extents(src.shape))[window]
    return _added(xp, meta, a, _addresses(xp, lookup, dim, shape), values)


SCATTER_ADD: PureOp = pure(
    "scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor",
    meta=_scatter_add_rule,
    kernel=_scatter_add_kernel,
    vjp={
        "self": lambda grad: grad,
        "src": lambda grad, dim, index, src_meta: _padded(grad.gather(dim, index), src_meta.shape),
    },
    cost=Cost.INDEXING,
    inplace=True,
)


def _padded(grad: Any, shape: tuple[int, ...]) -> Any:
    """A gradient with zeros behind it in each dimension: what the index does not reach of `src`."""
    if len(grad.shape) != len(shape):  # an empty index of any rank: nothing was read
        return grad.new_zeros(shape)
    for dim, (have, wanted) in enumerate(zip(grad.shape, shape, strict=True)):
        if have != wanted:
            hole = grad.new_zeros((*grad.shape[:dim], wanted, *grad.shape[dim + 1 :]))
            grad = hole.slice_scatter(grad, dim, 0, have, 1)
    return grad


# ----------------------------------------------------------------------------- rows by position
def _check_rows(name: str, self: TensorMeta, dim: int, index: TensorMeta) -> int:
    _check_index_dtype(name, index)
    if len(index.shape) > 1:
        raise ShapeError(f"{name}: the index has shape {index.shape}, expected 1 dimension")
    return sizes.wrap_dim(dim, len(self.shape), op=name)


def _replaced(shape: tuple[int, ...], dim: int, size: int) -> tuple[int, ...]:
    return (*shape[:dim], size, *shape[dim + 1 :])


def _index_select_rule(self: TensorMeta, dim: int, index: TensorMeta) -> TensorMeta:
    dim = _check_rows("index_select", self, dim, index)
    shape = _replaced(self.shape, dim, index.numel) if self.shape else ()
    if not self.shape and index.numel != 1:
        raise ShapeError(
            f"index_select: the index has shape {index.shape}, expected 1 element for a 0-d tensor"
        )
    return tensor_meta(shape, None, self.dtype, common_device("index_select", [self, index]))


def _index_select_kernel(xp: Any, meta: TensorMeta, a: Any, dim: int, index: Any) -> Any:
    source = xp.reshape(a, _extents(a.shape))
    _check_range(xp, "index_select", index, source.shape[dim])
    taken = xp.take(source, xp.reshape(index, (-1,)), axis=dim)
    return xp.reshape(taken, meta.shape)


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
)
"""Whole slices by position along one dimension."""


def _embedding_rule(
    weight: TensorMeta, indices: TensorMeta, padding_idx: int, scale_grad_by_freq: bool
) -> TensorMeta:
    _check_index_dtype("embedding", indices)
    if len(weight.shape) != 2:
        raise ShapeError(
            f"embedding: argument 'weight' has shape {weight.shape}, expected 2 dimensions"
        )
    device = common_device("embedding", [weight, indices])
    return tensor_meta((*indices.shape, weight.shape[1]), None, weight.dtype, device)


def _embedding_kernel(xp: Any, meta: TensorMeta, weight: Any, indices: Any, *rest: Any) -> Any:
    _check_range(xp, "embedding", indices, weight.shape[0])
    return xp.take(weight, indices, axis=0)


def _embedding_vjp(
    grad: Any, weight_meta: TensorMeta, indices: Any, padding_idx: int, scale_grad_by_freq: bool
) -> Any:
    rows, width = indices.reshape(indices.numel()), weight_meta.shape[1]
    grad = grad.reshape(rows.numel(), width)
    if padding_idx >= 0:
        grad = (rows == padding_idx).unsqueeze(-1).where(0, grad)
    if scale_grad_by_freq:
        found = grad.new_zeros(weight_meta.shape[:1]).index_add(0, rows, grad.new_ones(rows.shape))
        grad = grad / found.index_select(0, rows).unsqueeze(-1)
    return grad.new_zeros(weight_meta.shape).index_add(0, rows, grad)


EMBEDDING: PureOp = pure(
    "embedding(Tensor weight, Tensor indices, int padding_idx=-1, bool scale_grad_by_freq=False) "
    "-> Tensor",
    meta=_embedding_rule,
    kernel=_embedding_kernel,
    vjp={"weight": _embedding_vjp},
    cost=Cost.INDEXING,
)
"""(n, d) (*,) -> (*, d): rows by position. The row `padding_idx` (-1: none) gets no gradient;
`scale_grad_by_freq` divides a row's gradient by how often it was taken."""


def _index_add_rule(
    self: TensorMeta, dim: int, index: TensorMeta, source: TensorMeta, alpha: type
) -> TensorMeta:
    dim = _check_rows("index_add", self, dim, index)
    _check_same_dtype("index_add", self, source, "source")
    expected = _replaced(_extents(self.shape), dim, index.numel)
    if _extents(source.shape) != expected or len(source.shape) != len(self.shape):
        raise ShapeError(
            f"index_add: argument 'source' has shape {source.shape}, expected {expected}"
        )
    device = common_device("index_add", [self, index, source])
    return tensor_meta(self.shape, None, self.dtype, device)


def _index_add_kernel(
    xp: Any, meta: TensorMeta, a: Any, dim: int, index: Any, source: Any, alpha: Any
) -> Any:
    if 0 in source.shape:
        return a
    shape = _extents(a.shape)
    dim %= len(shape)
    _check_range(xp, "index_add", index, shape[dim])
    values = xp.reshape(source, _extents(source.shape))
    column = xp.reshape(index, tuple([-1 if i == dim else 1 for i in range(len(shape))]))
    lookup = xp.broadcast_to(column, values.shape)
    if alpha != 1:
        values = xp.astype(values * alpha, meta.dtype.numpy)
    return _added(xp, meta, a, _addresses(xp, lookup, dim, shape), values)


def _index_add_source(grad: Any, dim: int, index: Any, source: Any, alpha: Any) -> Any:
    rows = grad.index_select(dim, index)
    if rows.shape != source.shape:  # one element in a 0-d and in a 1-d tensor
        rows = rows.reshape(source.shape)
    return rows if alpha == 1 else rows * alpha


INDEX_ADD: PureOp = pure(
    "index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor",
    meta=_index_add_rule,
    kernel=_index_add_kernel,
    # PyTorch saves source for its shape.
    vjp={"self": lambda grad: grad, "source": _index_add_source},
    cost=Cost.INDEXING,
    inplace=True,
)


# -------------------------------------------------------------------------------------- joining
def _is_void(meta: TensorMeta) -> bool:
    """A tensor of shape (0,) joins anything: `cat` has ignored it since before 0-d tensors."""
    return meta.shape == (0,)


def _cat_rule(tensors: tuple[TensorMeta, ...], dim: int) -> TensorMeta:
    if not tensors:
        raise ArgumentError("cat: argument 'tensors' is empty, expected at least one tensor")
    for meta in tensors:
        if not meta.shape:
            raise ShapeError("cat: a tensor has shape (), expected at least 1 dimension")
    device = common_device("cat", list(tensors))
    dtype = dtypes.result_type([(meta.dtype, len(meta.shape)) for meta in tensors])
    solid = [meta for meta in tensors if not _is_void(meta)] or list(tensors[:1])
    first = solid[0].shape
    dim = sizes.wrap_dim(dim, len(first), op="cat")
    for meta in solid:
        _check_joins(first, meta.shape, dim)
    shape = _replaced(first, dim, sum(meta.shape[dim] for meta in solid))
    return tensor_meta(shape, agreed_strides(shape, tensors), dtype, device)


def _check_joins(first: tuple[int, ...], shape: tuple[int, ...], dim: int) -> None:
    if len(first) != len(shape) or _replaced(shape, dim, first[dim]) != first:
        raise ShapeError(
            f"cat: a tensor has shape {shape}, expected that of the first, {first}, except in "
            f"dimension {dim}"
        )


def _cat_kernel(xp: Any, meta: TensorMeta, tensors: tuple[Any, ...], dim: int) -> Any:
    solid = [cast(xp, a, meta.dtype) for a in tensors if a.shape != (0,)]
    return xp.concat(solid, axis=dim) if solid else xp.zeros((0,), dtype=meta.dtype.numpy)


def _cat_vjp(grad: Any, tensors_meta: tuple[TensorMeta, ...], dim: int) -> list[Any]:
    dim = sizes.wrap_dim(dim, len(grad.shape), op="cat")
    found, start = [], 0
    for meta in tensors_meta:
        if _is_void(meta):
            found.append(grad.new_zeros(meta.shape))
        else:
            found.append(grad.narrow(dim, start, meta.shape[dim]))
            start += meta.shape[dim]
    return found


CAT: PureOp = pure(
    "cat(Tensor[] tensors, int dim=0) -> Tensor",
    meta=_cat_rule,
    kernel=_cat_kernel,
    joins="concat",
    vjp={"tensors": _cat_vjp},
    cost=Cost.INDEXING,
)


def _stack_rule(tensors: tuple[TensorMeta, ...], dim: int) -> TensorMeta:
    if not tensors:
        raise ArgumentError("stack: argument 'tensors' is empty, expected at least one tensor")
    shape = tensors[0].shape
    for meta in tensors:
        if meta.shape != shape:
            raise ShapeError(f"stack: a tensor has shape {meta.shape}, expected {shape} for all")
    dim = sizes.wrap_dim(dim, len(shape) + 1, op="stack")
    joined = (*shape[:dim], len(tensors), *shape[dim:])
    # As in PyTorch the result is a `cat` whose long dimension is split, and has its strides.
    if dim == len(shape):
        tensors = tuple([_with_last(meta) for meta in tensors])
    cat = _cat_rule(tensors, dim)
    stride = layout.view_strides(cat.shape, cat.stride, joined)
    return tensor_meta(joined, stride, cat.dtype, cat.device)


def _with_last(meta: TensorMeta) -> TensorMeta:
    return tensor_meta((*meta.shape, 1), (*meta.stride, 1), meta.dtype, meta.device)


STACK: PureOp = pure(
    "stack(Tensor[] tensors, int dim=0) -> Tensor",
    meta=_stack_rule,
    kernel=lambda xp, meta, tensors, dim: xp.stack(
        [cast(xp, a, meta.dtype) for a in tensors], axis=dim
    ),
    vjp={"tensors": lambda grad, dim: list(grad.unbind(dim))},
    cost=Cost.INDEXING,
)


# ------------------------------------------------------------------------------------ reordering
def _flip_rule(self: TensorMeta, dims: tuple[int, ...]) -> TensorMeta:
    sizes.wrap_dims(dims, len(self.shape), op="flip")
    return self.with_stride(layout.clone_strides(self.shape, self.stride))


FLIP: PureOp = pure(
    "flip(Tensor self, int[] dims) -> Tensor",
    meta=_flip_rule,
    kernel=lambda xp, meta, a, dims: xp.flip(a, axis=dims) if a.shape else a,
    vjp={"self": lambda grad, dims: grad.flip(dims)},
    cost=Cost.INDEXING,
)


def _roll_rule(self: TensorMeta, shifts: tuple[int, ...], dims: tuple[int, ...]) -> TensorMeta:
    expected = len(dims) or 1
    if len(shifts) != expected:
        raise ShapeError(f"roll: shifts is {shifts}, expected {expected} for dims {dims}")
    for dim in dims:  # a dimension may be rolled twice
        sizes.wrap_dim(dim, len(self.shape), op="roll")
    if sizes.known_equal(self.numel, 0) and (dims or len(self.shape) == 1):
        return self  # PyTorch clones an empty tensor, and flattens it first where no dim is given
    return tensor_meta(self.shape, None, self.dtype, self.device)


def _roll_kernel(xp: Any, meta: TensorMeta, a: Any, shifts: Any, dims: Any) -> Any:
    if not a.shape:
        return a
    return xp.roll(a, shifts, axis=dims) if dims else xp.roll(a, shifts[0])


ROLL: PureOp = pure(
    "roll(Tensor self, int[] shifts, int[] dims=[]) -> Tensor",
    meta=_roll_rule,
    kernel=_roll_kernel,
    vjp={"self": lambda grad, shifts, dims: grad.roll(tuple([-n for n in shifts]), dims)},
    cost=Cost.INDEXING,
)


# ------------------------------------------------------------------------------------ triangles
def _triangle(name: str) -> PureOp:
    def rule(self: TensorMeta, diagonal: int) -> TensorMeta:
        if len(self.shape) < 2:
            raise ShapeError(
                f"{name}: the tensor has shape {self.shape}, expected at least 2 dimensions"
            )
        return tensor_meta(self.shape, None, self.dtype, self.device)

    return pure(
        f"{name}(Tensor self, int diagonal=0) -> Tensor",
        meta=rule,
        kernel=lambda xp, meta, a, diagonal: getattr(xp, name)(a, k=diagonal),
        vjp={"self": lambda grad, diagonal: getattr(grad, name)(diagonal)},
        cost=Cost.INDEXING,
        inplace=True,
    )


TRIL = _triangle("tril")
TRIU = _triangle("triu")
