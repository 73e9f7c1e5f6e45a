"""The memory format of results of image ops, by PyTorch's rules."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aotlite.ir.geometry import layout, sizes
from aotlite.ir.geometry.memory_format import (
    MemoryFormat,
    channels_last,
    channels_last_3d,
    contiguous_format,
)
from aotlite.ir.geometry.sizes import Shape, Stride
from aotlite.ir.meta import TensorMeta, tensor_meta


def suggests_channels_last(meta: TensorMeta) -> bool:
    """Whether the strides order the dimensions channels-last (`Tensor::suggest_memory_format`).

    Gaps are allowed. Strides that fit both formats, as for one channel, count as contiguous.
    """
    shape, stride = meta.shape, meta.stride
    if len(shape) not in (4, 5) or stride[1] == 0:
        return False
    least = 0
    for dim in (1, *range(len(shape) - 1, 1, -1), 0):
        if shape[dim] == 0 or stride[dim] < least or (dim == 0 and least == stride[1]):
            return False
        least = stride[dim] * sizes.at_least_one(shape[dim])
    return True


def suggested_format(meta: TensorMeta) -> MemoryFormat:
    """The memory format of a tensor's strides (`Tensor::suggest_memory_format`)."""
    if not suggests_channels_last(meta):
        return contiguous_format
    return channels_last if len(meta.shape) == 4 else channels_last_3d


def image_strides(shape: Shape, *, channels_last: bool) -> Stride:
    """The strides of a fresh result of this shape."""
    if channels_last:
        return layout.channels_last_strides(shape)
    return layout.contiguous_strides(shape)


def image_like(like: TensorMeta, shape: Shape) -> TensorMeta:
    """The meta of a fresh result of this shape in the memory format of `like`."""
    stride = image_strides(shape, channels_last=suggests_channels_last(like))
    return tensor_meta(shape, stride, like.dtype, like.device)


def formatted_like(fresh: Any, like: TensorMeta) -> Any:
    """A contiguous value that was just made, in the memory format of `like`."""
    if not suggests_channels_last(like):
        return fresh
    return fresh._do("restride", image_strides(fresh.shape, channels_last=True))


def agreed_strides(shape: Shape, metas: Iterable[TensorMeta]) -> Stride:
    """Channels-last if every operand is, else contiguous."""
    return image_strides(shape, channels_last=all(map(suggests_channels_last, metas)))
