"""What convolutions and their gradients share: shapes, and the patches that windows see.

A convolution is one matrix product over columns of input patches (im2col); the loops run over the
places of the kernel window only. Shapes are (N, C, H, W); a weight is (O, C / groups, kH, kW).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError
from aotlite.ir.geometry import sizes
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op.workspace import OPERANDS, RESULTS
from aotlite.ir.ops.loops import Loops, LoopTensor
from aotlite.ir.ops.nn.window import (
    WINDOWS,
    Ints,
    Window,
    held_by_windows,
    padded_image,
    window_of,
)
from aotlite.ir.ops.precision import accumulator
from aotlite.ir.ops.shape.memory_format import image_strides, suggests_channels_last
from aotlite.ir.scalar.expression import Scalar


def conv_shape(
    name: str, shape: Ints, weight: Ints, window: Window, groups: int
) -> tuple[int, int, int, int]:
    """The shape of the convolution's result. Raises ShapeError where shapes do not fit."""
    for argument, given in (("input", shape), ("weight", weight)):
        if len(given) != 4:
            raise ShapeError(
                f"{name}: argument '{argument}' has shape {given}, expected 4 dimensions"
            )
    if groups < 1 or weight[0] % groups:
        raise ArgumentError(
            f"{name}: argument 'groups' is {groups}, expected a divisor of {weight[0]}, the number "
            "of output channels"
        )
    if shape[1] != weight[1] * groups:
        raise ShapeError(
            f"{name}: the input has {shape[1]} channels, expected {weight[1] * groups}, the "
            f"weight's {weight[1]} times {groups} groups"
        )
    return shape[0], weight[0], *_conv_size(name, shape, window)


