"""`resize_` in a captured function: `as_strided_` where the memory suffices, else a larger copy.

The larger memory holds the old elements, then zeros, as eager's does. Used by the recorder and
stage 2. Rules: FUN-18, TEN-25. Spec: `specs/s1_capture.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.eager.base.modes import no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.memory import cannot_grow
from aotlite.ir.graph import Node
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS
from aotlite.ir.ops.shape.copies import RESTRIDE
from aotlite.ir.ops.views.view_ops import AS_STRIDED
from aotlite.stages.records.metadata.metadata_mutation import StorageGrowth
from aotlite.stages.s1_capture.capture_trace import CaptureTrace

AS_STRIDED_ = OPS["as_strided_"]


def resized(
    recorder: CaptureTrace, tensor: Tensor, meta: TensorMeta
) -> tuple[object, StorageGrowth | None]:
    """The graph value of a resized tensor, and the growth of its storage, if it grows."""
    root = storage_root(tensor.value)
    held: TensorMeta = root.meta  # type: ignore[assignment]
    real = recorder.real_at(root)
    start = tensor.offset - (0 if real is None else real.offset)
    if held.dtype is meta.dtype and start + meta.span > held.span:
        if real is not None:
            _check_input(recorder, tensor, real, meta, start)
        return _grown(tensor, root, meta, start)
    return recorder.record(AS_STRIDED_, (tensor, meta.shape, meta.stride, 0), meta), None


def _check_input(
    recorder: CaptureTrace, tensor: Tensor, real: Tensor, meta: TensorMeta, start: int
) -> None:
    """Refuses to grow an input unless it spans its storage and no other input shares that."""
    root = storage_root(tensor.value)
    held: TensorMeta = root.meta  # type: ignore[assignment]
    have = held.span * held.dtype.itemsize
    storage = real.storage
    others = [i for i in recorder.inputs if recorder.real_of(i.fake).storage is storage]
    given = recorder.input_of(tensor)
    alone = given is not None and given.placeholder is root and len(others) == 1
    if not alone or real.offset or start or storage.nbytes() != have:
        raise recorder.refuse(
            f"resize_ to {meta.shape}, beyond the elements of an input of {held},",
            "pass the tensor that spans the whole storage, and no other on it, or make a new "
            "tensor of that size",
        )
    if storage.exported or not storage.writable:
        raise cannot_grow(have, meta.span * meta.dtype.itemsize)
    recorder.changes.sizes[given.role] = have  # type: ignore[union-attr]


def _grown(tensor: Tensor, root: Node, meta: TensorMeta, start: int) -> tuple[Any, StorageGrowth]:
    held: TensorMeta = root.meta  # type: ignore[assignment]
    size = start + meta.span
    if tensor.storage.exported:
        raise cannot_grow(held.span * held.dtype.itemsize, size * held.dtype.itemsize)
    with no_grad():
        return _copied(tensor, root, meta, start)


def _copied(tensor: Tensor, root: Node, meta: TensorMeta, start: int) -> tuple[Any, StorageGrowth]:
    held: TensorMeta = root.meta  # type: ignore[assignment]
    whole = Tensor(tensor.storage, held, tensor.offset - start)
    whole.value = root
    flat = whole._apply(AS_STRIDED, (whole, (held.span,), (1,), 0))
    memory = tensor.new_zeros((start + meta.span,)).slice_scatter(flat, 0, 0, held.span, 1)
    out: Tensor = memory._apply(AS_STRIDED, (memory, meta.shape, meta.stride, start))
    if not start and tensor._base is None:  # the object that its views are views of
        memory = out = out._apply(RESTRIDE, (out, meta.stride))
    return out.value, StorageGrowth(root, memory.value, out.value)
