"""Tensors from nothing and from data: `tensor`, `from_numpy`, `zeros`, `arange`, `cat`, ..."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from aotlite.eager.state import STATE
from aotlite.eager.storage import Storage
from aotlite.eager.tensor import Tensor
from aotlite.ir import dtypes, layout
from aotlite.ir.arrays import NUMPY, copied
from aotlite.ir.device import CPU, Device
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError, DeviceError, noted
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS


def tensor(
    data: Any,
    *,
    dtype: DType | None = None,
    device: Device = CPU,
    requires_grad: builtins.bool = False,
) -> Tensor:
    """A new leaf with a copy of `data` (numbers, nested lists, arrays, tensors).

    Python floats become float32, integers int64, as in PyTorch.

    >>> tensor([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    if isinstance(data, Tensor):
        out: Tensor = data.detach().clone().to(dtype or data.dtype)
        return out.requires_grad_(requires_grad) if requires_grad else out
    host = data if isinstance(data, (np.ndarray, np.generic)) else _from_python(data)
    dtype = dtype or _dtype_of(data, np.asarray(host))
    meta = tensor_meta(np.shape(host), None, dtype, device)
    made = Tensor(Storage(copied(device.arrays, host, meta)), meta)
    recorder = STATE.recorder
    if recorder is not None:
        made = recorder.constant(host, made)
    return made.requires_grad_() if requires_grad else made


def _from_python(data: Any) -> np.ndarray:
    try:
        host = np.asarray(data)
    except ValueError as error:
        raise ArgumentError(
            "tensor: the nested lists differ in length, expected a full array"
        ) from error
    if host.dtype == object or host.dtype.kind in "USMmV":
        raise ArgumentError(
            f"tensor: argument 'data' is {data!r}, expected numbers in nested lists"
        )
    return host


def _dtype_of(data: Any, host: np.ndarray) -> DType:
    if isinstance(data, (np.ndarray, np.generic)):
        return dtypes.from_numpy(host.dtype)
    kind = {"b": False, "i": 0, "u": 0, "f": 0.0, "c": 0j}[host.dtype.kind]
    return dtypes.dtype_of_scalar(kind) if host.size else dtypes.default_dtype


def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor on the memory of `array`; writes are seen both ways. Never copies.

    A read-only array gives a tensor that cannot be written. Raises ArgumentError for negative
    strides and misaligned memory, DTypeError for object, big-endian and unknown dtypes.
    """
    if not isinstance(array, np.ndarray):
        raise ArgumentError(f"from_numpy: argument 'array' is {array!r}, expected a NumPy array")
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


def full(
    size: Sequence[int] | int,
    fill_value: Any,
    *,
    dtype: DType | None = None,
    device: Device = CPU,
    requires_grad: builtins.bool = False,
) -> Tensor:
    """A tensor of this size with one value everywhere."""
    return _made("full", (size, fill_value), dtype, device, requires_grad)


def zeros(
    *size: Any,
    dtype: DType | None = None,
    device: Device = CPU,
    requires_grad: builtins.bool = False,
) -> Tensor:
    """Zeros, float32 unless said otherwise. `zeros(2, 3)` and `zeros((2, 3))` are the same."""
    return full(_size(size), 0.0, dtype=dtype, device=device, requires_grad=requires_grad)


def ones(
    *size: Any,
    dtype: DType | None = None,
    device: Device = CPU,
    requires_grad: builtins.bool = False,
) -> Tensor:
    """Ones, float32 unless said otherwise."""
    return full(_size(size), 1.0, dtype=dtype, device=device, requires_grad=requires_grad)


def empty(*size: Any, dtype: DType | None = None, device: Device = CPU) -> Tensor:
    """A tensor whose values are not to be relied on; here it holds zeros, so runs repeat."""
    return zeros(*size, dtype=dtype, device=device)


def zeros_like(tensor: Tensor, *, dtype: DType | None = None) -> Tensor:
    """Zeros with the shape, dtype, device and, where dense, the strides of `tensor`."""
    return _filled_like(tensor, 0, dtype)


def ones_like(tensor: Tensor, *, dtype: DType | None = None) -> Tensor:
    """Ones with the shape, dtype, device and, where dense, the strides of `tensor`."""
    return _filled_like(tensor, 1, dtype)


def _filled_like(tensor: Tensor, value: int, dtype: DType | None) -> Tensor:
    made = full(tensor.shape, value, dtype=dtype or tensor.dtype, device=tensor.device)
    stride = layout.clone_strides(tensor.shape, tensor.stride())
    return made if made.stride() == stride else made.restride(stride)


def rand(
    *size: Any,
    dtype: DType | None = None,
    device: Device = CPU,
    requires_grad: builtins.bool = False,
) -> Tensor:
    """Uniform numbers in [0, 1) from the default generator (RNG-12)."""
    return _made("rand", (_size(size),), dtype, device, requires_grad)


def arange(start: Any, end: Any = None, step: Any = 1, *, dtype: DType | None = None) -> Tensor:
    """Numbers from `start` (0 if only one bound is given) up to `end`, without it."""
    if end is None:
        start, end = 0, start
    if step == 0:
        raise ArgumentError("arange: step is 0, expected another number")
    count = max(0, int(np.ceil((end - start) / step)))
    start = start + (end - end)  # float where the end is one, as the result's dtype shows
    return _made("arange_of", (count, start, step), dtype, CPU, False)


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors joined along an existing dimension."""
    return call("cat", tuple(tensors), dim)


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors joined along a new dimension."""
    return call("stack", tuple(tensors), dim)


def where(condition: Tensor, value: Any, other: Any) -> Tensor:
    """`value` where the condition holds, `other` elsewhere."""
    return call("where", condition, value, other)


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    """The op of this name on these arguments."""
    from aotlite.eager.dispatch import dispatch

    op = OPS[name]
    return dispatch(op, op.bind(args, kwargs))


def _made(
    name: str,
    args: tuple[Any, ...],
    dtype: DType | None,
    device: Device,
    requires_grad: builtins.bool,
) -> Tensor:
    made: Tensor = call(name, *args, dtype=dtype, device=device)
    return made.requires_grad_() if requires_grad else made


def _size(size: tuple[Any, ...]) -> Any:
    return size[0] if len(size) == 1 and isinstance(size[0], (tuple, list)) else size


def as_ndarray(tensor: Tensor) -> np.ndarray:
    """The tensor's memory as an ndarray, history or not. Raises DeviceError for other memory."""
    if tensor.device.arrays is not NUMPY:
        raise DeviceError(f"numpy: the tensor is on {tensor.device}, expected NumPy's memory")
    array: np.ndarray = tensor.array
    return array
