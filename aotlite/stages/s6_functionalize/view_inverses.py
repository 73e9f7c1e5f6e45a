"""The view chain through which a written value is scattered back into the root.

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
    """The chain that is one as_strided on the root; on a synthetic base of bytes, a dtype view."""
    if meta.dtype is not root.dtype and root.dtype is uint8:
        return bytes_window(root, meta, int(start * meta.dtype.itemsize))
    return chain_of(ViewStep(AS_STRIDED, (meta.shape, meta.stride, start), root, meta))


def invertible(chain: ViewChain, meta: TensorMeta, start: int, root: TensorMeta) -> ViewChain:
    """A chain equal to `chain` whose inverse puts a written value back exactly.
    If a step repeats elements (`expand`, overlapping windows), its inverse would take any of the
    copies. Then the chain is one as_strided on the root. Note [View inverses]."""
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
