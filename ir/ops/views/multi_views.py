"""Multi-output views: split, split_with_sizes, unbind; their gradients are joined parts.

Rules: TEN-3, FUN-10. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, pairwise

from aotlite.ir.errors import ArgumentError, ShapeError
from aotlite.ir.geometry import sizes
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.declare import multi_view
from aotlite.ir.ops.views.view_ops import SELECT, SLICE

Grads = Sequence[Operand | None]
"""The gradients of several results, None for absent ones."""


def _of_parts(
    grads: Grads, dim: int, self_meta: TensorMeta, lengths: Sequence[int]
) -> Operand | None:
    """The gradient of the whole: those of consecutive parts joined, with zeros for absent ones."""
    there = {i: grad for i, grad in enumerate(grads) if grad is not None}
    if len(there) == len(grads) == 1 or not there:
        return grads[0]
    (first, some), shape = next(iter(there.items())), self_meta.shape
    dim = sizes.wrap_dim(dim, len(shape), op="split")
    if len(there) == 1:
        start = sum(lengths[:first])
        end = start + lengths[first]
        return some.new_zeros(shape).slice_scatter(some, dim, start, end, 1)
    pieces: list[Operand] = []
    for is_there, run in groupby(range(len(grads)), lambda i: i in there):
        if is_there:
            pieces += [there[i] for i in run]
        else:
            length = sum(lengths[i] for i in run)
            pieces.append(some.new_zeros((*shape[:dim], length, *shape[dim + 1 :])))
    return _by_rows(some._apply(OPS["cat"], (tuple(pieces), dim)))


def _by_rows(value: Operand) -> Operand:
    """The value in row-major order, whatever layouts its parts have, and whichever there are."""
    meta = value.meta.as_contiguous()
    return value if value.meta is meta else value.restride(meta.stride)


def _ends(size: int, part: int) -> list[int]:
    """Where parts of one size start and end; the last part may be smaller."""
    return [sizes.minimum(i * part, size) for i in range(int(sizes.ceil_div(size, part)) + 1)]


def _split_vjp(
    self_meta: TensorMeta, split_size: int, dim: int, grads: Grads = ()
) -> Operand | None:
    ends = _ends(self_meta.shape[dim], split_size) if len(grads) > 1 else []
    return _of_parts(grads, dim, self_meta, [end - start for start, end in pairwise(ends)])


def _split_parts(self: TensorMeta, split_size: int, dim: int) -> object:
    if not self.shape:
        raise ShapeError("split: the tensor has no dimensions, expected at least 1")
    dim = sizes.wrap_dim(dim, len(self.shape), op="split")
    have = self.shape[dim]
    if split_size < 0 or (split_size == 0 and have != 0):
        raise ArgumentError(f"split: argument 'split_size' is {split_size}, expected at least 1")
    if have == 0 or split_size == 0:
        return ((SLICE, (dim, 0, 0, 1)),)
    return tuple([(SLICE, (dim, *ends, 1)) for ends in pairwise(_ends(have, split_size))])


SPLIT = multi_view(
    "split(Tensor(a) self, int split_size, int dim=0) -> Tensor(a)[]",
    parts=_split_parts,
    vjp={"self": _split_vjp},
)


def _split_with_sizes_parts(self: TensorMeta, split_sizes: tuple[int, ...], dim: int) -> object:
    if not self.shape:
        raise ShapeError("split_with_sizes: the tensor has no dimensions, expected at least 1")
    dim = sizes.wrap_dim(dim, len(self.shape), op="split_with_sizes")
    have = self.shape[dim]
    if sum(split_sizes) != have or any(n < 0 for n in split_sizes):
        raise ShapeError(
            f"split_with_sizes: split_sizes {split_sizes} sum to {sum(split_sizes)}, expected "
            f"{have}, the size of dimension {dim}"
        )
    parts, start = [], 0
    for size in split_sizes:
        parts.append((SLICE, (dim, start, start + size, 1)))
        start += size
    return tuple(parts)


SPLIT_WITH_SIZES = multi_view(
    "split_with_sizes(Tensor(a) self, int[] split_sizes, int dim=0) -> Tensor(a)[]",
    parts=_split_with_sizes_parts,
    vjp={
        "self": lambda self_meta, split_sizes, dim, grads=(): _of_parts(
            grads, dim, self_meta, split_sizes
        )
    },
)


def _unbind_parts(self: TensorMeta, dim: int) -> object:
    if not self.shape:
        raise ShapeError("unbind: the tensor has no dimensions, expected at least 1")
    dim = sizes.wrap_dim(dim, len(self.shape), op="unbind")
    return tuple((SELECT, (dim, i)) for i in range(self.shape[dim]))


def _unbind_vjp(self_meta: TensorMeta, dim: int, grads: Grads = ()) -> Operand | None:
    there = {i: grad for i, grad in enumerate(grads) if grad is not None}
    if not there:
        return None
    first, some = next(iter(there.items()))
    if len(there) == 1:
        return some.new_zeros(self_meta.shape).select_scatter(some, dim, first)
    zeros = some.new_zeros(some.shape) if len(there) < len(grads) else some
    pieces = tuple([zeros if grad is None else grad for grad in grads])
    return _by_rows(some._apply(OPS["stack"], (pieces, dim)))


UNBIND = multi_view(
    "unbind(Tensor(a) self, int dim=0) -> Tensor(a)[]",
    parts=_unbind_parts,
    vjp={"self": _unbind_vjp},
)
