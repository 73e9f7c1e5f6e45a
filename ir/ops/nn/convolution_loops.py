"""Convolutions as loops: matrix products of patches, or sums in place.

A kernel lays out the patches that windows see, in an order that lets BLAS read it and write the
result as it lies; with windows of one pixel the image is its own patches. Where each window sees
one channel (depthwise) or numbers are integers, sums are kernels without patches.
"""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.ir.dtypes import DType
from aotlite.ir.geometry import sizes
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.ops.nn.window import Ints, Window
from aotlite.ir.ops.nn.window_loops import places_summed
from aotlite.ir.ops.precision import accumulator


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
    groups = image[1] // weight[1] if weight[1] else 1
    formed = accumulator(dtype)
    return Convolution(
        window, groups, image[0], weight[1], weight[0] // groups, image[2:], out[2:], formed
    )


# ------------------------------------------------------------------------------------- patches
def _pixel(k: Any, c: Convolution, image: Any, at: dict[str, Any]) -> Any:
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


def _patches(k: Any, c: Convolution, image: Any, order: str, shape: Ints) -> Any:
    """The pixels of all windows, laid out in an order of n, g, c, i, j, y, x, as another shape."""
    lengths = _lengths(c)
    if c.window.padding != (0, 0):
        c, image = _padded(k, c, image)
    meta = tensor_meta([lengths[letter] for letter in order], None, c.formed)
    made = k.map(meta, lambda *at: _pixel(k, c, image, dict(zip(order, at, strict=True))))
    whole = tensor_meta(shape, None, c.formed)
    return made.view(whole.shape, whole.stride)


def _padded(k: Any, c: Convolution, image: Any) -> tuple[Convolution, Any]:
    """The convolution of the image with its border, which is stored, so that the much larger
    patches are plain copies.
    """
    (height, width), (top, left) = c.image, c.window.padding
    batch, channels = image.shape[:2]
    size = (height + 2 * top, width + 2 * left)
    shape = (batch, channels, *size)
    order = (0, 2, 3, 1) if _is_last(image.meta) else (0, 1, 2, 3)
    steps = tensor_meta([shape[d] for d in order]).stride
    stride = [steps[order.index(d)] for d in range(4)]
    whole = k.new(tensor_meta(shape, stride, c.formed))
    k.store(whole, lambda *i: 0)
    inner = whole.view(image.shape, stride, top * stride[2] + left * stride[3])
    k.store(inner, lambda *i: k.cast(image[i], c.formed))
    window = c.window._replace(padding=(0, 0))
    return attrs.evolve(c, image=size, window=window), whole


def _dense(k: Any, a: Any, dtype: DType, dims: Ints) -> Any:
    """The operand with its dimensions in this order, contiguous; copied unless it is so."""
    shape, stride = ([each[d] for d in dims] for each in (a.shape, a.stride))
    meta = tensor_meta(shape, None, dtype)
    turned = a.view(shape, stride)
    if turned.meta is meta:
        return turned
    return k.map(meta, lambda *i: k.cast(turned[i], dtype))


def _is_last(meta: TensorMeta) -> bool:
    """Whether channels lie side by side."""
    _, channels, height, width = meta.shape
    steps = (height * width * channels, 1, width * channels, channels)
    return channels > 1 and height * width > 1 and meta.stride == steps


# ----------------------------------------------------------------------------------- the result
def convolved(k: Any, meta: TensorMeta, c: Convolution, image: Any, weight: Any) -> Any:
    """The result of the convolution, without bias."""
    if 0 in meta.shape or c.seen == 0:
        return k.map(meta, lambda *i: 0)
    if c.is_direct:
        return _convolved_in_place(k, meta, c, image, weight)
    out = k.new(meta.with_dtype(c.formed))
    if _is_last(meta):
        return _rounded(k, meta, _convolved_last(k, c, out, image, weight))
    if not meta.contiguous:
        out = k.new(tensor_meta(meta.shape, None, c.formed))
    left = _dense(k, weight, c.formed, (0, 1, 2, 3))
    left = _shown(left, (c.groups, c.filters, c.seen))
    shape = (c.batch, c.groups, c.seen, c.places)
    if c.is_pointwise and image.meta.contiguous:
        right = _shown(image, shape)
    else:
        right = _patches(k, c, image, "ngcijyx", shape)
    k.gemm(_shown(out, (c.batch, c.groups, c.filters, c.places)), left, right)
    return _rounded(k, meta, out)


