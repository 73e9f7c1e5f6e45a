"""The gradients of a convolution, which are ops of their own: towards its input and its weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.errors import ShapeError
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.dims import Args, Dims, Metas
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.declare import common_device, pure
from aotlite.ir.ops.elementwise.pointwise import conj
from aotlite.ir.ops.loops import Loops, LoopTensor, Place
from aotlite.ir.ops.nn.convolution.patches import (
    IMAGE,
    RESULT,
    WEIGHT,
    Convolution,
    as_dense,
    by_group,
    check_dtypes,
    columns_of,
    conv_shape,
    convolution,
    flat_weight,
    group_of,
    held_by,
    image_meta,
    is_last,
    patches_of,
    pixel_at,
    rounded,
    shown_as,
)
from aotlite.ir.ops.nn.window import (
    Ints,
    places_summed,
    window_of,
)
from aotlite.ir.ops.precision import cast, wide
from aotlite.ir.scalar.expression import Scalar


# ------------------------------------------------------------------------------- towards the input
def towards_input(
    k: Loops, meta: TensorMeta, c: Convolution, grad: LoopTensor, weight: LoopTensor
) -> LoopTensor:
    """The gradient of the input."""
    if 0 in meta.shape or 0 in grad.shape:
        return k.map(meta, lambda *i: 0)
    if c.is_direct:
        return _towards_input_in_place(k, meta, c, grad, weight)
    left = shown_as(as_dense(k, weight, c.formed, (0, 1, 2, 3)), (c.groups, c.filters, c.seen))
    left = left.view((c.groups, c.seen, c.filters), (c.filters * c.seen, 1, c.seen))
    planes = c.groups * c.filters * c.places
    if is_last(grad.meta):
        step = (planes, c.filters, 1, c.groups * c.filters)
        right = grad.view((c.batch, c.groups, c.filters, c.places), step)
    else:
        dense = as_dense(k, grad, grad.dtype, (0, 1, 2, 3))
        right = shown_as(dense, (c.batch, c.groups, c.filters, c.places))
    whole = tensor_meta((c.batch, c.groups, c.seen, c.places), None, c.formed)
    patches = k.new(whole)
    k.gemm(patches, left, right)
    if c.is_pointwise:
        return rounded(k, meta, shown_as(patches, meta.shape))
    return _folded(k, meta, c, patches)


def _folded(k: Loops, meta: TensorMeta, c: Convolution, patches: LoopTensor) -> LoopTensor:
    """What windows give to each pixel, summed."""
    planes = shown_as(patches, (c.batch, c.groups * c.channels, *c.window.kernel, *c.out))

    def term(row: Sequence[Place], inner: Sequence[Place]) -> Scalar:
        n, channel, *pixel = row
        found, at = _standing(k, c, pixel, inner)
        return k.where(found, planes[(n, channel, *inner, *at)], 0)

    return places_summed(k, meta, c.window.kernel, term, lambda total, row: total)


def _standing(
    k: Loops, c: Convolution, pixel: Sequence[Any], place: Sequence[Any]
) -> tuple[Scalar, list[Place]]:
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


def _is_zero(k: Loops, index: Place) -> Scalar:
    return index.equals(0) if hasattr(index, "equals") else k.make("eq", index, 0)


def _towards_input_in_place(
    k: Loops, meta: TensorMeta, c: Convolution, grad: LoopTensor, weight: LoopTensor
) -> LoopTensor:
    def term(row: Sequence[Any], inner: Sequence[Any]) -> Scalar:
        n, channel, *pixel = row
        filter_, *place = inner
        first = group_of(k, channel, c.channels) * c.filters
        own = channel % c.channels if c.channels > 1 else 0
        found, at = _standing(k, c, pixel, place)
        seen = k.cast(grad[(n, filter_ + first, *at)], c.formed)
        factor = k.cast(weight[(filter_ + first, own, *place)], c.formed)
        return k.where(found, seen * factor, 0)

    over = (c.filters, *c.window.kernel)
    return places_summed(k, meta, over, term, lambda total, row: total)


# ------------------------------------------------------------------------------ towards the weight
def towards_weight(
    k: Loops, meta: TensorMeta, c: Convolution, grad: LoopTensor, image: LoopTensor
) -> LoopTensor:
    """The gradient of the weight."""
    if 0 in meta.shape or 0 in grad.shape:
        return k.map(meta, lambda *i: 0)
    if c.is_direct:
        return _towards_weight_in_place(k, meta, c, grad, image)
    pixels, width = c.batch * c.places, c.groups * c.filters
    if is_last(grad.meta):
        left = grad.view((c.groups, c.filters, pixels), (c.filters, 1, width))
    else:
        dense = as_dense(k, grad, c.formed, (1, 0, 2, 3))
        left = shown_as(dense, (c.groups, c.filters, pixels))
    out = k.new(tensor_meta((c.groups, c.filters, c.seen), None, c.formed))
    if is_last(image.meta):
        order, dims = ("nyxgijc", (pixels, c.groups, c.seen)), (0, 3, 1, 2)
        right = patches_of(k, c, image, *order)
        right = right.view((c.groups, pixels, c.seen), (c.seen, c.groups * c.seen, 1))
        shape: Ints = (width, *c.window.kernel, c.channels)
    else:
        right = patches_of(k, c, image, "gcijnyx", (c.groups, c.seen, pixels))
        right = right.view((c.groups, pixels, c.seen), (c.seen * pixels, 1, pixels))
        shape, dims = (width, c.channels, *c.window.kernel), (0, 1, 2, 3)
    k.gemm(out, left, right)
    return rounded(k, meta, _turned(shown_as(out, shape), dims))


def _turned(a: LoopTensor, dims: Ints) -> LoopTensor:
    return a.view([a.shape[d] for d in dims], [a.stride[d] for d in dims])


def _towards_weight_in_place(
    k: Loops, meta: TensorMeta, c: Convolution, grad: LoopTensor, image: LoopTensor
) -> LoopTensor:
    def term(row: Sequence[Place], inner: Sequence[Place]) -> Scalar:
        (o, channel, i, j), (n, y, x) = row, inner
        at = {"n": n, "g": group_of(k, o, c.filters), "c": channel, "i": i, "j": j}
        pixel = pixel_at(k, c, image, {**at, "y": y, "x": x})
        return k.cast(grad[n, o, y, x], c.formed) * pixel

    over = (c.batch, *c.out)
    return k.reduce("sum", meta, over, term, finish=lambda total: k.cast(total, meta.dtype))


def _conv_input_dims(args: Args, results: Metas) -> Dims | None:
    if args["groups"] != 1:
        return None
    sizes = {"input_size": IMAGE}
    return Dims({"self": RESULT, "weight": WEIGHT}, (IMAGE,), joins="sum", sizes=sizes)


def _conv_weight_dims(args: Args, results: Metas) -> Dims | None:
    if args["groups"] != 1:
        return None
    sizes = {"weight_size": WEIGHT}
    return Dims({"self": RESULT, "input": IMAGE}, (WEIGHT,), joins="sum", sizes=sizes)


# ------------------------------------------------------------------- gradients of the convolution
def _check_result(name: str, self: TensorMeta, expected: Ints) -> None:
    if self.shape != expected:
        raise ShapeError(
            f"{name}: argument 'self' has shape {self.shape}, expected {expected}, the shape of "
            "the convolution's result"
        )


def _conv2d_input_rule(
    self: TensorMeta,
    weight: TensorMeta,
    input_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> TensorMeta:
    name = "conv2d_input"
    window = window_of(name, weight.shape[2:4] or (1,), stride, padding, dilation)
    _check_result(name, self, conv_shape(name, input_size, weight.shape, window, groups))
    check_dtypes(name, [self, weight])
    common_device(name, [self, weight])
    return image_meta(input_size, [self, weight])


def _conv2d_input_kernel(
    xp: Namespace,
    meta: TensorMeta,
    grad: Array,
    weight: Array,
    input_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Array:
    grad, weight = wide(xp, grad, meta.dtype), wide(xp, weight, meta.dtype)
    window = window_of("conv2d_input", weight.shape[2:], stride, padding, dilation)
    batch, channels, height, width = input_size
    out = grad.shape[2:]
    turned = xp.permute_dims(flat_weight(xp, weight, groups), (0, 2, 1))
    columns = xp.matmul(turned, by_group(xp, grad, groups))
    patches = xp.reshape(columns, (channels, len(window.places()), batch, *out))
    (top, left), (rows, columns_) = window.padding, window.extent
    padded = xp.zeros(
        (
            channels,
            batch,
            max(top + height, (out[0] - 1) * window.stride[0] + rows),
            max(left + width, (out[1] - 1) * window.stride[1] + columns_),
        ),
        dtype=grad.dtype,
    )
    for k, place in enumerate(window.places()):
        seen = window.seen(place, out)
        padded[seen] = padded[seen] + patches[:, k]
    inner = padded[..., top : top + height, left : left + width]
    return cast(xp, xp.permute_dims(inner, (1, 0, 2, 3)), meta.dtype)


def _conv2d_input_loops(
    k: Loops,
    meta: TensorMeta,
    grad: LoopTensor,
    weight: LoopTensor,
    input_size: Ints,
    *window: Any,
) -> LoopTensor:
    *steps, _ = window
    seen = window_of("conv2d_input", weight.shape[2:], *steps)
    over = convolution(input_size, weight.shape, grad.shape, seen, meta.dtype)
    return towards_input(k, meta, over, grad, weight)


# Both read both operands, for PyTorch's transposed convolution saves both.
def _input_self(
    grad: Operand,
    self: Operand,
    weight: Operand,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Operand:
    return grad._do("conv2d", conj(weight), None, stride, padding, dilation, groups)


def _input_weight(
    grad: Operand,
    self: Operand,
    weight: Operand,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Operand:
    return conj(self).conv2d_weight(grad, weight.shape, stride, padding, dilation, groups)


CONV2D_INPUT: PureOp = pure(
    "conv2d_input(Tensor self, Tensor weight, int[] input_size, int[] stride, int[] padding, "
    "int[] dilation, int groups) -> Tensor",
    meta=_conv2d_input_rule,
    kernel=_conv2d_input_kernel,
    vjp={"self": _input_self, "weight": _input_weight},
    cost=Cost.CONTRACTION,
    workspace=held_by(lambda args, found: (found, args[1].meta.shape, args[0].meta.shape)),
    dims=_conv_input_dims,
    loops=_conv2d_input_loops,
)
"""The gradient of conv2d towards its input, for the gradient `self` of its result."""


def _conv2d_weight_rule(
    self: TensorMeta,
    input: TensorMeta,
    weight_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> TensorMeta:
    name = "conv2d_weight"
    window = window_of(name, weight_size[2:4] or (1,), stride, padding, dilation)
    _check_result(name, self, conv_shape(name, input.shape, weight_size, window, groups))
    check_dtypes(name, [self, input])
    common_device(name, [self, input])
    return image_meta(weight_size, [self, input])


def _conv2d_weight_kernel(
    xp: Namespace,
    meta: TensorMeta,
    grad: Array,
    image: Array,
    weight_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Array:
    grad, image = wide(xp, grad, meta.dtype), wide(xp, image, meta.dtype)
    window = window_of("conv2d_weight", weight_size[2:], stride, padding, dilation)
    columns = columns_of(xp, image, window, grad.shape[2:], groups)
    product = xp.matmul(by_group(xp, grad, groups), xp.permute_dims(columns, (0, 2, 1)))
    return cast(xp, xp.reshape(product, weight_size), meta.dtype)


def _conv2d_weight_loops(
    k: Loops,
    meta: TensorMeta,
    grad: LoopTensor,
    image: LoopTensor,
    weight_size: Ints,
    *window: Any,
) -> LoopTensor:
    *steps, _ = window
    seen = window_of("conv2d_weight", weight_size[2:], *steps)
    over = convolution(image.shape, weight_size, grad.shape, seen, meta.dtype)
    return towards_weight(k, meta, over, grad, image)


CONV2D_WEIGHT: PureOp = pure(
    "conv2d_weight(Tensor self, Tensor input, int[] weight_size, int[] stride, int[] padding, "
    "int[] dilation, int groups) -> Tensor",
    meta=_conv2d_weight_rule,
    kernel=_conv2d_weight_kernel,
    vjp={
        "self": lambda grad, input, stride, padding, dilation, groups: conj(input)._do(
            "conv2d", grad, None, stride, padding, dilation, groups
        ),
        "input": lambda grad, self, input_meta, stride, padding, dilation, groups: conj(
            self
        ).conv2d_input(grad, input_meta.shape, stride, padding, dilation, groups),
    },
    cost=Cost.CONTRACTION,
    workspace=held_by(lambda args, found: (args[1].meta.shape, found, args[0].meta.shape)),
    dims=_conv_weight_dims,
    loops=_conv2d_weight_loops,
)
"""The gradient of conv2d towards its weight, for the gradient `self` of its result."""
