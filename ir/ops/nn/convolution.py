"""Convolution with its two gradients.

A convolution is one matrix product over columns of input patches (im2col); the loops run over the
places of the kernel window only. Shapes are (N, C, H, W); a weight is (O, C / groups, kH, kW).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError
from aotlite.ir.geometry import sizes
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.dims import Args, Dims, Labels, Metas
from aotlite.ir.op.workspace import OPERANDS, RESULTS
from aotlite.ir.ops.declare import common_device, pure
from aotlite.ir.ops.elementwise.pointwise import conj
from aotlite.ir.ops.nn.convolution_loops import (
    convolution,
    convolved,
    towards_input,
    towards_weight,
)
from aotlite.ir.ops.nn.window import WINDOWS, Ints, Window, held_by_windows, padded_image, window_of
from aotlite.ir.ops.precision import cast, wide
from aotlite.ir.ops.shape.memory_format import image_strides, suggests_channels_last


def _conv_shape(
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


def _check_dtypes(name: str, metas: list[TensorMeta]) -> None:
    if any(meta.dtype is not metas[0].dtype for meta in metas) or metas[0].dtype is dtypes.bool_:
        given = ", ".join(str(meta.dtype) for meta in metas)
        raise DTypeError(f"{name}: dtypes are {given}, expected one numeric dtype")


def _image_meta(shape: Ints, like: list[TensorMeta]) -> TensorMeta:
    """Channels-last if any of the operands is, and there is an image at all."""
    last = 0 not in shape and any(map(suggests_channels_last, like))
    stride = image_strides(shape, channels_last=last)
    return tensor_meta(shape, stride, like[0].dtype, like[0].device)


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
    shape = _conv_shape("conv2d", input.shape, weight.shape, window, groups)
    _check_dtypes("conv2d", metas)
    common_device("conv2d", metas)
    if bias is not None and bias.shape != (weight.shape[0],):
        raise ShapeError(
            f"conv2d: argument 'bias' has shape {bias.shape}, expected ({weight.shape[0]},)"
        )
    return _image_meta(shape, [input, weight])


def _columns(xp: Any, image: Any, window: Window, out: Ints, groups: int) -> Any:
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


def _workspace(shapes: Callable[..., tuple[Ints, Ints, Ints]]) -> dict[str, Any]:
    """What is held: `shapes(args, result's shape)` are the image's, the weight's and the
    output's."""

    def held(args: tuple[Any, ...], results: Sequence[TensorMeta]) -> int:
        image, weight, out = shapes(args, results[0].shape)
        *steps, groups = args[3:]
        patches = out[0] * sizes.numel(out[2:]) * groups * sizes.numel(weight[1:])
        window = window_of("conv2d", weight[2:], *steps)
        return 3 * patches + held_by_windows(image, window, out[2:])

    return {RESULTS: 6, OPERANDS: 3, f"3 patches of all windows + {WINDOWS}": held}