def _convolved_last(k: Any, c: Convolution, out: Any, image: Any, weight: Any) -> Any:
    """As rows of pixels, channels side by side."""
    right = _dense(k, weight, c.formed, (0, 2, 3, 1))
    right = right.view((c.groups, c.seen, c.filters), (c.filters * c.seen, 1, c.seen))
    pixels, width = c.batch * c.places, c.groups * c.filters
    if c.is_pointwise and _is_last(image.meta):
        left = image.view((pixels, c.groups, c.seen), (c.groups * c.seen, c.seen, 1))
    else:
        left = _patches(k, c, image, "nyxgijc", (pixels, c.groups, c.seen))
    left = left.view((c.groups, pixels, c.seen), (c.seen, c.groups * c.seen, 1))
    k.gemm(out.view((c.groups, pixels, c.filters), (c.filters, width, 1)), left, right)
    return out


def _convolved_in_place(k: Any, meta: TensorMeta, c: Convolution, image: Any, weight: Any) -> Any:
    def term(row: Any, inner: Any) -> Any:
        n, o, y, x = row
        channel, i, j = inner
        at = {"n": n, "g": _quotient(k, o, c.filters), "c": channel}
        pixel = _pixel(k, c, image, {**at, "i": i, "j": j, "y": y, "x": x})
        return pixel * k.cast(weight[o, channel, i, j], c.formed)

    over = (c.channels, *c.window.kernel)
    return places_summed(k, meta, over, term, lambda total, row: total)


def _quotient(k: Any, index: Any, divisor: int) -> Any:
    return index if divisor == 1 else index // divisor


def _shown(a: Any, shape: Ints) -> Any:
    """A contiguous operand as another shape."""
    return a.view(shape, tensor_meta(shape).stride)


def _rounded(k: Any, meta: TensorMeta, wide: Any) -> Any:
    if wide.meta is meta:
        return wide
    return k.map(meta, lambda *i: k.cast(wide[i], meta.dtype))


# ------------------------------------------------------------------------------- towards the input
def towards_input(k: Any, meta: TensorMeta, c: Convolution, grad: Any, weight: Any) -> Any:
    """The gradient of the input."""
    if 0 in meta.shape or 0 in grad.shape:
        return k.map(meta, lambda *i: 0)
    if c.is_direct:
        return _towards_input_in_place(k, meta, c, grad, weight)
    left = _shown(_dense(k, weight, c.formed, (0, 1, 2, 3)), (c.groups, c.filters, c.seen))
    left = left.view((c.groups, c.seen, c.filters), (c.filters * c.seen, 1, c.seen))
    planes = c.groups * c.filters * c.places
    if _is_last(grad.meta):
        step = (planes, c.filters, 1, c.groups * c.filters)
        right = grad.view((c.batch, c.groups, c.filters, c.places), step)
    else:
        dense = _dense(k, grad, grad.dtype, (0, 1, 2, 3))
        right = _shown(dense, (c.batch, c.groups, c.filters, c.places))
    whole = tensor_meta((c.batch, c.groups, c.seen, c.places), None, c.formed)
    patches = k.new(whole)
    k.gemm(patches, left, right)
    if c.is_pointwise:
        return _rounded(k, meta, _shown(patches, meta.shape))
    return _folded(k, meta, c, patches)


def _folded(k: Any, meta: TensorMeta, c: Convolution, patches: Any) -> Any:
    """What windows give to each pixel, summed."""
    planes = _shown(patches, (c.batch, c.groups * c.channels, *c.window.kernel, *c.out))

    def term(row: Any, inner: Any) -> Any:
        n, channel, *pixel = row
        found, at = _standing(k, c, pixel, inner)
        return k.where(found, planes[(n, channel, *inner, *at)], 0)

    return places_summed(k, meta, c.window.kernel, term, lambda total, row: total)