def _conv_size(name: str, shape: Ints, window: Window) -> tuple[int, int]:
    found = []
    for i, axis in enumerate(("height", "width")):
        room = shape[2 + i] + 2 * window.padding[i]
        if room < window.extent[i]:
            raise ShapeError(
                f"{name}: the padded {axis} is {room}, expected at least {window.extent[i]}, the "
                "extent of the kernel"
            )
        found.append((room - window.extent[i]) // window.stride[i] + 1)
    return found[0], found[1]


def check_dtypes(name: str, metas: list[TensorMeta]) -> None:
    if any(meta.dtype is not metas[0].dtype for meta in metas) or metas[0].dtype is dtypes.bool_:
        given = ", ".join(str(meta.dtype) for meta in metas)
        raise DTypeError(f"{name}: dtypes are {given}, expected one numeric dtype")


def image_meta(shape: Ints, like: list[TensorMeta]) -> TensorMeta:
    """Channels-last if any of the operands is, and there is an image at all."""
    last = 0 not in shape and any(map(suggests_channels_last, like))
    stride = image_strides(shape, channels_last=last)
    return tensor_meta(shape, stride, like[0].dtype, like[0].device)


def columns_of(xp: Namespace, image: Array, window: Window, out: Ints, groups: int) -> Array:
    """(N, C, H, W) -> (groups, C/groups * places, N * outH * outW): the patch under each window."""
    batch, channels = image.shape[:2]
    padded = xp.permute_dims(padded_image(xp, image, window, out, 0), (1, 0, 2, 3))
    places = window.places()
    # Filled place by place: `stack` would keep the image's memory order and `reshape` copy again.
    patches = xp.empty((channels, len(places), batch, *out), dtype=image.dtype)
    for k, place in enumerate(places):
        patches[:, k] = padded[window.seen(place, out)]
    rows = channels // groups * len(places)
    return xp.reshape(patches, (groups, rows, batch * out[0] * out[1]))


def held_by(shapes: Callable[..., tuple[Ints, Ints, Ints]]) -> dict[str, object]:
    """What is held: `shapes(args, result's shape)` are the image's, the weight's and the
    output's."""

    def held(args: tuple[Any, ...], results: Sequence[TensorMeta]) -> int:
        image, weight, out = shapes(args, results[0].shape)
        *steps, groups = args[3:]
        patches = out[0] * sizes.numel(out[2:]) * groups * sizes.numel(weight[1:])
        window = window_of("conv2d", weight[2:], *steps)
        return 3 * patches + held_by_windows(image, window, out[2:])

    return {RESULTS: 6, OPERANDS: 3, f"3 patches of all windows + {WINDOWS}": held}


def by_group(xp: Namespace, image: Array, groups: int) -> Array:
    """(N, O, H, W) -> (groups, O/groups, N * H * W)."""
    batch, channels, *out = image.shape
    rows = xp.permute_dims(image, (1, 0, 2, 3))
    return xp.reshape(rows, (groups, channels // groups, batch * out[0] * out[1]))


def flat_weight(xp: Namespace, weight: Array, groups: int) -> Array:
    """(O, C/groups, kH, kW) -> (groups, O/groups, C/groups * kH * kW)."""
    rows = weight.shape[0] // groups
    return xp.reshape(weight, (groups, rows, sizes.numel(weight.shape[1:])))


IMAGE, WEIGHT, RESULT = ("n", "c", None, None), ("o", "c", None, None), ("n", "o", None, None)


@attrs.frozen
class Convolution:
    """What a convolution and its gradients are over; channels are those of one group."""

    window: Window
    groups: int
    batch: int
    channels: int
    filters: int
    image: Ints
    """(H, W)."""
    out: Ints
    formed: DType
    """The dtype that sums are formed in."""

    @property
    def places(self) -> int:
        """Elements of a result's plane."""
        return sizes.numel(self.out)

    @property
    def seen(self) -> int:
        """Elements that a window sees."""
        return self.channels * sizes.numel(self.window.kernel)

    @property
    def is_direct(self) -> bool:
        """Whether sums are formed in place."""
        return self.channels == 1 or not self.formed.is_floating_point

    @property
    def is_pointwise(self) -> bool:
        """Whether windows are single pixels, side by side."""
        kernel, stride, padding, _ = self.window
        return kernel == (1, 1) == stride and padding == (0, 0)


def convolution(image: Ints, weight: Ints, out: Ints, window: Window, dtype: DType) -> Convolution:
    """The convolution of these shapes of input, weight and result."""
    groups = image[1] // weight[1] if weight[1] > 0 else 1
    formed = accumulator(dtype)
    return Convolution(
        window, groups, image[0], weight[1], weight[0] // groups, image[2:], out[2:], formed
    )


# ------------------------------------------------------------------------------------- patches
def pixel_at(k: Loops, c: Convolution, image: LoopTensor, at: dict[str, Any]) -> Scalar:
    """The pixel at n, g, c that the place i, j of the window at y, x sees; 0 beside the image."""
    window = c.window
    row = at["y"] * window.stride[0] + at["i"] * window.dilation[0] - window.padding[0]
    column = at["x"] * window.stride[1] + at["j"] * window.dilation[1] - window.padding[1]
    inside = k.all(k.inside(row, 0, c.image[0]), k.inside(column, 0, c.image[1]))
    pixel = image[at["n"], at["c"] + at["g"] * c.channels, row, column]
    return k.where(inside, k.cast(pixel, c.formed), 0)


def _lengths(c: Convolution) -> dict[str, int]:
    (rows, columns), (height, width) = c.window.kernel, c.out
    return {
        "n": c.batch,
        "g": c.groups,
        "c": c.channels,
        "i": rows,
        "j": columns,
        "y": height,
        "x": width,
    }


def patches_of(k: Loops, c: Convolution, image: LoopTensor, order: str, shape: Ints) -> LoopTensor:
    """The pixels of all windows, laid out in an order of n, g, c, i, j, y, x, as another shape."""
    lengths = _lengths(c)
    if c.window.padding != (0, 0):
        c, image = _padded(k, c, image)
    meta = tensor_meta([lengths[letter] for letter in order], None, c.formed)
    made = k.map(meta, lambda *at: pixel_at(k, c, image, dict(zip(order, at, strict=True))))
    whole = tensor_meta(shape, None, c.formed)
    return made.view(whole.shape, whole.stride)


def _padded(k: Loops, c: Convolution, image: LoopTensor) -> tuple[Convolution, LoopTensor]:
    """The convolution of the image with its border, which is stored, so that the much larger
    patches are plain copies.
    """
    (height, width), (top, left) = c.image, c.window.padding
    batch, channels = image.shape[:2]
    size = (height + 2 * top, width + 2 * left)
    shape = (batch, channels, *size)
    order = (0, 2, 3, 1) if is_last(image.meta) else (0, 1, 2, 3)
    steps = tensor_meta([shape[d] for d in order]).stride
    stride = [steps[order.index(d)] for d in range(4)]
    whole = k.new(tensor_meta(shape, stride, c.formed))
    k.store(whole, lambda *i: 0)
    inner = whole.view(image.shape, stride, top * stride[2] + left * stride[3])
    k.store(inner, lambda *i: k.cast(image[i], c.formed))
    window = c.window._replace(padding=(0, 0))
    return attrs.evolve(c, image=size, window=window), whole


def as_dense(k: Loops, a: LoopTensor, dtype: DType, dims: Ints) -> LoopTensor:
    """The operand with its dimensions in this order, contiguous; copied unless it is so."""
    shape, stride = ([each[d] for d in dims] for each in (a.shape, a.stride))
    meta = tensor_meta(shape, None, dtype)
    turned = a.view(shape, stride)
    if turned.meta is meta:
        return turned
    return k.map(meta, lambda *i: k.cast(turned[i], dtype))


def is_last(meta: TensorMeta) -> bool:
    """Whether channels lie side by side."""
    _, channels, height, width = meta.shape
    steps = (height * width * channels, 1, width * channels, channels)
    return channels > 1 and height * width > 1 and meta.stride == steps


def group_of(k: Loops, index: Any, divisor: int) -> Any:
    return index if divisor == 1 else index // divisor


def shown_as(a: LoopTensor, shape: Ints) -> LoopTensor:
    """A contiguous operand as another shape."""
    return a.view(shape, tensor_meta(shape).stride)


def rounded(k: Loops, meta: TensorMeta, wide: LoopTensor) -> LoopTensor:
    if wide.meta is meta:
        return wide
    return k.map(meta, lambda *i: k.cast(wide[i], meta.dtype))
