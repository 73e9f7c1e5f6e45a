"""`window_on`: the view chain from a root to any strided window on its memory.

`as_strided` counts from the storage, not from the view that it is called on, so the chain of its
result starts at the root. Where the root is complex and the window real, or the reverse, the chain
has `view_as_real` or `view_as_complex` as well. Rules: FUN-11, TEN-6.
"""

from __future__ import annotations

from aotlite.eager.base.tape.view_chain import ViewChain, ViewStep, chain_of
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.geometry.sizes import is_symbolic
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import ViewOp
from aotlite.ir.ops.views.reinterpret import VIEW_AS_COMPLEX, VIEW_AS_REAL, VIEW_DTYPE
from aotlite.ir.ops.views.view_ops import AS_STRIDED, SELECT


# Note [as_strided chain]
#     y = x * 1; row = y[2:]; window = row.as_strided((2,), (1,), 0)
# `window` is y[0:2], and shares no element with `row`: the offset counts from the storage. So its
# chain is one step from the root, and does not go on from the chain of `row`. If `row` is real and
# the root complex, its strides count reals: the chain flattens the root and views it as reals.
def window_on(root: TensorMeta, root_offset: int, meta: TensorMeta, offset: int) -> ViewChain:
    """The chain from a root to the window `meta`; offsets from one place, in elements of each."""
    if meta.dtype is root.dtype:
        start = offset - root_offset
        whole = start if is_symbolic((start,)) else int(start)
        return chain_of(strided_step(root, meta, whole))
    if root.dtype.is_complex:
        flat = step_of(AS_STRIDED, root, (root.span,), (1,), 0)
        seen = step_of(VIEW_AS_REAL, flat.result)
        start = int(offset - 2 * root_offset)
    else:
        start, odd = divmod(int(2 * offset) - root_offset, 2)
        flat = step_of(AS_STRIDED, root, ((root.span - odd) // 2, 2), (2, 1), odd)
        seen = step_of(VIEW_AS_COMPLEX, flat.result)
    last = step_of(AS_STRIDED, seen.result, meta.shape, meta.stride, start)
    return chain_of(flat, seen, last)


def bytes_window(flat: TensorMeta, meta: TensorMeta, start: int) -> ViewChain:
    """The chain from a 1-d root of bytes to a window that starts at byte `start` (SYN-6)."""
    size = meta.dtype.itemsize
    if size == 1:
        first = step_of(AS_STRIDED, flat, meta.shape, meta.stride, start)
        return chain_of(first, step_of(VIEW_DTYPE, first.result, meta.dtype))
    stride = (*[step * size for step in meta.stride], 1)
    first = step_of(AS_STRIDED, flat, (*meta.shape, size), stride, start)
    seen = step_of(VIEW_DTYPE, first.result, meta.dtype)
    return chain_of(first, seen, step_of(SELECT, seen.result, len(meta.shape), 0))


def strided_step(root: TensorMeta, meta: TensorMeta, start: int) -> ViewStep:
    """The `as_strided` step to this window, `start` elements after the root's first element."""
    return step_of(AS_STRIDED, root, meta.shape, meta.stride, start)


def step_between(operand: Tensor, window: Tensor) -> ViewStep:
    """The `as_strided` step from a tensor to a window on the same memory."""
    return strided_step(operand.meta, window.meta, window.offset - operand.offset)


def step_of(op: ViewOp, operand: TensorMeta, *args: object) -> ViewStep:
    """The step of a chain by this view of an operand."""
    return ViewStep(op, args, operand, op.rule(operand, *args)[0])
