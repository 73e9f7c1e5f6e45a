"""Ops by a mask or a count: nonzero, masked_select, masked_scatter, repeat_interleave.

The sizes of some results depend on values: `nonzero` and `masked_select` are data-dependent ops.
"""

from __future__ import annotations

from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError
from aotlite.ir.geometry import layout, sizes
from aotlite.ir.meta import Outline, TensorMeta, tensor_meta
from aotlite.ir.op import OPS, Cost, DataOp, PureOp
from aotlite.ir.op.composite import composite
from aotlite.ir.op.operand import Operand
from aotlite.ir.op.parameter_types import Number
from aotlite.ir.ops.declare import common_device, pure
from aotlite.ir.ops.index.data_dependent import data_dependent
from aotlite.ir.ops.index.positions import INDEX_DTYPES, blocks, check_same_dtype, flat_part
from aotlite.ir.ops.views.forms import in_shape


# ---------------------------------------------------------------------------------- where true
def _column_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Column-major strides: PyTorch computes one coordinate after the other, and transposes."""
    return (1, shape[0])


def _number_of(xp: Namespace, a: Array) -> Array:
    """The number of elements that are not zero, block by block, as a 0-d array."""
    counts = [xp.count_nonzero(a[part] != 0) for part in blocks(a.shape)]
    return xp.asarray(sum(counts), dtype=xp.int64)


def _first_places(xp: Namespace, a: Array, count: int) -> Array:
    """The coordinates of the first elements that are not zero, block by block; then zeros."""
    result, filled = xp.zeros((count, a.ndim), dtype=xp.int64), 0
    for part in blocks(a.shape):
        found = xp.argwhere(a[part] != 0)[: count - filled]
        starts = [each.start for each in part] + [0] * (a.ndim - len(part))
        result[filled : filled + found.shape[0]] = found + xp.asarray(starts, dtype=xp.int64)
        filled += found.shape[0]
        if filled == count:
            break
    return result


NONZERO: DataOp = data_dependent(
    "nonzero(Tensor self) -> Tensor",
    outline=lambda self: Outline(2, dtypes.int64, device=self.device, strides=_column_strides),
    kernel=lambda xp, known, a: xp.astype(xp.argwhere(a != 0), xp.int64),
    count=lambda xp, a: _number_of(xp, a),
    fitted=lambda xp, meta, a, count: _first_places(xp, a, count),
    shapes=lambda n, self: ((n, len(self.shape)),),
    vjp=None,
    cost=Cost.INDEXING,
    advice="choose between values with where, or keep a mask",
)
"""(*) -> (count, ndim): the coordinates of each element that is not zero, in row-major order."""


@composite("nonzero(Tensor self, *, bool as_tuple=False) -> Tensor")
def nonzero(self: Operand, as_tuple: bool) -> Operand:
    """The coordinates of the elements that are not zero: (count, ndim), or one tensor for each
    dimension.
    """
    if not as_tuple:
        return self._do("nonzero")
    found = self if self.shape else self.unsqueeze(0)
    return found._do("nonzero").unbind(1)


@composite("argwhere(Tensor self) -> Tensor")
def argwhere(self: Operand) -> Operand:
    """The coordinates of the elements that are not zero."""
    return self._do("nonzero")


# ------------------------------------------------------------------------------ by a mask
def _masked(name: str, self: TensorMeta, mask: TensorMeta) -> tuple[int, ...]:
    """The shape to which tensor and mask broadcast."""
    if mask.dtype is not dtypes.bool_:
        raise DTypeError(f"{name}: the mask has dtype {mask.dtype}, expected {dtypes.bool_}")
    common_device(name, [self, mask])
    return sizes.broadcast_shapes(self.shape, mask.shape, op=name)


def _masked_select_outline(self: TensorMeta, mask: TensorMeta) -> Outline:
    _masked("masked_select", self, mask)
    return Outline(1, self.dtype, device=self.device)


def _masked_select_kernel(xp: Namespace, known: Outline, a: Array, mask: Array) -> Array:
    a, mask = xp.broadcast_arrays(a, mask)
    return a[mask]


def _masked_select_count(xp: Namespace, a: Array, mask: Array) -> Array:
    _, mask = xp.broadcast_arrays(a, mask)
    return _number_of(xp, mask)


def _masked_select_vjp(grad: Operand, self: Operand, mask: Operand) -> Operand:
    shape = sizes.broadcast_shapes(self.shape, mask.shape)
    return grad.new_zeros(shape).masked_scatter(mask, grad).sum_to(self.shape)


MASKED_SELECT: DataOp = data_dependent(
    "masked_select(Tensor self, Tensor mask) -> Tensor",
    outline=_masked_select_outline,
    kernel=_masked_select_kernel,
    count=_masked_select_count,
    fitted=lambda xp, meta, a, mask, count: _masked_take_kernel(xp, meta, a, mask, (count,)),
    shapes=lambda n, self, mask: ((n,),),
    # PyTorch saves self for its shape; a write to it before the backward raises there too.
    vjp={"self": _masked_select_vjp},
    fitted_vjp={"self": lambda grad, self, mask: _taken_vjp(grad, self.shape, mask)},
    cost=Cost.INDEXING,
    advice="choose between values with where or masked_fill",
)
"""The elements where the mask holds, in row-major order of the common shape: (count,)."""


def _masked_scatter_rule(self: TensorMeta, mask: TensorMeta, source: TensorMeta) -> TensorMeta:
    shape = _masked("masked_scatter", self, mask)
    check_same_dtype("masked_scatter", self, source, "source")
    return tensor_meta(shape, None, self.dtype, common_device("masked_scatter", [self, source]))


def _ranks(xp: Namespace, mask: Array) -> Array:
    """For each true element of the mask, the number of true ones before it: flat."""
    return xp.cumsum(xp.astype(xp.reshape(mask, (-1,)), xp.int64)) - 1


def _masked_scatter_kernel(
    xp: Namespace, meta: TensorMeta, a: Array, mask: Array, source: Array
) -> Array:
    count, have = meta.numel, source.size
    if not count:
        return xp.broadcast_to(a, meta.shape)
    mask = xp.broadcast_to(mask, meta.shape)
    ranks = _ranks(xp, mask)
    needed = int(ranks[-1]) + 1
    if needed > have:
        raise ShapeError(
            f"masked_scatter: argument 'source' has {have} elements, expected at least {needed}, "
            "one for each place where the mask holds"
        )
    if not needed:
        return xp.broadcast_to(a, meta.shape)
    given = flat_part(xp, source, 0, needed)[xp.maximum(ranks, 0)]
    return xp.where(mask, xp.reshape(given, meta.shape), a)


MASKED_SCATTER: PureOp = pure(
    "masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor",
    meta=_masked_scatter_rule,
    kernel=_masked_scatter_kernel,
    vjp={
        "self": lambda grad, mask: grad.masked_fill(mask, 0),
        "source": lambda grad, mask, source_meta: grad.masked_take(mask, source_meta.shape),
    },
    cost=Cost.INDEXING,
    inplace=True,
)
"""A copy in which the elements under the mask are those of `source`, in order."""


def _masked_take_rule(self: TensorMeta, mask: TensorMeta, size: tuple[int, ...]) -> TensorMeta:
    _masked("masked_take", self, mask)
    if any(n < 0 for n in size):
        raise ShapeError(f"masked_take: argument 'size' is {size}, expected no negative number")
    return tensor_meta(size, None, self.dtype, self.device)


def _masked_take_kernel(
    xp: Namespace, meta: TensorMeta, a: Array, mask: Array, size: tuple[int, ...]
) -> Array:
    a, mask = xp.broadcast_arrays(a, mask)
    result, filled = xp.zeros((meta.numel,), dtype=meta.dtype.numpy), 0
    for part in blocks(mask.shape):
        found = a[part][mask[part]][: meta.numel - filled]
        result[filled : filled + found.size] = found
        filled += found.size
        if filled == meta.numel:
            break
    return xp.reshape(result, meta.shape)


MASKED_TAKE: PureOp = pure(
    "masked_take(Tensor self, Tensor mask, int[] size) -> Tensor",
    meta=_masked_take_rule,
    kernel=_masked_take_kernel,
    vjp={"self": lambda grad, self_meta, mask: _taken_vjp(grad, self_meta.shape, mask)},
    cost=Cost.INDEXING,
)
"""`masked_select` with a known count: truncated, or padded with zeros, to `size`."""


def _taken_vjp(grad: Operand, shape: tuple[int, ...], mask: Operand) -> Operand:
    return _spread(grad, shape, mask).sum_to(shape)


def _spread(grad: Operand, shape: tuple[int, ...], mask: Operand) -> Operand:
    """The gradient scattered to the elements under the mask; those beyond its count get zeros."""
    shape = sizes.broadcast_shapes(shape, mask.shape)
    flat = in_shape(grad, (sizes.numel(grad.shape),))
    beyond = grad.new_zeros((sizes.numel(shape),))
    enough = grad._apply(OPS["cat"], ((flat, beyond), 0))
    return grad.new_zeros(shape).masked_scatter(mask, enough)


# ----------------------------------------------------------------------------------- repeating
def _check_repeats(name: str, repeats: TensorMeta) -> None:
    if len(repeats.shape) != 1:
        raise ShapeError(
            f"{name}: argument 'repeats' has shape {repeats.shape}, expected at most 1 dimension"
        )
    if repeats.dtype not in INDEX_DTYPES:
        raise DTypeError(
            f"{name}: argument 'repeats' has dtype {repeats.dtype}, expected int64 or int32"
        )


def _places_outline(repeats: TensorMeta) -> Outline:
    _check_repeats("repeat_interleave", repeats)
    return Outline(1, repeats.dtype, device=repeats.device)


def _places_kernel(xp: Namespace, known: TensorMeta, repeats: Array) -> Array:
    ends = _ends(xp, repeats)
    return _at_ends(xp, repeats, ends, int(ends[-1]) if repeats.size else 0)


def _first_repeats(xp: Namespace, repeats: Array, count: int) -> Array:
    """The first positions; then zeros."""
    ends = _ends(xp, repeats)
    found = _at_ends(xp, repeats, ends, min(int(ends[-1]) if repeats.size else 0, count))
    if found.shape[0] == count:
        return found
    return xp.concat([found, xp.zeros((count - found.shape[0],), dtype=found.dtype)])


def _at_ends(xp: Namespace, repeats: Array, ends: Array, total: int) -> Array:
    places = xp.searchsorted(ends, xp.arange(total), side="right")
    return xp.astype(places, repeats.dtype)


def _ends(xp: Namespace, repeats: Array) -> Array:
    if repeats.size and bool(xp.any(repeats < 0)):
        least = int(xp.min(repeats))
        raise ShapeError(f"repeat_interleave: a repeat is {least}, expected at least 0")
    return xp.cumsum(repeats)


def _places_count(xp: Namespace, repeats: Array) -> Array:
    ends = _ends(xp, repeats)
    return xp.asarray(ends[-1] if repeats.size else 0, dtype=xp.int64)


REPEAT_INTERLEAVE: DataOp = data_dependent(
    "repeat_interleave(Tensor repeats) -> Tensor",
    outline=_places_outline,
    kernel=_places_kernel,
    count=_places_count,
    fitted=lambda xp, meta, repeats, count: _first_repeats(xp, repeats, count),
    shapes=lambda n, repeats: ((n,),),
    vjp=None,
    cost=Cost.INDEXING,
    advice="give repeat_interleave the output_size, or a number of repeats",
)
"""(n,) -> (sum,): each position `i`, `repeats[i]` times."""


def _sized_rule(repeats: TensorMeta, output_size: int) -> TensorMeta:
    name = "repeat_interleave_sized"
    _check_repeats(name, repeats)
    if output_size < 0:
        raise ShapeError(f"{name}: argument 'output_size' is {output_size}, expected at least 0")
    return tensor_meta((output_size,), None, repeats.dtype, repeats.device)


def _sized_kernel(xp: Namespace, meta: TensorMeta, repeats: Array, output_size: int) -> Array:
    places = _places_kernel(xp, meta, repeats)
    if places.shape != meta.shape:
        raise ShapeError(
            f"repeat_interleave_sized: argument 'output_size' is {output_size}, expected "
            f"{places.shape[0]}, the sum of the repeats"
        )
    return places


REPEAT_INTERLEAVE_SIZED: PureOp = pure(
    "repeat_interleave_sized(Tensor repeats, int output_size) -> Tensor",
    meta=_sized_rule,
    kernel=_sized_kernel,
    vjp=None,
    cost=Cost.INDEXING,
)
"""`repeat_interleave` where the sum of the repeats is known."""


@composite(
    "repeat_interleave(Tensor self, Tensor|Scalar? repeats=None, int? dim=None, *, "
    "int? output_size=None) -> Tensor"
)
def repeat_interleave(
    self: Operand, repeats: Operand | Number | None, dim: int | None, output_size: int | None
) -> Operand:
    """Each element (dim None), or each slice of a dimension, repeated in its place."""
    if repeats is None:
        return _places(self, output_size)
    if dim is None:
        self, dim = self.reshape((sizes.numel(self.shape),)), 0
    dim = sizes.wrap_dim(dim, len(self.shape), op="repeat_interleave")
    if not self.shape:
        raise ShapeError("repeat_interleave: the tensor has shape (), expected a dimension")
    if not hasattr(repeats, "meta"):
        return _repeated(self, repeats, dim, output_size)
    return self.index_select(dim, _places(_one_each(repeats, self.shape[dim]), output_size))


def _places(repeats: Any, output_size: int | None) -> Operand:
    if output_size is None:
        return repeats._do("repeat_interleave")
    return repeats._do("repeat_interleave_sized", output_size)


def _one_each(repeats: Any, size: int) -> Operand:
    """The repeats expanded to one for each of `size` positions."""
    shape = repeats.shape
    if len(shape) == 1 and sizes.always_equal(shape[0], size):  # also where both are 1
        return repeats
    if shape in ((), (1,)):
        return repeats.reshape(1).expand(size)
    if len(shape) == 1 and shape[0] != size:
        raise ShapeError(
            f"repeat_interleave: argument 'repeats' has shape {shape}, expected ({size},), the "
            "size of the dimension"
        )
    return repeats


def _repeated(self: Operand, repeats: Any, dim: int, output_size: int | None) -> Operand:
    if sizes.as_size(repeats) is None:
        raise ArgumentError(
            f"repeat_interleave: argument 'repeats' is {repeats!r}, expected an integer or a tensor"
        )
    if repeats < 0:
        raise ShapeError(f"repeat_interleave: argument 'repeats' is {repeats}, expected at least 0")
    wide, shape = self.unsqueeze(dim + 1), self.shape
    total = shape[dim] * repeats
    if output_size is not None and output_size != total:
        raise ShapeError(
            f"repeat_interleave: argument 'output_size' is {output_size}, expected {total}"
        )
    wide = wide.expand((*shape[: dim + 1], repeats, *shape[dim + 1 :]))
    copied = wide._do("restride", layout.contiguous_strides(wide.shape))
    return copied.view((*shape[:dim], total, *shape[dim + 1 :]))
