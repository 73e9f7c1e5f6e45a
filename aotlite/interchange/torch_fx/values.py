"""PyTorch's values for aotlite's literals, dtypes, devices, arrays and metas, and back.

The modules of this package import torch here, and only in calls. Spec: `specs/torch_fx.md`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from aotlite.ir.arrays.cuda_devices import device_named
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.dtypes import DTYPES, DType, by_name
from aotlite.ir.errors import DTypeError, MissingExtraError, UnsupportedError
from aotlite.ir.geometry import memory_format
from aotlite.ir.geometry.memory_format import MemoryFormat
from aotlite.ir.meta import TensorMeta, tensor_meta


def the_torch() -> Any:
    """The module torch. Raises MissingExtraError where it is not installed."""
    try:
        import torch
        import torch.fx
    except ImportError as error:
        raise MissingExtraError(
            "torch_fx: torch is not installed, expected it; install aotlite[torch]"
        ) from error
    return torch


@cache
def dtypes_to_torch() -> dict[DType, Any]:
    """aotlite's dtype -> PyTorch's."""
    torch = the_torch()
    return {dtype: getattr(torch, dtype.name.rstrip("_")) for dtype in DTYPES}


def dtype_from_torch(dtype: Any) -> DType:
    """The dtype of this name. Raises DTypeError for one that aotlite lacks."""
    name = str(dtype).removeprefix("torch.")
    for own, theirs in dtypes_to_torch().items():
        if theirs is dtype:
            return own
    known = ", ".join(each.name for each in DTYPES)
    raise DTypeError(f"from_fx: the dtype is {name}, expected one of {known}")


def to_torch(value: object) -> Any:
    """PyTorch's form of a literal of a graph: lists for tuples, its own dtypes and devices."""
    torch = the_torch()
    match value:
        case DType():
            return dtypes_to_torch()[value]
        case Device():
            return torch.device(str(value))
        case MemoryFormat():
            return getattr(torch, value.name)
        case tuple():
            return [to_torch(each) for each in value]
    return value


def from_torch(value: Any) -> Any:
    """The literal of a graph for PyTorch's value; tuples for lists."""
    torch = the_torch()
    if isinstance(value, torch.dtype):
        return dtype_from_torch(value)
    if isinstance(value, torch.device):
        return CPU if value.type == "cpu" else device_named(str(value))
    if isinstance(value, torch.memory_format):
        return getattr(memory_format, str(value).removeprefix("torch."))
    if isinstance(value, (list, tuple)):
        return tuple([from_torch(each) for each in value])
    return value


def tensor_from(array: np.ndarray) -> Any:
    """The tensor on an array's memory."""
    torch = the_torch()
    if not array.flags.writeable:
        array = _writable(array)
    if array.dtype.kind in "V?biufc" and array.dtype.name in _PLAIN:
        return torch.from_numpy(array)
    bits = array.view(f"u{array.dtype.itemsize}")
    return torch.from_numpy(bits).view(dtypes_to_torch()[by_name(array.dtype.name)])


def _writable(array: np.ndarray) -> np.ndarray:
    """A copy that may be written, with the strides of the array: elements of one address stay one.

    >>> _writable(np.broadcast_to(np.float64(1.0), (2, 3))).strides
    (0, 0)
    """
    if not array.size or min(array.strides, default=0) < 0:
        return array.copy()
    low, high = byte_bounds(array)
    memory = np.empty(high - low, np.uint8)
    copy: np.ndarray = np.ndarray(array.shape, array.dtype, memory, 0, array.strides)
    copy[...] = array
    return copy


_PLAIN = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 "
    "complex128".split()
)
"""The dtypes that NumPy has itself."""


def array_from(tensor: Any) -> np.ndarray:
    """The array on the memory of a tensor of the CPU."""
    torch = the_torch()
    tensor = tensor.detach().resolve_conj().resolve_neg()
    dtype = dtype_from_torch(tensor.dtype)
    if dtype.name.rstrip("_") in _PLAIN:
        array: np.ndarray = tensor.numpy()
        return array
    bits = {1: torch.uint8, 2: torch.int16}[dtype.itemsize]
    found: np.ndarray = tensor.view(bits).numpy().view(dtype.numpy)
    return found


def meta_of(tensor: Any) -> TensorMeta:
    """The meta of a tensor, which may be fake, with numbers for sizes.

    Raises UnsupportedError for a layout without strides, as that of a sparse tensor.
    """
    if tensor.layout is not the_torch().strided:
        raise UnsupportedError(
            f"from_fx: a tensor has the layout {tensor.layout}, expected torch.strided"
        )
    shape, stride = _numbers(tensor.shape), _numbers(tensor.stride())
    device = from_torch(tensor.device)
    return tensor_meta(shape, stride, dtype_from_torch(tensor.dtype), device)


def _numbers(sizes: Sequence[Any]) -> tuple[int, ...]:
    return tuple([int(size) for size in sizes])


def fake_of(meta: TensorMeta, offset: int = 0) -> Any:
    """A new tensor of this meta, its first element at `offset`; fake in a fake mode."""
    torch = the_torch()
    dtype, device = dtypes_to_torch()[meta.dtype], to_torch(meta.device)
    memory = torch.empty(offset + meta.span, dtype=dtype, device=device)
    return memory.as_strided(meta.shape, meta.stride, offset)


def is_same_layout(a: TensorMeta, b: TensorMeta) -> bool:
    """Whether the strides of two metas of one shape differ but where no step is taken."""
    sizes = zip(a.shape, a.stride, b.stride, strict=True)
    return not a.numel or all(size < 2 or x == y for size, x, y in sizes)


@contextmanager
def quiet_log() -> Iterator[None]:
    """PyTorch logs errors of fake tensors that it also raises; inside it does not."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before


def real_tensors() -> Any:
    """A context in which tensors have values, also inside of a fake mode."""
    from torch.utils._python_dispatch import _disable_current_modes

    return _disable_current_modes()
