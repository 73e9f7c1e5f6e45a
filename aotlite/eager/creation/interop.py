"""Memory shared with other libraries: NumPy, DLPack, `__cuda_array_interface__`. Rule: DEV-10.

Nothing is copied, and each side sees the other's writes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aotlite.eager.base.devices import device_of
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.base.unsupported import forbid_capture
from aotlite.eager.creation.array_stand_in import is_stand_in, refuse_subclass, tensor_on
from aotlite.ir import dtypes
from aotlite.ir.arrays.cuda_devices import cuda_device, library
from aotlite.ir.arrays.cupy_arrays import Memory
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.errors import (
    ArgumentError,
    AutogradError,
    DeviceError,
    DTypeError,
    UnsupportedError,
    noted,
)
from aotlite.ir.meta import tensor_meta

_HOST, _CUDA = 1, 2
"""DLPack's numbers for types of devices."""


# -------------------------------------------------------------------------------------- to others
def window_for(tensor: Tensor, name: str) -> Any:
    """The array over a tensor's memory, to pass to another library."""
    forbid_capture(tensor, name, "keep the computation in tensors, or return the tensor")
    if tensor.requires_grad:
        raise AutogradError(
            f"{name}: the tensor requires grad, expected one that does not; use detach()"
        )
    if tensor.dtype.numpy.kind == "V":
        raise noted(
            DTypeError(f"{name}: dtype is {tensor.dtype}, expected one that has a code there"),
            "Share its bits: x.view(aotlite.uint8).",
        )
    tensor.storage.export()
    return tensor._data


def dlpack(self: Tensor, **options: object) -> Any:
    """A DLPack capsule of the tensor's memory, made by its array library."""
    array = window_for(self, "__dlpack__")
    arrays = self.device.arrays
    try:
        return arrays.quiet(lambda: array.__dlpack__(**options))
    except (BufferError, ValueError) as error:
        raise noted(
            UnsupportedError(f"__dlpack__: the memory is of {self.device}; {error}"),
            "Copy the tensor first: x.to(device), or x.clone().",
        ) from error


def dlpack_device(tensor: Tensor) -> tuple[int, int]:
    """(kind, index) of the tensor's device in DLPack's numbers."""
    if tensor.device is CPU:
        return _HOST, 0
    index = tensor.device.index
    if index is None:
        raise DeviceError(f"__dlpack_device__: the tensor is on {tensor.device}, expected a device "
                          "of DLPack's")  # fmt: skip
    return _CUDA, index


def array_interface(tensor: Tensor) -> dict[str, Any]:
    """The `__cuda_array_interface__` of the tensor, version 3."""
    if not hasattr(tensor.device.arrays, "cupy"):
        raise AttributeError(f"the tensor is on {tensor.device}, expected a CUDA device")
    array = window_for(tensor, "__cuda_array_interface__")
    found: dict[str, Any] = tensor.device.arrays.quiet(lambda: array.__cuda_array_interface__)
    return found


# ------------------------------------------------------------------------------------ from others
def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor on the memory of `array`, never a copy; each sees the other's writes.

    A read-only array gives a tensor that cannot be written. Raises ArgumentError for negative
    strides and misaligned memory, DTypeError for object, big-endian and unknown dtypes.
    """
    if not isinstance(array, np.ndarray):
        raise ArgumentError(f"from_numpy: argument 'array' is {array!r}, expected a NumPy array")
    if is_stand_in(array):
        return tensor_on(array)
    if STATE.recorder is not None:
        refuse_subclass(array, "argument 'array' of from_numpy")
    dtype = dtypes.from_numpy(array.dtype)
    itemsize = array.itemsize
    if any(step < 0 for step in array.strides):
        raise noted(
            ArgumentError(
                f"from_numpy: the array has strides {array.strides}, expected none negative"
            ),
            "Pass array.copy().",
        )
    if not array.flags.aligned or any(step % itemsize for step in array.strides):
        raise noted(
            ArgumentError(
                "from_numpy: the array's memory is misaligned, expected aligned elements"
            ),
            "Pass array.copy().",
        )
    stride = tuple([step // itemsize for step in array.strides])
    meta = tensor_meta(array.shape, stride, dtype)
    storage = Storage(_flat(array, meta.span), writable=array.flags.writeable)
    storage.exported = True
    return Tensor(storage, meta)


def _flat(array: np.ndarray, span: int) -> np.ndarray:
    """The memory from the array's first to its last element as a C-contiguous buffer."""
    if array.flags.c_contiguous and array.dtype.kind != "V":
        return array
    flat = np.lib.stride_tricks.as_strided(
        array, (span,), (array.itemsize,), writeable=array.flags.writeable
    )
    return flat.view(np.uint8)


