"""`window_on`: the views that lead from a root's memory to any window on it, as as_strided makes.

`as_strided` counts from the storage, not from the view it is called on, so the chain of what it
gives starts at the root. Where a view of complex numbers as real ones, or the reverse, lies
between, so it does in the chain. Rules: FUN-11, TEN-6.
"""

from __future__ import annotations

from typing import Any

from aotlite.eager.base.tape.view_chain import ViewChain, ViewStep, chain_of
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import ViewOp
from aotlite.ir.ops.views.reinterpret import VIEW_AS_COMPLEX, VIEW_AS_REAL, VIEW_DTYPE
from aotlite.ir.ops.views.view_ops import AS_STRIDED, SELECT


# Note [as_strided chain]
#     y = x * 1; row = y[2:]; window = row.as_strided((2,), (1,), 0)
# `window` is y[0:2], of which `row` has nothing: the offset counts from the storage. Its chain is
# therefore not that of `row` and one step more, but one step from the root. If `row` shows complex
# numbers as real ones, strides count reals: the root is made flat and seen as reals first.
def window_on(root: TensorMeta, root_offset: int, meta: TensorMeta, offset: int) -> ViewChain:
    """The chain from a root to the window `meta`; storage offsets count elements of each one."""
    if meta.dtype is root.dtype:
        return chain_of(strided_step(root, meta, offset - root_offset))
    if root.dtype.is_complex:
        flat = step_of(AS_STRIDED, root, (root.span,), (1,), 0)
        seen = step_of(VIEW_AS_REAL, flat.result)
        start = offset - 2 * root_offset
    else:
        odd = root_offset % 2  # complex numbers start at even places
        flat = step_of(AS_STRIDED, root, ((root.span - odd) // 2, 2), (2, 1), odd)
        seen = step_of(VIEW_AS_COMPLEX, flat.result)
        start = offset - (root_offset + odd) // 2
    last = step_of(AS_STRIDED, seen.result, meta.shape, meta.stride, start)
    return chain_of(flat, seen, last)


def bytes_window(flat: TensorMeta, meta: TensorMeta, start: int) -> ViewChain:
    """The chain from a flat root of bytes to a window that starts at byte `start` (SYN-6)."""
    size = meta.dtype.itemsize
    if size == 1:
        first = step_of(AS_STRIDED, flat, meta.shape, meta.stride, start)
        return chain_of(first, step_of(VIEW_DTYPE, first.result, meta.dtype))
    stride = (*[step * size for step in meta.stride], 1)
    first = step_of(AS_STRIDED, flat, (*meta.shape, size), stride, start)
    seen = step_of(VIEW_DTYPE, first.result, meta.dtype)
    return chain_of(first, seen, step_of(SELECT, seen.result, len(meta.shape), 0))


def strided_step(root: TensorMeta, meta: TensorMeta, start: int) -> ViewStep:
    """The as_strided that gives this window, `start` elements behind the root's first one."""
    return step_of(AS_STRIDED, root, meta.shape, meta.stride, start)


def step_of(op: ViewOp, operand: TensorMeta, *args: Any) -> ViewStep:
    """The step of a chain by this view of an operand."""
    return ViewStep(op, args, operand, op.rule(operand, *args)[0])