def _by_group(xp: Any, image: Any, groups: int) -> Any:
    """(N, O, H, W) -> (groups, O/groups, N * H * W)."""
    batch, channels, *out = image.shape
    rows = xp.permute_dims(image, (1, 0, 2, 3))
    return xp.reshape(rows, (groups, channels // groups, batch * out[0] * out[1]))


def _flat_weight(xp: Any, weight: Any, groups: int) -> Any:
    """(O, C/groups, kH, kW) -> (groups, O/groups, C/groups * kH * kW)."""
    rows = weight.shape[0] // groups
    return xp.reshape(weight, (groups, rows, sizes.numel(weight.shape[1:])))


def _conv2d_kernel(
    xp: Any,
    meta: TensorMeta,
    image: Any,
    weight: Any,
    bias: Any,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Any:
    image, weight = wide(xp, image, meta.dtype), wide(xp, weight, meta.dtype)
    window = window_of("conv2d", weight.shape[2:], stride, padding, dilation)
    batch, channels, *out = meta.shape
    columns = _columns(xp, image, window, tuple(out), groups)
    product = xp.matmul(_flat_weight(xp, weight, groups), columns)
    result = xp.permute_dims(xp.reshape(product, (channels, batch, *out)), (1, 0, 2, 3))
    if bias is not None:
        result = result + xp.reshape(wide(xp, bias, meta.dtype), (channels, 1, 1))
    return cast(xp, result, meta.dtype)


def _conv2d_loops(
    k: Any, meta: TensorMeta, image: Any, weight: Any, bias: Any, *window: Any
) -> Any:
    *steps, _ = window
    seen = window_of("conv2d", weight.shape[2:], *steps)
    over = convolution(image.shape, weight.shape, meta.shape, seen, meta.dtype)
    if bias is None:
        return convolved(k, meta, over, image, weight)
    plain = convolved(k, meta.with_dtype(over.formed), over, image, weight)
    return k.map(meta, lambda *i: k.cast(plain[i] + k.cast(bias[i[1]], over.formed), meta.dtype))


def _conv_input(
    grad: Any, input: Any, weight: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Any:
    return grad.conv2d_input(conj(weight), input.shape, stride, padding, dilation, groups)


def _conv_weight(
    grad: Any, input: Any, weight: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Any:
    return grad.conv2d_weight(conj(input), weight.shape, stride, padding, dilation, groups)


_IMAGE, _WEIGHT, _RESULT = ("n", "c", None, None), ("o", "c", None, None), ("n", "o", None, None)


def _conv_dims(args: Args, results: Metas) -> Dims:
    """Images, and channels where they are not in groups."""
    if args["groups"] != 1:
        weight: Labels = (None,) * 4
        found = {"input": ("n", None, None, None), "weight": weight, "bias": (None,)}
        return Dims(found, (("n", None, None, None),))
    found = {"input": _IMAGE, "weight": _WEIGHT, "bias": ("o",)}
    return Dims(found, (_RESULT,), joins="sum", added=("bias",))


def _conv_input_dims(args: Args, results: Metas) -> Dims | None:
    if args["groups"] != 1:
        return None
    sizes = {"input_size": _IMAGE}
    return Dims({"self": _RESULT, "weight": _WEIGHT}, (_IMAGE,), joins="sum", sizes=sizes)


def _conv_weight_dims(args: Args, results: Metas) -> Dims | None:
    if args["groups"] != 1:
        return None
    sizes = {"weight_size": _WEIGHT}
    return Dims({"self": _RESULT, "input": _IMAGE}, (_WEIGHT,), joins="sum", sizes=sizes)


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
    workspace=_workspace(lambda args, found: (args[0].meta.shape, args[1].meta.shape, found)),
    dims=_conv_dims,
    loops=_conv2d_loops,
)


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
    _check_result(name, self, _conv_shape(name, input_size, weight.shape, window, groups))
    _check_dtypes(name, [self, weight])
    common_device(name, [self, weight])
    return _image_meta(input_size, [self, weight])


def _conv2d_input_kernel(
    xp: Any,
    meta: TensorMeta,
    grad: Any,
    weight: Any,
    input_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Any:
    grad, weight = wide(xp, grad, meta.dtype), wide(xp, weight, meta.dtype)
    window = window_of("conv2d_input", weight.shape[2:], stride, padding, dilation)
    batch, channels, height, width = input_size
    out = grad.shape[2:]
    turned = xp.permute_dims(_flat_weight(xp, weight, groups), (0, 2, 1))
    columns = xp.matmul(turned, _by_group(xp, grad, groups))
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
    k: Any, meta: TensorMeta, grad: Any, weight: Any, input_size: Ints, *window: Any
) -> Any:
    *steps, _ = window
    seen = window_of("conv2d_input", weight.shape[2:], *steps)
    over = convolution(input_size, weight.shape, grad.shape, seen, meta.dtype)
    return towards_input(k, meta, over, grad, weight)


# Both read both operands, for PyTorch's transposed convolution saves both.
def _input_self(
    grad: Any,
    self: Any,
    weight: Any,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Any:
    return grad._do("conv2d", conj(weight), None, stride, padding, dilation, groups)


def _input_weight(
    grad: Any, self: Any, weight: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Any:
    return conj(self).conv2d_weight(grad, weight.shape, stride, padding, dilation, groups)


CONV2D_INPUT: PureOp = pure(
    "conv2d_input(Tensor self, Tensor weight, int[] input_size, int[] stride, int[] padding, "
    "int[] dilation, int groups) -> Tensor",
    meta=_conv2d_input_rule,
    kernel=_conv2d_input_kernel,
    vjp={"self": _input_self, "weight": _input_weight},
    cost=Cost.CONTRACTION,
    workspace=_workspace(lambda args, found: (found, args[1].meta.shape, args[0].meta.shape)),
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
    _check_result(name, self, _conv_shape(name, input.shape, weight_size, window, groups))
    _check_dtypes(name, [self, input])
    common_device(name, [self, input])
    return _image_meta(weight_size, [self, input])


def _conv2d_weight_kernel(
    xp: Any,
    meta: TensorMeta,
    grad: Any,
    image: Any,
    weight_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Any:
    grad, image = wide(xp, grad, meta.dtype), wide(xp, image, meta.dtype)
    window = window_of("conv2d_weight", weight_size[2:], stride, padding, dilation)
    columns = _columns(xp, image, window, grad.shape[2:], groups)
    product = xp.matmul(_by_group(xp, grad, groups), xp.permute_dims(columns, (0, 2, 1)))
    return cast(xp, xp.reshape(product, weight_size), meta.dtype)


def _conv2d_weight_loops(
    k: Any, meta: TensorMeta, grad: Any, image: Any, weight_size: Ints, *window: Any
) -> Any:
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
    workspace=_workspace(lambda args, found: (args[1].meta.shape, found, args[0].meta.shape)),
    dims=_conv_weight_dims,
    loops=_conv2d_weight_loops,
)
"""The gradient of conv2d towards its weight, for the gradient `self` of its result."""
