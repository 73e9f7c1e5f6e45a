"""Chains of views by which what was written is put back, and by which windows are seen.

Used by stage 6. Rules: FUN-7, FUN-11, SYN-6. Spec: `specs/rules/fun.md`.

Note [View inverses]
    y = x.t()[0]; y.mul_(2)
No op writes, so the new value of `y` is put back into that of `x`: by the scatter of each step, in
reverse (`select_scatter` into `x.t()`, then `t` of that). A step that repeats elements has no such
inverse: in `y = x.expand(3, 2); y[1].add_(1)`, `expand` could be undone by any of three rows, and
only row 1 is the written one. There the whole chain is replaced by one `as_strided` window on the
root's memory, whose scatter writes exactly the places that eager writes.
"""

from __future__ import annotations

from aotlite.eager.autograd.as_strided_chain import bytes_window, window_on
from aotlite.eager.base.tape.view_chain import ViewChain, ViewStep, chain_of
from aotlite.ir.dtypes import uint8
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.declare import real_of
from aotlite.ir.ops.views.view_ops import AS_STRIDED


def strided(root: TensorMeta, meta: TensorMeta, start: int) -> ViewChain:
    """The chain from a root to a window on its memory; a synthetic base may be one of bytes."""
    if meta.dtype is not root.dtype and root.dtype is uint8:
        return bytes_window(root, meta, start * meta.dtype.itemsize)
    return chain_of(ViewStep(AS_STRIDED, (meta.shape, meta.stride, start), root, meta))


def lens_of(chain: ViewChain, meta: TensorMeta, start: int, root: TensorMeta) -> ViewChain:
    """A chain through which what was written can be put back.

    Where a step repeats elements (`expand`, windows that overlap), its inverse takes one of the
    copies, which need not be the written one: one window on the root's memory is exact.
    """
    if not chain.repeats:
        return chain
    if root.dtype is uint8:
        return strided(root, meta, start)
    if meta.dtype is not root.dtype and meta.dtype is not real_of(root.dtype):
        raise noted(
            UnsupportedError(
                f"functionalize: a view {meta} that repeats elements of {root}, of another dtype, "
                "is written, expected a view without repetition or of the same dtype"
            ),
            "Write before expanding.",
        )
    return window_on(root, 0, meta, start)