def _standing(k: Any, c: Convolution, pixel: Any, place: Any) -> tuple[Any, list[Any]]:
    """(whether a window sees this pixel at this place, where that window stands)."""
    found, at = [], []
    for axis in (0, 1):
        step, gap = c.window.stride[axis], c.window.dilation[axis]
        from_first = pixel[axis] + c.window.padding[axis] - place[axis] * gap
        if step == 1:
            stands = from_first
        else:
            before = -(-gap * (c.window.kernel[axis] - 1) // step)
            shifted = from_first + before * step  # divided where it is not negative
            found.append(_is_zero(k, shifted % step))
            stands = shifted // step - before
        found.append(k.inside(stands, 0, c.out[axis]))
        at.append(stands)
    return k.all(*found), at


def _is_zero(k: Any, index: Any) -> Any:
    return index.equals(0) if hasattr(index, "equals") else k.make("eq", index, 0)


def _towards_input_in_place(
    k: Any, meta: TensorMeta, c: Convolution, grad: Any, weight: Any
) -> Any:
    def term(row: Any, inner: Any) -> Any:
        (n, channel, *pixel), (filter_, *place) = row, inner
        first = _quotient(k, channel, c.channels) * c.filters
        own = channel % c.channels if c.channels > 1 else 0
        found, at = _standing(k, c, pixel, place)
        seen = k.cast(grad[(n, filter_ + first, *at)], c.formed)
        factor = k.cast(weight[(filter_ + first, own, *place)], c.formed)
        return k.where(found, seen * factor, 0)

    over = (c.filters, *c.window.kernel)
    return places_summed(k, meta, over, term, lambda total, row: total)


# ------------------------------------------------------------------------------ towards the weight
def towards_weight(k: Any, meta: TensorMeta, c: Convolution, grad: Any, image: Any) -> Any:
    """The gradient of the weight."""
    if 0 in meta.shape or 0 in grad.shape:
        return k.map(meta, lambda *i: 0)
    if c.is_direct:
        return _towards_weight_in_place(k, meta, c, grad, image)
    pixels, width = c.batch * c.places, c.groups * c.filters
    if _is_last(grad.meta):
        left = grad.view((c.groups, c.filters, pixels), (c.filters, 1, width))
    else:
        dense = _dense(k, grad, c.formed, (1, 0, 2, 3))
        left = _shown(dense, (c.groups, c.filters, pixels))
    out = k.new(tensor_meta((c.groups, c.filters, c.seen), None, c.formed))
    if _is_last(image.meta):
        order, dims = ("nyxgijc", (pixels, c.groups, c.seen)), (0, 3, 1, 2)
        right = _patches(k, c, image, *order)
        right = right.view((c.groups, pixels, c.seen), (c.seen, c.groups * c.seen, 1))
        shape: Ints = (width, *c.window.kernel, c.channels)
    else:
        right = _patches(k, c, image, "gcijnyx", (c.groups, c.seen, pixels))
        right = right.view((c.groups, pixels, c.seen), (c.seen * pixels, 1, pixels))
        shape, dims = (width, c.channels, *c.window.kernel), (0, 1, 2, 3)
    k.gemm(out, left, right)
    return _rounded(k, meta, _turned(_shown(out, shape), dims))


def _turned(a: Any, dims: Ints) -> Any:
    return a.view([a.shape[d] for d in dims], [a.stride[d] for d in dims])


def _towards_weight_in_place(
    k: Any, meta: TensorMeta, c: Convolution, grad: Any, image: Any
) -> Any:
    def term(row: Any, inner: Any) -> Any:
        (o, channel, i, j), (n, y, x) = row, inner
        at = {"n": n, "g": _quotient(k, o, c.filters), "c": channel, "i": i, "j": j}
        pixel = _pixel(k, c, image, {**at, "y": y, "x": x})
        return k.cast(grad[n, o, y, x], c.formed) * pixel

    over = (c.batch, *c.out)
    return k.reduce("sum", meta, over, term, finish=lambda total: k.cast(total, meta.dtype))