def from_dlpack(x: object, *, device: object = None, copy: bool | None = None) -> Tensor:
    """A tensor on the memory of any object with `__dlpack__`; each sees the other's writes.

    `copy=True` copies; `device` moves the data. `copy=False` raises where a copy is needed.

    >>> import numpy as np
    >>> array = np.zeros(2)
    >>> _ = from_dlpack(array).add_(1)
    >>> array.tolist()
    [1.0, 1.0]
    """
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
        raise ArgumentError(f"from_dlpack: argument 'x' is {x!r}, expected one with __dlpack__")
    kind, index = x.__dlpack_device__()
    if kind == _HOST:
        made = from_numpy(np.from_dlpack(x))
    elif kind == _CUDA:
        arrays: Any = cuda_device(index, op="from_dlpack").arrays
        made = on_memory_of(arrays.quiet(arrays.cupy.from_dlpack, x))
    else:
        raise DeviceError(
            f"from_dlpack: the memory is of a device of kind {kind}, expected {_HOST} (the CPU) or "
            f"{_CUDA} (CUDA)"
        )
    return _placed("from_dlpack", made, device, copy)


def _placed(name: str, made: Tensor, device: Any, copy: bool | None) -> Tensor:
    place = made.device if device is None else device_of(name, device)
    if copy is False and place is not made.device:
        raise ArgumentError(f"{name}: copy is False, expected memory that is on {place}")
    moved: Tensor = made.to(place)
    return moved.clone() if copy and moved is made else moved


def is_foreign(data: object) -> bool:
    """Whether this is an object of another library with CUDA memory."""
    return not isinstance(data, Tensor) and hasattr(data, "__cuda_array_interface__")


def shared(data: Any) -> Tensor:
    """A tensor on the memory of an object with `__cuda_array_interface__`.

    Waits for the stream that the interface names, which may still be computing the data.
    """
    cupy = library().cupy
    if isinstance(data, cupy.ndarray):
        return on_memory_of(data)
    interface = data.__cuda_array_interface__
    absent = sorted({"shape", "typestr", "data", "version"} - {*interface})
    if absent:
        what = f"as_tensor: __cuda_array_interface__ has no {absent[0]!r}"
        raise ArgumentError(f"{what}, expected one")
    if any(step < 0 for step in interface.get("strides") or ()):
        raise _misplaced(interface["strides"], interface["data"][0])
    if interface.get("mask") is not None:
        raise ArgumentError("as_tensor: the array has a mask, expected one without")
    address = interface["data"][0]
    runtime = cupy.cuda.runtime
    index = runtime.pointerGetAttributes(address).device if address else runtime.getDevice()
    if index < 0:
        raise DeviceError(
            f"as_tensor: the memory at {address:#x} is of no CUDA device, expected one's memory; "
            "memory of the host is taken by from_numpy"
        )
    arrays: Any = cuda_device(index, op="as_tensor").arrays
    made = on_memory_of(arrays.quiet(cupy.asarray, data))
    made.storage.writable = not interface["data"][1]
    return made


def on_memory_of(array: Any) -> Tensor:
    """A tensor on the memory of a CuPy array, on any device."""
    device: Device = library().device(array.data.device_id)
    arrays: Any = device.arrays
    dtype = dtypes.from_numpy(array.dtype)
    if any(step < 0 or step % dtype.itemsize for step in array.strides) or (
        array.data.ptr % dtype.itemsize
    ):
        raise _misplaced(array.strides, array.data.ptr)
    stride = tuple([step // dtype.itemsize for step in array.strides])
    meta = tensor_meta(array.shape, stride, dtype, device)
    storage = Storage(Memory(arrays, array.data, meta.span * dtype.itemsize))
    storage.exported = True
    return Tensor(storage, meta)


def _misplaced(strides: object, address: int) -> ArgumentError:
    return noted(
        ArgumentError(
            f"as_tensor: the array has strides {strides} at address {address}, expected aligned "
            "elements, and strides that are not negative"
        ),
        "Pass array.copy().",
    )
