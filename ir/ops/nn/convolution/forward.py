"""The op `conv2d`: its rule, its kernel and its loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.errors import ShapeError
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.dims import Args, Dims, Labels, Metas
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


def _conv2d_rule(
    input: TensorMeta,
    weight: TensorMeta,
    bias: TensorMeta | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> TensorMeta:
    metas = [input, weight] if bias is None else [input, weight, bias]
    window = window_of("conv2d", weight.shape[2:4] or (1,), stride, padding, dilation)
    shape = conv_shape("conv2d", input.shape, weight.shape, window, groups)
    check_dtypes("conv2d", metas)
    common_device("conv2d", metas)
    if bias is not None and bias.shape != (weight.shape[0],):
        raise ShapeError(
            f"conv2d: argument 'bias' has shape {bias.shape}, expected ({weight.shape[0]},)"
        )
    return image_meta(shape, [input, weight])


def _conv2d_kernel(
    xp: Namespace,
    meta: TensorMeta,
    image: Array,
    weight: Array,
    bias: Array | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Array:
    image, weight = wide(xp, image, meta.dtype), wide(xp, weight, meta.dtype)
    window = window_of("conv2d", weight.shape[2:], stride, padding, dilation)
    batch, channels, *out = meta.shape
    columns = columns_of(xp, image, window, tuple(out), groups)
    product = xp.matmul(flat_weight(xp, weight, groups), columns)
    result = xp.permute_dims(xp.reshape(product, (channels, batch, *out)), (1, 0, 2, 3))
    if bias is not None:
        result = result + xp.reshape(wide(xp, bias, meta.dtype), (channels, 1, 1))
    return cast(xp, result, meta.dtype)


# ----------------------------------------------------------------------------------- the result
def convolved(
    k: Loops, meta: TensorMeta, c: Convolution, image: LoopTensor, weight: LoopTensor
) -> LoopTensor:
    """The result of the convolution, without bias."""
    if 0 in meta.shape or c.seen == 0:
        return k.map(meta, lambda *i: 0)
    if c.is_direct:
        return _convolved_in_place(k, meta, c, image, weight)
    out = k.new(meta.with_dtype(c.formed))
    if is_last(meta):
        return rounded(k, meta, _convolved_last(k, c, out, image, weight))
    if not meta.contiguous:
        out = k.new(tensor_meta(meta.shape, None, c.formed))
    left = as_dense(k, weight, c.formed, (0, 1, 2, 3))
    left = shown_as(left, (c.groups, c.filters, c.seen))
    shape = (c.batch, c.groups, c.seen, c.places)
    if c.is_pointwise and image.meta.contiguous:
        right = shown_as(image, shape)
    else:
        right = patches_of(k, c, image, "ngcijyx", shape)
    k.gemm(shown_as(out, (c.batch, c.groups, c.filters, c.places)), left, right)
    return rounded(k, meta, out)


def _convolved_last(
    k: Loops, c: Convolution, out: LoopTensor, image: LoopTensor, weight: LoopTensor
) -> LoopTensor:
    """As rows of pixels, channels side by side."""
    right = as_dense(k, weight, c.formed, (0, 2, 3, 1))
    right = right.view((c.groups, c.seen, c.filters), (c.filters * c.seen, 1, c.seen))
    pixels, width = c.batch * c.places, c.groups * c.filters
    if c.is_pointwise and is_last(image.meta):
        left = image.view((pixels, c.groups, c.seen), (c.groups * c.seen, c.seen, 1))
    else:
        left = patches_of(k, c, image, "nyxgijc", (pixels, c.groups, c.seen))
    left = left.view((c.groups, pixels, c.seen), (c.seen, c.groups * c.seen, 1))
    k.gemm(out.view((c.groups, pixels, c.filters), (c.filters, width, 1)), left, right)
    return out


def _convolved_in_place(
    k: Loops, meta: TensorMeta, c: Convolution, image: LoopTensor, weight: LoopTensor
) -> LoopTensor:
    def term(row: Sequence[Place], inner: Sequence[Place]) -> Scalar:
        n, o, y, x = row
        channel, i, j = inner
        at = {"n": n, "g": group_of(k, o, c.filters), "c": channel}
        pixel = pixel_at(k, c, image, {**at, "i": i, "j": j, "y": y, "x": x})
        return pixel * k.cast(weight[o, channel, i, j], c.formed)

    over = (c.channels, *c.window.kernel)
    return places_summed(k, meta, over, term, lambda total, row: total)


def _conv2d_loops(
    k: Loops,
    meta: TensorMeta,
    image: LoopTensor,
    weight: LoopTensor,
    bias: LoopTensor | None,
    *window: Any,
) -> LoopTensor:
    *steps, _ = window
    seen = window_of("conv2d", weight.shape[2:], *steps)
    over = convolution(image.shape, weight.shape, meta.shape, seen, meta.dtype)
    if bias is None:
        return convolved(k, meta, over, image, weight)
    plain = convolved(k, meta.with_dtype(over.formed), over, image, weight)
    return k.map(meta, lambda *i: k.cast(plain[i] + k.cast(bias[i[1]], over.formed), meta.dtype))


def _conv_input(
    grad: Operand,
    input: Operand,
    weight: Operand,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Operand:
    return grad.conv2d_input(conj(weight), input.shape, stride, padding, dilation, groups)


def _conv_weight(
    grad: Operand,
    input: Operand,
    weight: Operand,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Operand:
    return grad.conv2d_weight(conj(input), weight.shape, stride, padding, dilation, groups)


def _conv_dims(args: Args, results: Metas) -> Dims:
    """Images, and channels where they are not in groups."""
    if args["groups"] != 1:
        weight: Labels = (None,) * 4
        found = {"input": ("n", None, None, None), "weight": weight, "bias": (None,)}
        return Dims(found, (("n", None, None, None),))
    found = {"input": IMAGE, "weight": WEIGHT, "bias": ("o",)}
    return Dims(found, (RESULT,), joins="sum", added=("bias",))


CONV2D: PureOp = pure(
    "conv2d(Tensor input, Tensor weight, Tensor? bias=None, int[] stride=[1], int[] padding=[0], "
    "int[] dilation=[1], int groups=1) -> Tensor",
    meta=_conv2d_rule,
    kernel=_conv2d_kernel,
    # Both formulas read both operands, one of them for its shape: PyTorch saves both whenever a
    # gradient is needed at all.
    vjp={
        "input": _conv_input,
        "weight": _conv_weight,
        "bias": lambda grad: grad.sum((0, 2, 3)),
    },
    cost=Cost.CONTRACTION,
    workspace=held_by(lambda args, found: (args[0].meta.shape, args[1].meta.shape, found)),
    dims=_conv_dims,
    loops=_conv2d_loops,
)
