"""`strided_accumulate`: the adjoint of `as_strided`, which adds elements that share an address."""

from __future__ import annotations

from typing import Any

from aotlite.ir.dtypes import bool_
from aotlite.ir.errors import ShapeError
from aotlite.ir.geometry import layout, sizes
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Cost
from aotlite.ir.ops.declare import pure
from aotlite.ir.ops.index.positions import blocks
from aotlite.ir.ops.precision import accumulator
from aotlite.ir.ops.views.view_ops import window_on_operand


def _accumulate_meta(
    self: TensorMeta, size: tuple[int, ...], stride: tuple[int, ...], offset: int
) -> TensorMeta:
    if any(n < 0 for n in size):
        raise ShapeError(f"strided_accumulate: size is {size}, expected no negative number")
    if len(stride) != len(self.shape):
        raise ShapeError(
            f"strided_accumulate: stride is {stride}, expected one for each size of {self.shape}"
        )
    if any(step < 0 for step in stride):
        raise ShapeError(f"strided_accumulate: stride is {stride}, expected no negative number")
    span, room = layout.span(self.shape, stride), sizes.numel(size)
    if span and (offset < 0 or offset + span > room):
        raise ShapeError(
            f"strided_accumulate: the window ends at {offset + span}, expected at most {room}"
        )
    return self.as_contiguous(size)


def _accumulate(
    xp: Any, meta: TensorMeta, grad: Any, size: Any, stride: tuple[int, ...], offset: int
) -> Any:
    """Adds each element of `grad` to its address in contiguous memory of this size."""
    total = xp.zeros((meta.numel,), dtype=meta.dtype.numpy)
    if 0 in grad.shape:
        return xp.reshape(total, size)
    for part in blocks(grad.shape):
        given = grad[part] if part else grad
        begin = [cut.start for cut in part] + [0] * len(stride)
        address = xp.full(given.shape, offset, dtype=xp.int64)
        for dim, (length, step) in enumerate(zip(given.shape, stride, strict=True)):
            index = xp.arange(begin[dim], begin[dim] + length, dtype=xp.int64) * step
            address = address + xp.reshape(
                index, tuple(length if i == dim else 1 for i in range(len(stride)))
            )
        xp.add.at(total, xp.reshape(address, (-1,)), xp.reshape(given, (-1,)))
    return xp.reshape(total, size)


def _accumulate_loops(
    k: Any, meta: TensorMeta, grad: Any, size: Any, stride: tuple[int, ...], offset: int
) -> Any:
    """Zeros, then the elements added, in order where addresses repeat."""
    if accumulator(meta.dtype) is not meta.dtype or meta.dtype is bool_:
        return None  # sums are rounded one by one
    dims = sorted(range(grad.ndim), key=lambda dim: -stride[dim])
    apart = set()
    for place, dim in enumerate(dims):
        rest = sum((grad.shape[d] - 1) * stride[d] for d in dims[place + 1 :])
        if stride[dim] <= rest and grad.shape[dim] > 1:
            break
        apart.add(dim)
    meeting = [dim for dim in range(grad.ndim) if dim not in apart and grad.shape[dim] > 1]
    is_all = not meeting and grad.meta.numel == meta.numel
    out = k.new(meta) if is_all else k.map(meta, lambda *i: 0)
    flat = out.view((meta.numel,), (1,))

    def element(*i: Any) -> Any:
        place = sum([x * step for x, step in zip(i, stride, strict=True)], offset)
        return (place,), grad[i]

    k.scatter(flat, grad.shape, element, ordered=meeting, combine="sum" if meeting else None)
    return out


STRIDED_ACCUMULATE = pure(
    "strided_accumulate(Tensor self, int[] size, int[] stride, int offset=0) -> Tensor",
    meta=_accumulate_meta,
    kernel=_accumulate,
    loops=_accumulate_loops,
    vjp={
        "self": lambda grad, self_meta, stride, offset: window_on_operand(
            grad.contiguous(), self_meta.shape, stride, offset
        )
    },
    cost=Cost.INDEXING,
)
"""The adjoint of `as_strided`: zeros of `size`, with `self` added at the view's addresses."""
