"""Helpers of pooling ops: windows of one size, checks, and gradients of maxima."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aotlite.ir import dtypes
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op.operand import Operand
from aotlite.ir.op.parameter_types import Number
from aotlite.ir.ops.declare import common_device
from aotlite.ir.ops.loops import Loops, LoopTensor, Place
from aotlite.ir.ops.nn.window import Given, Ints, Window, along_a_line, window_of
from aotlite.ir.ops.precision import OperandT
from aotlite.ir.ops.views.forms import in_shape
from aotlite.ir.scalar.expression import Scalar


def pool_window(
    name: str, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints
) -> Window:
    """The window; an empty stride means the kernel size, so that windows do not overlap."""
    window = window_of(name, kernel_size, stride or kernel_size, padding, dilation)
    for pad, size in zip(window.padding, window.kernel, strict=True):
        if pad > size // 2:
            raise ArgumentError(
                f"{name}: argument 'padding' is {padding}, expected at most half of the kernel "
                f"size {kernel_size}"
            )
    return window


def pool_size(name: str, shape: Ints, window: Window, ceil_mode: bool) -> Ints:
    """The result's shape. Raises ShapeError where no window fits."""
    out = tuple([_count(shape[axis - 2], window, axis, ceil_mode) for axis in (0, 1)])
    if any(n < 1 for n in out):
        raise ShapeError(
            f"{name}: the result's size is {out}, expected at least 1: the window {window.kernel} "
            f"is larger than shape {shape}"
        )
    return (*shape[:-2], *out)


def _count(size: int, window: Window, axis: int, ceil_mode: bool) -> int:
    """Windows that fit; with `ceil_mode` one that hangs over the end if it begins on the image."""
    step, pad = window.stride[axis], window.padding[axis]
    spare = size + 2 * pad - window.extent[axis]
    count = (spare + (step - 1 if ceil_mode else 0)) // step + 1
    return count - 1 if ceil_mode and (count - 1) * step >= size + pad else count


def check_image(name: str, self: TensorMeta) -> None:
    """Raises ShapeError unless it is (n, c, h, w) or (c, h, w), with none but n being 0."""
    if len(self.shape) not in (3, 4) or 0 in self.shape[1:]:
        raise ShapeError(
            f"{name}: the tensor has shape {self.shape}, expected 3 or 4 dimensions, all but the "
            "batch of at least 1"
        )


def lowest(xp: Any, dtype: np.dtype) -> Number:
    """The least number of an array's dtype."""
    return -float("inf") if dtypes.from_numpy(dtype).is_floating_point else int(xp.iinfo(dtype).min)


def to_maxima(grad_values: Operand, self: Operand, indices: Operand) -> Operand:
    """The gradient of maxima, given to the places that they were found at."""
    shape = self.shape
    planes = grad_values.new_zeros((*shape[:-2], shape[-2] * shape[-1]))
    places = (*indices.shape[:-2], indices.shape[-2] * indices.shape[-1])
    flat = planes.scatter_add(-1, in_shape(indices, places), in_shape(grad_values, places))
    return flat.view(shape)


def check_line(name: str, input: Operand) -> None:
    """Raises ShapeError unless it is (n, c, l) or (c, l)."""
    if input.ndim not in (2, 3):
        raise ShapeError(f"{name}: the tensor has shape {input.shape}, expected 2 or 3 dimensions")


def on_a_line(
    name: str, kernel_size: Given, stride: Given | None, padding: Given
) -> tuple[Ints, Ints, Ints]:
    """Kernel size, stride and padding on an image of one row."""
    size = along_a_line(name, "kernel_size", kernel_size)
    steps = size if stride is None else along_a_line(name, "stride", stride)
    return (1, *size), (1, *steps), (0, *along_a_line(name, "padding", padding))


def check_grad(name: str, grad_output: TensorMeta, expected: TensorMeta) -> None:
    """Raises unless the gradient is one of such a result."""
    common_device(name, [grad_output, expected])
    if grad_output.shape != expected.shape:
        raise ShapeError(
            f"{name}: argument 'grad_output' has shape {grad_output.shape}, expected "
            f"{expected.shape}, the shape of the pooling's result"
        )
    if grad_output.dtype is not expected.dtype:
        raise DTypeError(
            f"{name}: argument 'grad_output' has dtype {grad_output.dtype}, expected "
            f"{expected.dtype}"
        )


_BEYOND = 2**63 - 1
"""The place of what is beside the image: of equal elements the first one is chosen."""


def plane_of(row: Sequence[Place]) -> tuple[Sequence[Place], Place, Place]:
    """(positions before the plane, row, column)."""
    return row[:-2], row[-2], row[-1]


def candidate(
    k: Loops, a: LoopTensor, at: tuple[Any, ...], inside: Scalar
) -> tuple[Scalar, Scalar]:
    """(value, place in the plane) of an element, which counts for nothing if it is not inside."""
    value = k.wide(a[at])
    least = lowest(np, value.dtype.numpy)
    row, column = at[-2] * a.shape[-1], at[-1]
    affine = hasattr(column, "extents")
    place = k.position(column + row if affine else k.position(row) + column)
    return k.where(inside, value, least), k.where(inside, place, _BEYOND)


def standing(window: Window, at: Any, place: Any) -> list[Any]:
    """Row and column of the image at a place of the window that stands at these positions."""
    return [
        at[axis] * window.stride[axis] + place[axis] * window.dilation[axis] - window.padding[axis]
        for axis in (0, 1)
    ]


def with_indices(values: OperandT, indices: OperandT) -> OperandT:
    """The pair, which is one operand to type checkers: they let any operand be unpacked."""
    pair: Any = (values, indices)
    return pair
