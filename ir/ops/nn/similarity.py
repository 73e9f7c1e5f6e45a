"""Directions of vectors, and pixels in the place of channels: composites."""

from __future__ import annotations

from aotlite.ir.errors import ArgumentError, ShapeError
from aotlite.ir.geometry import layout
from aotlite.ir.geometry.sizes import broadcast_shapes
from aotlite.ir.op.composite import composite
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.kinds import require_floating
from aotlite.ir.ops.precision import OperandT
from aotlite.ir.ops.shape.memory_format import formatted_like


@composite(is_method=False)
def normalize(input: OperandT, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> OperandT:
    """The input divided by its p-norm over a dimension, or by `eps` where that is larger."""
    return input / input.norm(p, dim, True).clamp(eps, None).expand_as(input)


@composite(is_method=False)
def cosine_similarity(x1: OperandT, x2: OperandT, dim: int = 1, eps: float = 1e-8) -> OperandT:
    """The cosine of the angle of two vectors along a dimension; the operands broadcast.

    Norms are at least `eps`.
    """
    for operand in (x1, x2):
        require_floating("cosine_similarity", operand.dtype)
    shape = broadcast_shapes(x1.shape, x2.shape, op="cosine_similarity")
    first, second = (
        x / x.norm(2, dim, True).clamp(eps, None) for x in (x1.expand(shape), x2.expand(shape))
    )
    return (first * second).sum(dim)


# ---------------------------------------------------------------------------- pixels and channels
@composite("pixel_shuffle(Tensor self, int upscale_factor) -> Tensor", is_method=False)
def pixel_shuffle(self: OperandT, upscale_factor: int) -> OperandT:
    """Channels as pixels: (*, c r r, h, w) -> (*, c, h r, w r).

    Source: Shi et al., "Real-time single image and video super-resolution" (CVPR 2016).
    """
    *batch, channels, height, width = _checked("pixel_shuffle", self, upscale_factor)
    r = upscale_factor
    if channels % (r * r):
        raise ShapeError(
            f"pixel_shuffle: the tensor has {channels} channels, expected a multiple of {r * r}"
        )
    count = len(batch)
    parts = self.reshape(*batch, channels // (r * r), r, r, height, width)
    order = (*range(count), *[count + i for i in (0, 3, 1, 4, 2)])
    shape = (*batch, channels // (r * r), height * r, width * r)
    return _laid_out(parts.permute(order), shape, self)


@composite("pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor", is_method=False)
def pixel_unshuffle(self: OperandT, downscale_factor: int) -> OperandT:
    """Pixels as channels: (*, c, h r, w r) -> (*, c r r, h, w)."""
    *batch, channels, height, width = _checked("pixel_unshuffle", self, downscale_factor)
    r = downscale_factor
    if height % r or width % r:
        raise ShapeError(
            f"pixel_unshuffle: the tensor has shape {self.shape}, expected height and width to be "
            f"multiples of {r}"
        )
    count = len(batch)
    parts = self.reshape(*batch, channels, height // r, r, width // r, r)
    order = (*range(count), *[count + i for i in (0, 2, 4, 1, 3)])
    shape = (*batch, channels * r * r, height // r, width // r)
    return _laid_out(parts.permute(order), shape, self)


def _laid_out(parts: OperandT, shape: tuple[int, ...], like: Operand) -> OperandT:
    """A copy of the parts in this shape, in the memory format of `like`."""
    fresh = parts._do("restride", layout.contiguous_strides(parts.shape)).view(shape)
    return formatted_like(fresh, like.meta)


def _checked(name: str, self: Operand, factor: int) -> tuple[int, ...]:
    if factor < 1:
        raise ArgumentError(f"{name}: the factor is {factor}, expected at least 1")
    if self.ndim < 3:
        raise ShapeError(
            f"{name}: the tensor has shape {self.shape}, expected at least 3 dimensions"
        )
    shape: tuple[int, ...] = self.shape
    return shape
