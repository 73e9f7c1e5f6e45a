"""Memory formats: PyTorch's names for orders of dimensions in memory.

Ground floor. A format is an argument of `clone`, `contiguous`, `to` and the factories. Graphs hold
the strides that it gives for a shape, never the format.
"""

from __future__ import annotations

import attrs

from aotlite.ir.errors import ArgumentError, ShapeError
from aotlite.ir.geometry import layout
from aotlite.ir.geometry.sizes import Shape, Stride

__all__ = [
    "MemoryFormat",
    "channels_last",
    "channels_last_3d",
    "contiguous_format",
    "has_format",
    "preserve_format",
    "strides_in",
]


@attrs.frozen(eq=False, repr=False)
class MemoryFormat:
    """An order of the dimensions in memory. Compared by identity."""

    name: str

    # Copies and pickles are the same object.
    def __reduce__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"aotlite.{self.name}"


contiguous_format = MemoryFormat("contiguous_format")
"""Row-major."""
preserve_format = MemoryFormat("preserve_format")
"""The operand's own strides if it is dense, else its order of dimensions, packed."""
channels_last = MemoryFormat("channels_last")
"""For four dimensions: dimension 1, the channels, is innermost."""
channels_last_3d = MemoryFormat("channels_last_3d")
"""For five dimensions: dimension 1, the channels, is innermost."""

_RANKS = {channels_last: 4, channels_last_3d: 5}


def strides_in(format_: MemoryFormat | None, shape: Shape, stride: Stride, *, op: str) -> Stride:
    """The strides of a new tensor of this shape in a format.

    `stride` is the operand's, for `preserve_format` and None. Raises ShapeError for a channels-last
    format of another rank.

    >>> strides_in(channels_last, (2, 3, 4, 5), (60, 20, 5, 1), op="clone")
    (60, 1, 15, 3)
    """
    if format_ is None or format_ is preserve_format:
        return layout.clone_strides(shape, stride)
    if format_ is contiguous_format:
        return layout.contiguous_strides(shape)
    rank = _RANKS[format_]
    if len(shape) != rank:
        raise ShapeError(
            f"{op}: the tensor has shape {shape}, expected {rank} dimensions for {format_}"
        )
    return layout.channels_last_strides(shape)


def has_format(format_: MemoryFormat, shape: Shape, stride: Stride) -> bool:
    """Whether a tensor is dense in this format. Raises ArgumentError for `preserve_format`."""
    if format_ is preserve_format:
        raise ArgumentError(
            f"is_contiguous: argument 'memory_format' is {format_}, expected contiguous_format, "
            "channels_last or channels_last_3d"
        )
    if format_ is contiguous_format:
        return layout.is_contiguous(shape, stride)
    return len(shape) == _RANKS[format_] and layout.is_channels_last(shape, stride)
