"""Ops that put tensors together or repeat them: cat, stack, repeat, and their composites."""

from __future__ import annotations

from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.errors import ArgumentError, ShapeError
from aotlite.ir.geometry import layout, sizes
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.composite import composite
from aotlite.ir.op.dims import Args, Dims, Metas, along, numbered
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.declare import common_device, pure
from aotlite.ir.ops.index.positions import replaced
from aotlite.ir.ops.loops import Loops, LoopTensor, Position
from aotlite.ir.ops.precision import cast
from aotlite.ir.ops.shape.memory_format import agreed_strides
from aotlite.ir.ops.views.forms import in_shape
from aotlite.ir.scalar.expression import Scalar


def _is_void(meta: TensorMeta) -> bool:
    """A tensor of shape (0,) joins anything: `cat` has ignored it since before 0-d tensors."""
    return sizes.same_shape(meta.shape, (0,))


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
    shape = replaced(first, dim, sum(meta.shape[dim] for meta in solid))
    return tensor_meta(shape, agreed_strides(shape, tensors), dtype, device)


def _check_joins(first: tuple[int, ...], shape: tuple[int, ...], dim: int) -> None:
    if len(first) != len(shape) or replaced(shape, dim, first[dim]) != first:
        raise ShapeError(
            f"cat: a tensor has shape {shape}, expected that of the first, {first}, except in "
            f"dimension {dim}"
        )


def _cat_kernel(xp: Namespace, meta: TensorMeta, tensors: tuple[Array, ...], dim: int) -> Array:
    solid = [cast(xp, a, meta.dtype) for a in tensors if a.shape != (0,)]
    return xp.concat(solid, axis=dim) if solid else xp.zeros((0,), dtype=meta.dtype.numpy)


_MANY = 8
"""Parts from which on each is stored by a kernel of its own."""


def _cat_loops(k: Loops, meta: TensorMeta, tensors: tuple[LoopTensor, ...], dim: int) -> LoopTensor:
    parts = [a for a in tensors if a.shape != (0,) and a.shape[dim]]
    return _joined(k, meta, parts, dim % meta.ndim)


def _joined(k: Loops, meta: TensorMeta, parts: list[LoopTensor], dim: int) -> LoopTensor:
    """One kernel that asks each position which part it is of."""
    if len(parts) >= _MANY:
        return _one_by_one(k, meta, parts, dim)

    def element(*i: Position) -> Scalar:
        found: Scalar | None = None
        end = meta.shape[dim]
        for part in reversed(parts):
            stop, end = end, end - part.shape[dim]
            here = part[(*i[:dim], i[dim] - end, *i[dim + 1 :])]
            value = k.cast(here, meta.dtype)
            found = value if found is None else k.where(i[dim] < stop, value, found)
        assert found is not None
        return found

    return k.map(meta, element)


def _one_by_one(k: Loops, meta: TensorMeta, parts: list[LoopTensor], dim: int) -> LoopTensor:
    out, start = k.new(meta), 0
    for part in parts:
        window = out.view(part.shape, meta.stride, start * meta.stride[dim])
        k.store(window, lambda *i, part=part: k.cast(part[i], meta.dtype))
        start += part.shape[dim]
    return out


def _cat_vjp(grad: Operand, tensors_meta: tuple[TensorMeta, ...], dim: int) -> list[Operand]:
    dim = sizes.wrap_dim(dim, len(grad.shape), op="cat")
    found, start = [], 0
    for meta in tensors_meta:
        if len(grad.shape) > 1 and _is_void(meta):
            found.append(grad.new_zeros(meta.shape))
        else:
            found.append(grad.narrow(dim, start, meta.shape[dim]))
            start += meta.shape[dim]
    return found


def _cat_namespaced(
    meta: TensorMeta, tensors: tuple[TensorMeta, ...], dim: int
) -> tuple[str, dict[str, object]] | None:
    if any(each.dtype is not meta.dtype or _is_void(each) for each in tensors):
        return None
    return "concat", {"axis": dim}


