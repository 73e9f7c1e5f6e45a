"""Records how far `as_strided` reaches beyond the elements of an input.

Stage 1 notes the range of each such input; stage 3 passes a base that spans the range.
Rules: TEN-1, FUN-11. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.eager.base.tensor import Tensor
from aotlite.eager.storage_overlap import is_within
from aotlite.ir.errors import ShapeError
from aotlite.ir.geometry.sizes import needed
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Op
from aotlite.stages.records.capture_inputs import CapturedInput, InputRole
from aotlite.stages.s1_capture.capture_trace import CaptureTrace
from aotlite.stages.shared.memory.extents import Extent


# Note [as_strided beyond an input]
#     x = al.arange(6.)[2:4]
#     f(x): return x.as_strided((6,), (1,), 0)      # all six elements: offsets are the storage's
# A graph input is a window (buffer and start), so `x` alone would give the graph two elements.
# Stage 1 notes the extent (-2, 4) of x, in elements from x's first one; stage 3 makes a synthetic
# base of it, and every view of x starts at offset 2 of that base. The guards pin x's storage offset
# (`offset_read`). If x requires grad, its family's base must cover the extent: the gradient of an
# element outside of x has no other place. Otherwise the function is refused.
@attrs.define(eq=False, repr=False)
class AsStridedExtents:
    """The extents of inputs beyond whose elements some window reaches.

    Note [as_strided beyond an input].
    """

    extents: dict[InputRole, Extent] = attrs.field(factory=dict)

    def note(self, given: CapturedInput, meta: TensorMeta, start: int) -> None:
        """Widens an input's extent by a window `start` elements after its first one."""
        first, end = self.extents.get(given.role, (0, given.entry_meta.span))
        self.extents[given.role] = min(first, start), max(end, start + meta.span)


def check_in_storage(op: Op, meta: TensorMeta, offset: int, have: int) -> None:
    """Raises ShapeError for a window outside the bytes of its storage (TEN-1)."""
    needed = (offset + meta.span) * meta.dtype.itemsize
    if meta.numel and (offset < 0 or needed > have):
        raise ShapeError(
            f"{op.name}: size {meta.shape} with stride {meta.stride} at storage offset "
            f"{offset} needs {needed} bytes, expected an offset of at least 0 and at most the "
            f"storage's {have} bytes"
        )


def check_window(
    recorder: CaptureTrace, op: Op, tensor: Tensor, meta: TensorMeta, start: int
) -> None:
    """Checks a window of `as_strided`: inside the storage, and inside what the graph is passed.

    Where it is only inside the storage, the extent of the input is widened. Rules: TEN-1, FUN-11.
    """
    root = storage_root(tensor.value)
    held: TensorMeta = root.meta  # type: ignore[assignment]
    recorder.changes.check_old(root, op.name)
    if held.dtype is not meta.dtype:
        raise recorder.refuse(
            f"{op.name} on a view of {held.dtype} as {meta.dtype}",
            "take the window of the tensor before it is seen in another dtype",
        )
    real = recorder.real_at(root)
    first = 0 if real is None else real.offset
    offset = tensor.offset + start
    if needed(_is_outside, meta, offset - first, held):
        size = held.dtype.itemsize
        have = held.span * size if real is None else real.storage.buffer.nbytes
        check_in_storage(op, meta, offset, have)
        given = next((i for i in recorder.inputs if i.placeholder is root), None)
        if not may_reach(given, meta, offset):
            raise recorder.refuse(
                f"{op.name} with size {meta.shape} and stride {meta.stride}, which reaches "
                f"outside the elements of the input {held}",
                "pass the tensor that spans the whole storage as the argument",
            )
        recorder.offset_read.add(given.role)  # type: ignore[union-attr]
        recorder.reach.note(given, meta, offset - first)


def _is_outside(meta: TensorMeta, start: int, held: TensorMeta) -> bool:
    return meta.numel != 0 and not is_within(meta, start, held)


def may_reach(given: CapturedInput | None, meta: TensorMeta, offset: int) -> bool:
    """Whether a window may reach beyond an input's elements.

    If the input requires grad, the base of its view family has to span the window: the gradient of
    the outer elements is a gradient of that base.
    """
    if given is None:
        return False
    if not given.requires_grad:
        return True
    root: Any = given.fake._root if given.family is not None else None
    return root is not None and is_within(meta, offset - root.offset, root.meta)
