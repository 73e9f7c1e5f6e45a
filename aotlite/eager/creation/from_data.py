"""Tensors from data: `tensor`, `as_tensor`, `from_numpy`; and `where`."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from aotlite.eager.base.devices import device_of, not_on_host
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.creation.array_stand_in import is_stand_in, refuse_subclass, tensor_on
from aotlite.eager.creation.data_array import host_array
from aotlite.eager.creation.factories import arange, empty, full, ones, zeros
from aotlite.eager.creation.interop import from_numpy, shared
from aotlite.eager.creation.namespace import into
from aotlite.eager.creation.random_factories import rand
from aotlite.eager.dispatch.named_call import call
from aotlite.ir import dtypes
from aotlite.ir.arrays import NUMPY, copied
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.dtypes import DType, as_dtype
from aotlite.ir.errors import ArgumentError
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op.parameter_types import fitted
from aotlite.ir.ops.creation.like import ones_like, zeros_like
from aotlite.ir.symbols.floats.symfloat import SymFloat
from aotlite.ir.symbols.symint import SymInt

__all__ = [
    "arange",
    "as_ndarray",
    "as_tensor",
    "asarray",
    "call",
    "empty",
    "from_numpy",
    "full",
    "ones",
    "ones_like",
    "rand",
    "tensor",
    "where",
    "zeros",
    "zeros_like",
]


def tensor(
    data: object,
    *,
    dtype: DType | type | None = None,
    device: Device | str | None = None,
    requires_grad: builtins.bool = False,
) -> Tensor:
    """A new leaf tensor with a copy of `data` (numbers, nested lists, arrays, tensors).

    Python floats become float32, integers int64, as in PyTorch.

    >>> tensor([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    dtype = None if dtype is None else dtype_of("tensor", dtype)
    place = device_of("tensor", device)
    data = _not_stood_in(data)
    if type(data) is SymInt and dtype in (None, dtypes.int64):
        data = fitted(data)
    if type(data) is SymInt and dtype in (None, dtypes.int64):
        return full((), data, dtype=dtypes.int64, device=place, requires_grad=requires_grad)
    if type(data) is SymFloat and dtype in (None, dtypes.float32, dtypes.float64):
        return full((), data, dtype=dtype, device=place, requires_grad=requires_grad)
    if isinstance(data, Tensor):
        there = data.device if device is None else place
        out: Tensor = data.detach().clone().to(there, dtype or data.dtype)
        return out.requires_grad_(requires_grad) if requires_grad else out
    if hasattr(data, "__cuda_array_interface__"):
        seen = shared(data)
        copied_: Tensor = seen.clone().to(seen.device if device is None else place, dtype)
        return copied_.requires_grad_(requires_grad)
    if STATE.recorder is not None and isinstance(data, np.ndarray):
        refuse_subclass(data, "argument 'data' of tensor")
    host, inferred = host_array(data, dtype)
    dtype = dtype or inferred
    meta = tensor_meta(np.shape(host), None, dtype, place)
    made = Tensor(Storage(copied(place.arrays, host, meta)), meta)
    recorder = STATE.recorder
    if recorder is not None:
        made = recorder.constant(made._data, made)
    return made.requires_grad_() if requires_grad else made


def new_tensor(
    like: Tensor,
    data: object,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: builtins.bool = False,
) -> Tensor:
    """`tensor(data)` with this tensor's dtype and device."""
    return tensor(
        data,
        dtype=dtype or like.dtype,
        device=device or like.device,
        requires_grad=requires_grad,
    )


def dtype_of(op: str, dtype: DType | type) -> DType:
    """The given dtype, or the one that a Python type stands for."""
    found = as_dtype(dtype)
    if not isinstance(found, DType):
        raise ArgumentError(f"{op}: argument 'dtype' is {dtype!r}, expected a dtype")
    return found


def as_tensor(
    data: object, dtype: DType | type | None = None, device: Device | str | None = None
) -> Tensor:
    """`data` as a tensor that shares its memory where dtype and device allow it; else a copy.

    A tensor keeps its history.
    """
    data = _not_stood_in(data)
    if isinstance(data, Tensor):
        place = data.device if device is None else device_of("as_tensor", device)
        moved: Tensor = data.to(place, dtype or data.dtype)
        return moved
    if hasattr(data, "__cuda_array_interface__"):
        found: Tensor = shared(data)
        place = found.device if device is None else device_of("as_tensor", device)
        return found.to(place, dtype or found.dtype)
    if isinstance(data, np.ndarray) and device_of("as_tensor", device) is CPU:
        made = from_numpy(data)
        return made if dtype is None else made.to(dtype)
    return tensor(data, dtype=dtype, device=device or CPU)


def asarray(
    obj: object,
    *,
    dtype: DType | type | None = None,
    device: Device | str | None = None,
    copy: builtins.bool | None = None,
    requires_grad: builtins.bool = False,
) -> Tensor:
    """`as_tensor` that always copies if `copy` is True, and raises instead of it if it is False."""
    obj = _not_stood_in(obj)
    made = as_tensor(obj, dtype, device)
    shares = made is obj or _is_shared(made, obj)
    if copy is False and not shares:
        raise ArgumentError("asarray: copy is False, expected data of this dtype to be shared")
    if copy and shares:
        made = made.clone()
    if made.requires_grad and not requires_grad:
        made = made.detach()
    return made.requires_grad_() if requires_grad else made


def _not_stood_in(data: object) -> object:
    """The data; for a stand-in of an ndarray, a tensor on its memory (NDA-6)."""
    return tensor_on(data) if is_stand_in(data) else data


def _is_shared(made: Tensor, given: object) -> builtins.bool:
    """Whether a tensor that was made from an array shares its memory."""
    if isinstance(given, np.ndarray):
        return made.device is CPU and made.dtype.numpy == given.dtype
    interface = getattr(given, "__cuda_array_interface__", None)
    return interface is not None and made.data_ptr() == interface["data"][0]


def where(
    condition: Tensor, input: object = None, other: object = None, *, out: Tensor | None = None
) -> Any:
    """`input` where the condition holds, `other` elsewhere; for a condition alone, its `nonzero`.

    Not derived from the method, `input.where(condition, other)`, which has another order.
    """
    if not isinstance(condition, Tensor):
        raise ArgumentError(f"where: argument 'condition' is {condition!r}, expected a tensor")
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    if out is None:
        return call("where", condition, input, other)
    return into("where", call, ("where", condition, input, other), {}, out)


def as_ndarray(tensor: Tensor) -> np.ndarray:
    """The tensor's memory as a NumPy array, even if it has a history. Raises DeviceError for memory
    of a device."""
    if tensor.device.arrays is not NUMPY:
        raise not_on_host(tensor.device)
    array: np.ndarray = tensor._data
    return array
