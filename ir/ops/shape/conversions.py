"""Composites that convert a tensor's dtype, device or layout: `to`, `clone`, `contiguous`, `long`.

Where nothing changes they return the operand itself, as PyTorch's do (FUN-13).
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.arrays.cuda_devices import device_named
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.dtypes import DType, as_dtype
from aotlite.ir.errors import ArgumentError
from aotlite.ir.geometry.memory_format import MemoryFormat, has_format, preserve_format, strides_in
from aotlite.ir.op import schema_of
from aotlite.ir.op.composite import composite
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.shape.memory_format import suggested_format

_REST = "bool non_blocking=False, bool copy=False, *, memory_format? memory_format=None"
_TO_DTYPE = schema_of(f"to(Tensor self, dtype dtype, {_REST}) -> Tensor")
_TO_OTHER = schema_of(f"to(Tensor self, Tensor tensor, {_REST}) -> Tensor")
_TO_DEVICE = schema_of(
    f"to(Tensor self, device? device=None, dtype? dtype=None, {_REST}) -> Tensor"
)


@composite()
def to(self: Operand, *args: object, **kwargs: object) -> Operand:
    """The tensor in a dtype, on a device, in a memory format; itself if it is so already.

    `to(dtype)`, `to(device, dtype)` and `to(other)` take `copy` and `memory_format` too. A copy to
    another device is differentiable (DEV-7).
    """
    if len(args) == 1 and type(args[0]) is DType and not kwargs:
        return self if self.dtype is args[0] else self._do("cast", args[0])
    if args and isinstance(args[0], type):
        args = (as_dtype(args[0]), *args[1:])
    first = args[0] if args else None
    bound: Any
    device = None
    if type(first) is DType:
        bound = _TO_DTYPE.bind((self, *args), kwargs)
        dtype = bound[1]
    elif hasattr(first, "meta") or "tensor" in kwargs:
        bound = _TO_OTHER.bind((self, *args), kwargs)
        dtype = bound[1].dtype
        device = bound[1].device
    else:
        args, kwargs = _with_device(args, kwargs)
        bound = _TO_DEVICE.bind((self, *args), kwargs)
        dtype = bound[2] or self.dtype
        device = bound[1]
    if device is not None and device is not self.device:
        return _converted(_on(self, device, dtype), dtype, bound[-1], copy=False)
    return _converted(self, dtype, bound[-1], copy=bound[-2])


def _with_device(args: tuple[object, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """The arguments with the device of this name, if one is named."""
    if args and type(args[0]) is str:
        return (device_named(args[0], op="to"), *args[1:]), kwargs
    if type(kwargs.get("device")) is str:
        return args, {**kwargs, "device": device_named(kwargs["device"], op="to")}
    return args, kwargs


def _on(self: Operand, device: Device, dtype: DType) -> Operand:
    """The tensor on another device; it is cast before the copy where that makes it smaller."""
    if dtype.itemsize < self.dtype.itemsize:
        self = self._do("cast", dtype)
    return self._do("to_device", device)


def _converted(
    self: Operand, dtype: DType, format_: MemoryFormat | None, *, copy: builtins.bool
) -> Operand:
    same = dtype is self.dtype
    kept = format_ in (None, preserve_format) or format_ is suggested_format(self.meta)
    if same and not copy and kept:
        return self
    stride = strides_in(format_, self.shape, self.stride(), op="to")
    if same:
        return self._do("restride", stride)
    cast = self._do("cast", dtype)
    return cast if cast.stride() == stride else cast._do("restride", stride)


@composite("type_as(Tensor self, Tensor other) -> Tensor")
def type_as(self: Operand, other: Operand) -> Operand:
    """`to` the dtype of `other`."""
    return self.to(other.dtype)


@composite("cpu(Tensor self, *, memory_format? memory_format=None) -> Tensor")
def cpu(self: Operand, memory_format: MemoryFormat | None) -> Operand:
    """`to` the host's memory."""
    return self.to(CPU, memory_format=memory_format)


@composite(
    "cuda(Tensor self, device? device=None, bool non_blocking=False, *, "
    "memory_format? memory_format=None) -> Tensor"
)
def cuda(
    self: Operand, device: Device | None, non_blocking: bool, memory_format: MemoryFormat | None
) -> Operand:
    """`to` a CUDA device, the current one if none is given."""
    return self.to(device or device_named("cuda", op="cuda"), memory_format=memory_format)


def _declare_cast(name: str, dtype: DType) -> None:
    def cast(self: Operand, memory_format: MemoryFormat | None) -> Operand:
        if memory_format is None:
            return self if self.dtype is dtype else self._do("cast", dtype)
        return self.to(dtype, memory_format=memory_format)

    cast.__doc__ = f"`to({dtype})`."
    declare: Callable[..., object] = composite(
        f"{name}(Tensor self, *, memory_format? memory_format=None) -> Tensor"
    )
    declare(cast)


for _name, _dtype in {
    "float": dtypes.float32,
    "double": dtypes.float64,
    "half": dtypes.float16,
    "bfloat16": dtypes.bfloat16,
    "char": dtypes.int8,
    "byte": dtypes.uint8,
    "short": dtypes.int16,
    "int": dtypes.int32,
    "long": dtypes.int64,
    "bool": dtypes.bool_,
    "cfloat": dtypes.complex64,
    "cdouble": dtypes.complex128,
}.items():
    _declare_cast(_name, _dtype)


@composite("clone(Tensor self, *, memory_format? memory_format=None) -> Tensor")
def clone(self: Operand, memory_format: MemoryFormat | None) -> Operand:
    """A copy in memory of its own; strides are kept where they are dense."""
    if memory_format is None or memory_format is preserve_format:
        return self._run("clone")
    stride = strides_in(memory_format, self.shape, self.stride(), op="clone")
    return self._do("restride", stride)


@composite("contiguous(Tensor self, *, memory_format? memory_format=None) -> Tensor")
def contiguous(self: Operand, memory_format: MemoryFormat | None) -> Operand:
    """Itself if its elements lie row-major (or in the format given), else a copy that is so."""
    if memory_format is None:
        meta = self.meta
        return self if meta.contiguous else self._do("restride", meta.as_contiguous().stride)
    if memory_format is preserve_format:
        raise ArgumentError(
            f"contiguous: argument 'memory_format' is {memory_format}, expected a format that says "
            "where elements lie"
        )
    stride = strides_in(memory_format, self.shape, self.stride(), op="contiguous")
    if has_format(memory_format, self.shape, self.stride()):
        return self
    return self._do("restride", stride)
