"""`resize_` and `set_`: change the memory of a tensor.

Rules: TEN-5, TEN-10, TEN-25, TEN-26. Spec: `specs/views.md`.
"""

from __future__ import annotations

import gc
from typing import Any

from aotlite.eager.autograd.differentiable_views import edge_of, root_of
from aotlite.eager.autograd.inplace_writes import change_geometry
from aotlite.eager.base.capture_protocol import Recorder
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN, ViewStep
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.storage_overlap import is_within
from aotlite.eager.subclass.protocol import is_wrapper, refuse_form
from aotlite.ir.arrays import ArrayBackend
from aotlite.ir.dtypes import uint8
from aotlite.ir.errors import (
    ArgumentError,
    AutogradError,
    DeviceError,
    DTypeError,
    ShapeError,
    UnsupportedError,
    noted,
    out_of_memory,
)
from aotlite.ir.geometry import layout
from aotlite.ir.geometry.memory_format import MemoryFormat, preserve_format, strides_in
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op.composite import gathered
from aotlite.ir.op.schema import parse_schema
from aotlite.ir.ops.views.view_ops import AS_STRIDED

_RESIZE = parse_schema(
    "resize_(Tensor(a!) self, int[] size, *, memory_format? memory_format=None) -> Tensor(a!)"
)
_SET = parse_schema(
    "set_(Tensor(a!) self, Tensor source, int storage_offset=0, int[] size=[], int[] stride=[])"
    " -> Tensor(a!)"
)


# ------------------------------------------------------------------------------------------ resize
def resize_(tensor: Tensor, *size: object, memory_format: MemoryFormat | None = None) -> Tensor:
    """Gives this tensor another size on its storage, which grows if needed (TEN-25).

    New elements have undefined values. Raises AutogradError if the tensor requires grad.
    """
    given = gathered((tensor, *size))[1:]
    return resize(tensor, given[0] if len(given) == 1 else size, memory_format)


def resize(tensor: Tensor, size: Any, memory_format: MemoryFormat | None) -> Tensor:
    """`resize_` by a size (TEN-25); returns the tensor."""
    recorder, given = STATE.recorder, tensor
    if recorder is not None:
        tensor = recorder.here(tensor)
    bound: Any = _RESIZE.bind((tensor, size), {"memory_format": memory_format})
    size = bound[1]
    if is_wrapper(tensor):
        raise refuse_form("resize_", tensor, "Make a new one of resized inner tensors")
    if any(n < 0 for n in size):
        raise ShapeError(f"resize_: size is {size}, expected no negative number")
    if tensor.requires_grad:
        raise noted(
            AutogradError("resize_: the tensor requires grad, expected one that does not"),
            "Its history belongs to the old elements. Use detach(). (TEN-25)",
        )
    meta = tensor.meta
    wanted = _resized(meta, size, memory_format)
    if wanted is meta:
        return given
    check_room(tensor, wanted)
    take_room(tensor, wanted)
    if size != meta.shape:
        tensor.storage.version += 1
    return given


def grow_to(tensor: Tensor, window: Tensor) -> None:
    """Gives the tensor the window's geometry and elements, on its own storage, which grows.

    The window's memory is copied such that the window begins at the tensor's offset.
    """
    take_room(tensor, window.meta)
    arrays, size = tensor.device.arrays, tensor.storage.nbytes()
    start = (window.offset - tensor.offset) * window.itemsize
    target = arrays.strided(tensor.storage.buffer, uint8, (size,), (1,), 0)
    arrays.copy(target, arrays.strided(window.storage.buffer, uint8, (size,), (1,), start))


def _resized(
    meta: TensorMeta, size: tuple[int, ...], memory_format: MemoryFormat | None
) -> TensorMeta:
    if memory_format is preserve_format:
        raise ArgumentError(
            f"resize_: argument 'memory_format' is {memory_format}, expected a format that says "
            "where elements lie"
        )
    if memory_format is None:
        if size == meta.shape:
            return meta
        stride = layout.contiguous_strides(size)
    else:
        stride = strides_in(memory_format, size, meta.stride, op="resize_")
    return tensor_meta(size, stride, meta.dtype, meta.device)