CAT: PureOp = pure(
    "cat(Tensor[] tensors, int dim=0) -> Tensor",
    meta=_cat_rule,
    kernel=_cat_kernel,
    namespaced=_cat_namespaced,
    loops=_cat_loops,
    vjp={"tensors": _cat_vjp},
    cost=Cost.INDEXING,
    moves=("tensors",),
    dims=along("dim"),
    linear=(("tensors",),),
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


def _stack_loops(
    k: Loops, meta: TensorMeta, tensors: tuple[LoopTensor, ...], dim: int
) -> LoopTensor:
    dim = dim % meta.ndim
    parts = [
        a.view((*a.shape[:dim], 1, *a.shape[dim:]), (*a.stride[:dim], 0, *a.stride[dim:]))
        for a in tensors
    ]
    return _joined(k, meta, parts, dim)


def _stack_dims(args: Args, results: Metas) -> Dims:
    dim = args["dim"] % len(results[0].shape)
    labels = numbered(args["tensors"][0])
    return Dims(
        {"tensors": (labels,) * len(args["tensors"])}, ((*labels[:dim], None, *labels[dim:]),)
    )


# Beside a kernel: as one, it takes 3.7 times as long for two of 8 x 8, as it asks for `cat`'s meta.
def _stack_expanded(tensors: tuple[Operand, ...], dim: int = 0) -> Operand:
    return _cat("stack", tuple([x.unsqueeze(dim) for x in tensors]), dim)


STACK: PureOp = pure(
    "stack(Tensor[] tensors, int dim=0) -> Tensor",
    meta=_stack_rule,
    kernel=lambda xp, meta, tensors, dim: xp.stack(
        [cast(xp, a, meta.dtype) for a in tensors], axis=dim
    ),
    vjp={"tensors": lambda grad, dim: list(grad.unbind(dim))},
    cost=Cost.INDEXING,
    moves=("tensors",),
    dims=_stack_dims,
    linear=(("tensors",),),
    expands=_stack_expanded,
    loops=_stack_loops,
)


# ------------------------------------------------------------------------------------ composites
def _cat(op: str, tensors: tuple[Operand, ...], dim: int) -> Operand:
    if not tensors:
        raise ArgumentError(f"{op}: argument 'tensors' is empty, expected at least one tensor")
    return tensors[0]._apply(CAT, (tuple(tensors), dim))


@composite("concat(Tensor[] tensors, int dim=0) -> Tensor", is_method=False)
def concat(tensors: tuple[Operand, ...], dim: int) -> Operand:
    """`cat`."""
    return _cat("concat", tensors, dim)


@composite("concatenate(Tensor[] tensors, int dim=0) -> Tensor", is_method=False)
def concatenate(tensors: tuple[Operand, ...], dim: int) -> Operand:
    """`cat`."""
    return _cat("concatenate", tensors, dim)


@composite("hstack(Tensor[] tensors) -> Tensor", is_method=False)
def hstack(tensors: tuple[Operand, ...]) -> Operand:
    """Joined side by side: along the second dimension, of vectors along their only one."""
    wide = tuple([t if t.shape else t.reshape(1) for t in tensors])
    return _cat("hstack", wide, 0 if wide and len(wide[0].shape) == 1 else 1)


@composite("vstack(Tensor[] tensors) -> Tensor", is_method=False)
def vstack(tensors: tuple[Operand, ...]) -> Operand:
    """Joined one below the other, vectors as rows."""
    return _cat("vstack", tuple(map(_as_rows, tensors)), 0)


@composite("row_stack(Tensor[] tensors) -> Tensor", is_method=False)
def row_stack(tensors: tuple[Operand, ...]) -> Operand:
    """`vstack`."""
    return _cat("row_stack", tuple(map(_as_rows, tensors)), 0)


def _as_rows(tensor: Operand) -> Operand:
    if not tensor.shape:
        return tensor.reshape((1, 1))
    return tensor.unsqueeze(0) if len(tensor.shape) == 1 else tensor


@composite("dstack(Tensor[] tensors) -> Tensor", is_method=False)
def dstack(tensors: tuple[Operand, ...]) -> Operand:
    """Joined along the third dimension, matrices as slices of it."""
    deep = [_as_rows(t) for t in tensors]
    return _cat("dstack", tuple([t.unsqueeze(-1) if len(t.shape) == 2 else t for t in deep]), 2)


@composite("column_stack(Tensor[] tensors) -> Tensor", is_method=False)
def column_stack(tensors: tuple[Operand, ...]) -> Operand:
    """Joined side by side, vectors as columns."""
    columns = [t if len(t.shape) > 1 else t.reshape((t.numel(), 1)) for t in tensors]
    return _cat("column_stack", tuple(columns), 1)


@composite(is_method=False)
def block_diag(*tensors: Any) -> Operand:
    """The matrix with these matrices, vectors as rows, along its diagonal."""
    for t in tensors:
        if len(t.shape) > 2:
            raise ShapeError(
                f"block_diag: a tensor has shape {t.shape}, expected at most 2 dimensions"
            )
    blocks = [_as_rows(t) for t in tensors]
    width, before, rows = sum(b.shape[1] for b in blocks), 0, []
    for block in blocks:
        rows.append(block.constant_pad_nd((before, width - before - block.shape[1]), 0))
        before += block.shape[1]
    return _cat("block_diag", tuple(rows), 0)


def _repeat_rule(self: TensorMeta, repeats: tuple[int, ...]) -> TensorMeta:
    more = len(repeats) - len(self.shape)
    if more < 0:
        raise ShapeError(
            f"repeat: argument 'repeats' is {repeats}, expected at least {len(self.shape)} numbers "
            f"for shape {self.shape}"
        )
    if any(n < 0 for n in repeats):
        raise ShapeError(f"repeat: argument 'repeats' is {repeats}, expected no negative number")
    wide = (1,) * more + self.shape
    shape = tuple(n * times for n, times in zip(wide, repeats, strict=True))
    return tensor_meta(shape, None, self.dtype, self.device)


def _repeat_kernel(xp: Namespace, meta: TensorMeta, a: Array, repeats: tuple[int, ...]) -> Array:
    # NumPy tiles what is not to be repeated at all, too.
    return xp.tile(a, repeats) if meta.numel else xp.zeros(meta.shape, dtype=meta.dtype.numpy)


def _repeat_vjp(grad: Operand, self_meta: TensorMeta, repeats: tuple[int, ...]) -> Operand:
    shape = self_meta.shape
    more = len(repeats) - len(shape)
    if any(n == 0 for n in repeats):
        return grad.new_zeros(shape)
    split = list(repeats[:more])
    dims = list(range(more))
    for times, size in zip(repeats[more:], shape, strict=True):
        dims.append(len(split))
        split += [times, size]
    return in_shape(grad, split).sum(dims) if dims else grad


def _repeat_loops(
    k: Loops, meta: TensorMeta, a: LoopTensor, repeats: tuple[int, ...]
) -> LoopTensor:
    out, more = k.new(meta), len(repeats) - a.ndim
    wide = (1,) * more + a.shape
    shape = [part for pair in zip(repeats, wide, strict=True) for part in pair]
    steps = zip(wide, meta.stride, strict=True)
    stride = [step for n, s in steps for step in (n * s, s)]  # from one copy to the next, inside
    k.store(out.view(shape, stride), lambda *i: a[i[1::2][more:]])
    return out


REPEAT: PureOp = pure(
    "repeat(Tensor self, int[] repeats) -> Tensor",
    meta=_repeat_rule,
    kernel=_repeat_kernel,
    loops=_repeat_loops,
    vjp={"self": _repeat_vjp},
    cost=Cost.INDEXING,
    moves=("self",),
)
"""The tensor so many times along each dimension, and along new ones in front."""


@composite("repeat(Tensor self, int[] repeats) -> Tensor", spread=True)
def repeat(self: Operand, repeats: tuple[int, ...]) -> Operand:
    """The tensor so many times along each dimension, and along new ones in front."""
    return self._do("repeat", repeats)


@composite("tile(Tensor self, int[] dims) -> Tensor", spread=True)
def tile(self: Operand, dims: tuple[int, ...]) -> Operand:
    """`repeat`, with ones in front where there are fewer numbers than dimensions."""
    return self._do("repeat", (1,) * (len(self.shape) - len(dims)) + dims)
