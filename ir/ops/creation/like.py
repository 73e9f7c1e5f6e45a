"""New values of the size, dtype, device and layout of a tensor: `zeros_like`, `new_zeros`, ...

Composites. Those named `*_like` take everything from the tensor, also its strides where these are
dense; those named `new_*` its dtype and device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlite.ir.arrays.device import Device
from aotlite.ir.dtypes import DType
from aotlite.ir.geometry.memory_format import MemoryFormat, strides_in
from aotlite.ir.op.composite import COMPOSITES, composite
from aotlite.ir.op.operand import Operand
from aotlite.ir.op.parameter_types import Number

_WISHES = "dtype? dtype=None, device? device=None, bool requires_grad=False"
_LIKE = f"{_WISHES}, memory_format? memory_format=None"
Size = tuple[int, ...]


def made_like(
    self: Operand, made: Operand, op: str, requires_grad: bool, memory_format: MemoryFormat | None
) -> Operand:
    """The contiguous new tensor `made`, of the shape of `self`, in the requested memory format."""
    stride = strides_in(memory_format, self.shape, self.stride(), op=op)
    if made.stride() != stride:
        made = made._do("restride", stride)
    return made.requires_grad_() if requires_grad else made


def _declare(
    schema: str, value: Number | None, doc: str, *, like: bool = False, spread: bool = False
) -> Callable[..., Any]:
    """Declares, and returns, `name(Tensor self, ...)`: one value, of a size or `like` self.

    `value` is None where the call gives it, after the size if it gives that, too.
    """
    name = schema.partition("(")[0]

    def make(self: Operand, *args: Any) -> Operand:
        size, *fill = (self.shape, *args) if like else args
        fill_value = fill.pop(0) if value is None else value
        dtype, device, requires_grad, *memory_format = fill
        made = self._filled(size, fill_value, dtype or self.dtype, device or self.device)
        if like:
            return made_like(self, made, name, requires_grad, *memory_format)
        return made.requires_grad_() if requires_grad else made

    make.__doc__ = doc
    rest = _LIKE if like else _WISHES
    composite(f"{schema}, *, {rest}) -> Tensor", is_method=not like, spread=spread)(make)
    return COMPOSITES[name].call


OF_SELF = "with the shape, dtype, device and, where dense, the strides of a tensor."
_UNSPECIFIED = "with unspecified values; here zeros, so that runs are reproducible."

zeros_like = _declare("zeros_like(Tensor self", 0, f"Zeros {OF_SELF}", like=True)
ones_like = _declare("ones_like(Tensor self", 1, f"Ones {OF_SELF}", like=True)
_declare("empty_like(Tensor self", 0, f"A tensor like another {_UNSPECIFIED}", like=True)
_declare(
    "full_like(Tensor self, Scalar fill_value",
    None,
    "One value everywhere, with the shape, dtype, device and strides of a tensor.",
    like=True,
)
_declare(
    "new_full(Tensor self, int[] size, Scalar fill_value",
    None,
    "A tensor of this size filled with a value, of this one's dtype and device.",
)
_SIZE = "(Tensor self, int[] size"
_OF_SIZE = "of this size, of this tensor's dtype and device."
_declare("new_zeros" + _SIZE, 0, f"Zeros {_OF_SIZE}", spread=True)
_declare("new_ones" + _SIZE, 1, f"Ones {_OF_SIZE}", spread=True)
_declare("new_empty" + _SIZE, 0, f"A tensor of this size {_UNSPECIFIED}", spread=True)


@composite(f"new_empty_strided(Tensor self, int[] size, int[] stride, *, {_WISHES}) -> Tensor")
def new_empty_strided(
    self: Operand,
    size: Size,
    stride: Size,
    dtype: DType | None,
    device: Device,
    requires_grad: bool,
) -> Operand:
    """`new_empty` with these strides."""
    made = self._filled(size, 0, dtype or self.dtype, device or self.device)
    made = made._do("restride", stride)
    return made.requires_grad_() if requires_grad else made