def take_room(tensor: Tensor, meta: TensorMeta) -> None:
    """Gives the tensor this meta at its present offset; grows the storage if needed."""
    recorder = STATE.recorder
    if recorder is not None:
        tensor = recorder.here(tensor)
        if is_within(meta, 0, tensor.meta):
            root_of(tensor)  # its history keeps the geometry at entry
        recorder.changes.resize(tensor, meta)
    else:
        _grow(tensor.storage, _bytes_for(tensor, meta), tensor.device.arrays)
    before, tensor.meta = tensor.meta, meta
    tensor._array = None
    if tensor._root is not None:
        step = ViewStep(AS_STRIDED, (meta.shape, meta.stride, 0), before, meta)
        change_geometry(tensor, step)
    tensor.facts = None


def check_room(tensor: Tensor, meta: TensorMeta) -> None:
    """Raises UnsupportedError where the storage would have to grow, and cannot."""
    if STATE.recorder is None:  # else the recorder checks it
        check_growth(tensor.storage, _bytes_for(tensor, meta))


def check_growth(storage: Storage, needed: int) -> None:
    """Raises UnsupportedError where a storage has fewer bytes than these, and cannot grow."""
    have = storage.nbytes()
    if needed > have and storage.is_freed:
        raise storage.no_data("resize_")
    if needed > have and (storage.exported or not storage.writable):
        raise cannot_grow(have, needed)


def cannot_grow(have: int, needed: int) -> Exception:
    """The error for memory that cannot grow, since others have its address (TEN-25)."""
    return noted(
        UnsupportedError(
            f"resize_: the storage has {have} bytes and {needed} are needed, expected memory that "
            "may grow"
        ),
        "The memory is shared with an ndarray, which would not see it grow. Use a clone(). "
        "(TEN-25)",
    )


def _bytes_for(tensor: Tensor, meta: TensorMeta) -> int:
    return (tensor.offset + meta.span) * meta.dtype.itemsize


def _grow(storage: Storage, needed: int, arrays: ArrayBackend) -> None:
    have = storage.nbytes()
    if needed <= have:
        return
    try:
        room = arrays.allocate(needed, uint8)
    except MemoryError as error:
        raise out_of_memory("resize_", error) from error
    # Zeros, as in `empty`, so that runs are reproducible (RNG-1).
    arrays.copy(arrays.strided(room, uint8, (needed - have,), (1,), have), 0)
    if have:
        line = (uint8, (have,), (1,), 0)
        arrays.copy(arrays.strided(room, *line), arrays.strided(storage.buffer, *line))
    storage.buffer = room
    if have:
        _forget_arrays(storage)


def _forget_arrays(storage: Storage) -> None:
    """Clears the cached arrays of all tensors on the storage, which are over the old memory.

    A storage has no list of its tensors, which would slow down every view; the garbage collector
    finds them.
    """
    for holder in gc.get_referrers(storage):
        if isinstance(holder, Tensor):
            holder._array = None


# --------------------------------------------------------------------------------------------- set
def set_(tensor: Tensor, source: object = None, *window: object) -> Tensor:
    """Gives this tensor the memory of another tensor, or a window of a storage.

    `set_(tensor)`, `set_(storage, offset, size, stride)`. Views of the old memory keep it
    (TEN-26).
    """
    return put_onto(tensor, source, window)


def put_onto(tensor: Tensor, source: Any, args: tuple[object, ...]) -> Tensor:
    """`set_` to `source`, a tensor or a storage (TEN-26); returns the tensor."""
    for each in (tensor, source):
        if is_wrapper(each):
            raise refuse_form("set_", each, "Set its inner tensors, or make a new one")
    recorder = STATE.recorder
    if recorder is not None:
        _record_put(recorder, recorder.here(tensor), source, args)
        return tensor
    window = _window_of(tensor, source, args)
    for each in (tensor, window):
        if each.storage.buffer is None:
            raise each.storage.no_data("set_")
    _check_set(tensor, source, window)
    left = tensor.storage
    take_place(tensor, window)
    tell_apart(left, window.storage)
    return tensor


