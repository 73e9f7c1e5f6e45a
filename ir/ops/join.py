"""Ops that put tensors together: cat, stack, and their composites."""

from __future__ import annotations

from typing import Any

from aotlite.ir import dtypes, layout, sizes
from aotlite.ir.errors import ArgumentError, ShapeError
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.ops.declare import common_device, pure
from aotlite.ir.ops.memory_format import agreed_strides
from aotlite.ir.ops.positions import replaced
from aotlite.ir.ops.precision import cast


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
    shape = replaced(first, dim, sum(meta.shape[dim] for meta in solid))
    return tensor_meta(shape, agreed_strides(shape, tensors), dtype, device)


def _check_joins(first: tuple[int, ...], shape: tuple[int, ...], dim: int) -> None:
    if len(first) != len(shape) or replaced(shape, dim, first[dim]) != first:
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


def _cat_namespaced(
    meta: TensorMeta, tensors: tuple[TensorMeta, ...], dim: int
) -> tuple[str, dict[str, Any]] | None:
    if any(each.dtype is not meta.dtype or _is_void(each) for each in tensors):
        return None
    return "concat", {"axis": dim}


CAT: PureOp = pure(
    "cat(Tensor[] tensors, int dim=0) -> Tensor",
    meta=_cat_rule,
    kernel=_cat_kernel,
    namespaced=_cat_namespaced,
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
