"""`window_on`: the views that lead from a root's memory to any window on it, as as_strided makes.

`as_strided` counts from the storage, not from the view it is called on, so the chain of what it
gives starts at the root. Where a view of complex numbers as real ones, or the reverse, lies
between, so it does in the chain. Rules: FUN-11, TEN-6.
"""

from __future__ import annotations

from typing import Any

from aotlite.eager.autograd.chain import Chain, Step, chain_of
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import ViewOp
from aotlite.ir.ops.reinterpret import VIEW_AS_COMPLEX, VIEW_AS_REAL
from aotlite.ir.ops.views import AS_STRIDED


def window_on(root: TensorMeta, root_offset: int, meta: TensorMeta, offset: int) -> Chain:
    """The chain from a root to the window `meta`; storage offsets count elements of each one."""
    if meta.dtype is root.dtype:
        return chain_of(_step(AS_STRIDED, root, meta.shape, meta.stride, offset - root_offset))
    if root.dtype.is_complex:
        flat = _step(AS_STRIDED, root, (root.span,), (1,), 0)
        seen = _step(VIEW_AS_REAL, flat.result)
        start = offset - 2 * root_offset
    else:
        odd = root_offset % 2  # complex numbers start at even places
        flat = _step(AS_STRIDED, root, ((root.span - odd) // 2, 2), (2, 1), odd)
        seen = _step(VIEW_AS_COMPLEX, flat.result)
        start = offset - (root_offset + odd) // 2
    last = _step(AS_STRIDED, seen.result, meta.shape, meta.stride, start)
    return chain_of(flat, seen, last)


def _step(op: ViewOp, operand: TensorMeta, *args: Any) -> Step:
    return Step(op, args, operand, op.rule(operand, *args)[0])
