"""New values of the size, dtype, device and layout of a tensor: `zeros_like`, `new_zeros`, ...

Composites. Those named `*_like` take everything from the tensor, also its strides where these are
dense; those named `new_*` its dtype and device.
"""

from __future__ import annotations

from typing import Any

from aotlite.ir.dtypes import DType
from aotlite.ir.geometry.memory_format import MemoryFormat, strides_in
from aotlite.ir.op.composite import composite

_WISHES = "dtype? dtype=None, device? device=None, bool requires_grad=False"
_LIKE = f"{_WISHES}, memory_format? memory_format=None"
Size = tuple[int, ...]


def made_like(
    self: Any, made: Any, op: str, requires_grad: bool, memory_format: MemoryFormat | None
) -> Any:
    """The contiguous new tensor `made`, of the shape of `self`, in the requested memory format."""
    stride = strides_in(memory_format, self.shape, self.stride(), op=op)
    if made.stride() != stride:
        made = made._do("restride", stride)
    return made.requires_grad_() if requires_grad else made


def _filled_like(
    op: str,
    self: Any,
    value: Any,
    dtype: DType | None,
    device: Any,
    rest: tuple[bool, MemoryFormat | None],
) -> Any:
    made = _filled(self, self.shape, value, dtype, device)
    return made_like(self, made, op, *rest)


def _filled(self: Any, size: Size, value: Any, dtype: DType | None, device: Any) -> Any:
    return self._filled(size, value, dtype or self.dtype, device or self.device)


@composite(f"zeros_like(Tensor self, *, {_LIKE}) -> Tensor", is_method=False)
def zeros_like(
    self: Any,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Any:
    """Zeros with the shape, dtype, device and, where dense, the strides of a tensor."""
    return _filled_like("zeros_like", self, 0, dtype, device, (requires_grad, memory_format))


@composite(f"ones_like(Tensor self, *, {_LIKE}) -> Tensor", is_method=False)
def ones_like(
    self: Any,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Any:
    """Ones with the shape, dtype, device and, where dense, the strides of a tensor."""
    return _filled_like("ones_like", self, 1, dtype, device, (requires_grad, memory_format))


@composite(f"empty_like(Tensor self, *, {_LIKE}) -> Tensor", is_method=False)
def empty_like(
    self: Any,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    memory_format: MemoryFormat | None = None,
) -> Any:
    """A tensor like another with unspecified values; here zeros, so that runs are reproducible."""
    return _filled_like("empty_like", self, 0, dtype, device, (requires_grad, memory_format))


@composite(f"full_like(Tensor self, Scalar fill_value, *, {_LIKE}) -> Tensor", is_method=False)
def full_like(
    self: Any,
    fill_value: Any,
    dtype: DType | None,
    device: Any,
    requires_grad: bool,
    memory_format: MemoryFormat | None,
) -> Any:
    """One value everywhere, with the shape, dtype, device and strides of a tensor."""
    rest = (requires_grad, memory_format)
    return _filled_like("full_like", self, fill_value, dtype, device, rest)


# --------------------------------------------------------------------------------------- new_*
def _new(
    self: Any, size: Size, value: Any, dtype: DType | None, device: Any, requires_grad: bool
) -> Any:
    made = _filled(self, size, value, dtype, device)
    return made.requires_grad_() if requires_grad else made


@composite(f"new_full(Tensor self, int[] size, Scalar fill_value, *, {_WISHES}) -> Tensor")
def new_full(
    self: Any, size: Size, fill_value: Any, dtype: DType | None, device: Any, requires_grad: bool
) -> Any:
    """A tensor of this size filled with a value, of this one's dtype and device."""
    return _new(self, size, fill_value, dtype, device, requires_grad)


@composite(f"new_zeros(Tensor self, int[] size, *, {_WISHES}) -> Tensor", spread=True)
def new_zeros(self: Any, size: Size, dtype: DType | None, device: Any, requires_grad: bool) -> Any:
    """Zeros of this size, of this tensor's dtype and device."""
    return _new(self, size, 0, dtype, device, requires_grad)


@composite(f"new_ones(Tensor self, int[] size, *, {_WISHES}) -> Tensor", spread=True)
def new_ones(self: Any, size: Size, dtype: DType | None, device: Any, requires_grad: bool) -> Any:
    """Ones of this size, of this tensor's dtype and device."""
    return _new(self, size, 1, dtype, device, requires_grad)


@composite(f"new_empty(Tensor self, int[] size, *, {_WISHES}) -> Tensor", spread=True)
def new_empty(self: Any, size: Size, dtype: DType | None, device: Any, requires_grad: bool) -> Any:
    """A tensor of this size with unspecified values; here zeros, so that runs are reproducible."""
    return _new(self, size, 0, dtype, device, requires_grad)


@composite(f"new_empty_strided(Tensor self, int[] size, int[] stride, *, {_WISHES}) -> Tensor")
def new_empty_strided(
    self: Any, size: Size, stride: Size, dtype: DType | None, device: Any, requires_grad: bool
) -> Any:
    """`new_empty` with these strides."""
    made = _filled(self, size, 0, dtype, device)._do("restride", stride)
    return made.requires_grad_() if requires_grad else made