def _record_put(recorder: Recorder, tensor: Tensor, source: object, args: tuple[Any, ...]) -> None:
    """`put_onto` in a capture, which knows storages only by their tensors."""
    if isinstance(source, Storage):
        raise recorder.refuse("set_ to a storage", "give set_ a tensor on it")
    if isinstance(source, Tensor):
        source = recorder.here(source)
    window = _recorded_window(tensor, source, args)
    _check_set(tensor, source, window)
    recorder.changes.put_onto(tensor, window)


def take_place(tensor: Tensor, window: Tensor) -> None:
    """Gives the tensor the memory and geometry of `window`. It is no view there, and keeps its
    history."""
    edge = None if tensor._leaf else edge_of(tensor)
    tensor.storage, tensor.meta, tensor.offset = window.storage, window.meta, window.offset
    tensor._array = None
    tensor._root, tensor._base, tensor._chain, tensor._kind = None, None, EMPTY_CHAIN, None
    tensor._seen = 0
    if edge is not None:
        tensor._node, tensor._index = edge
    tensor.facts = None


def tell_apart(old: Storage, new: Storage) -> None:
    """Raises the versions of both storages, the new one's to at least the old one's.

    So values saved of either count as written, whatever versions the two storages had.
    """
    old.version += 1
    if new is not old and type(new.version) is int:
        new.version = max(new.version + 1, old.version)


def _recorded_window(tensor: Tensor, source: Any, args: tuple[object, ...]) -> Tensor:
    if source is None:
        empty: Tensor = tensor.new_zeros((0,)).detach()
        return empty
    bound: Any = _SET.bind((tensor, source, *args), {})
    _, source, offset, size, stride = bound
    window: Tensor = source.detach()
    if not args:
        return window
    return window.as_strided(size, stride or layout.contiguous_strides(size), offset).detach()


def _window_of(tensor: Tensor, source: Any, args: tuple[object, ...]) -> Tensor:
    """A plain tensor with the requested geometry."""
    if source is None:
        meta = tensor_meta((0,), None, tensor.dtype, tensor.device)
        return Tensor(Storage(tensor.device.arrays.allocate(0, tensor.dtype)), meta)
    whole = isinstance(source, Tensor) and not args
    if isinstance(source, Storage):
        source = _everything(source, tensor)
        args = args or (0, source.shape)
    bound: Any = _SET.bind((tensor, source, *args), {})
    _, source, offset, size, stride = bound
    if whole:
        return Tensor(source.storage, source.meta, source.offset)
    stride = stride or layout.contiguous_strides(size)
    window = Tensor(source.storage, source.meta, 0).as_strided(size, stride, offset)
    return Tensor(window.storage, window.meta, window.offset)


def _everything(storage: Storage, like: Tensor) -> Tensor:
    """All elements that a storage holds, in a tensor's dtype."""
    if storage.buffer is None:
        raise storage.no_data("set_")
    count = storage.nbytes() // like.itemsize
    return Tensor(storage, tensor_meta((count,), None, like.dtype, like.device))


def _check_set(tensor: Tensor, source: object, window: Tensor) -> None:
    if window.dtype is not tensor.dtype:
        raise DTypeError(f"set_: the source has dtype {window.dtype}, expected {tensor.dtype}")
    if window.device is not tensor.device:
        raise DeviceError(f"set_: the source is on {window.device}, expected {tensor.device}")
    given = isinstance(source, Tensor) and source.requires_grad
    if STATE.grad_mode and (given or tensor.requires_grad):
        who = "tensor" if tensor.requires_grad else "source"
        raise noted(
            AutogradError(f"set_: the {who} requires grad, expected a call under no_grad"),
            "The new memory has no history. Call it under no_grad(), or with detach(). (TEN-26)",
        )
    if not tensor.is_leaf and window.shape != tensor.shape:
        raise noted(
            AutogradError(
                f"set_: the source has shape {window.shape}, expected {tensor.shape}, that of a "
                "tensor with a history"
            ),
            "The tensor keeps its history, which takes gradients of the old shape. Call set_ on a "
            "detach(). (TEN-26)",
        )
