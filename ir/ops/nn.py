"""Ops on images: convolution with its two gradients, max pooling.

A convolution is one matrix product over columns of input patches (im2col); the loops run over the
places of the kernel window only. Shapes are (N, C, H, W); a weight is (O, C / groups, kH, kW).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from aotlite.ir import dtypes, sizes
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.ops.declare import common_device, pure
from aotlite.ir.ops.memory_format import image_strides, suggests_channels_last
from aotlite.ir.ops.precision import cast, wide

Ints = tuple[int, ...]


# ----------------------------------------------------------------------------------- the window
def _pair(name: str, argument: str, value: Ints, least: int) -> tuple[int, int]:
    """The value for height and width, from one number or two."""
    pair = value * 2 if len(value) == 1 else value
    if len(pair) != 2 or min(pair) < least:
        raise ArgumentError(
            f"{name}: argument '{argument}' is {value}, expected 1 or 2 numbers of at least {least}"
        )
    return pair[0], pair[1]


class Window(NamedTuple):
    """Where a window stands on an image: all fields are (height, width), in pixels."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @property
    def extent(self) -> tuple[int, int]:
        """Pixels from the first to the last place of the window, both counted."""
        (kh, kw), (dh, dw) = self.kernel, self.dilation
        return dh * (kh - 1) + 1, dw * (kw - 1) + 1

    def places(self) -> list[tuple[int, int]]:
        """(row, column) of each place, from the window's first, in row-major order."""
        (kh, kw), (dh, dw) = self.kernel, self.dilation
        return [(i * dh, j * dw) for i in range(kh) for j in range(kw)]

    def seen(self, place: tuple[int, int], out: Ints) -> tuple[Any, ...]:
        """The index of the padded image's pixels that this place of the window meets."""
        steps = zip(place, out, self.stride, strict=True)
        return (..., *(slice(first, first + step * (n - 1) + 1, step) for first, n, step in steps))


def _window(name: str, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Window:
    return Window(
        _pair(name, "kernel_size", kernel, 1),
        _pair(name, "stride", stride, 1),
        _pair(name, "padding", padding, 0),
        _pair(name, "dilation", dilation, 1),
    )


def _padded(xp: Any, image: Any, window: Window, out: Ints, value: Any) -> Any:
    """The image with `value` around it, as far as the windows reach."""
    height, width = image.shape[-2:]
    top, left = window.padding
    (rows, columns) = (
        max(before + size, (n - 1) * step + extent)
        for before, size, n, step, extent in zip(
            (top, left), (height, width), out, window.stride, window.extent, strict=True
        )
    )
    if (rows, columns) == (height, width):
        return image
    padded = xp.full((*image.shape[:-2], rows, columns), value, dtype=image.dtype)
    padded[..., top : top + height, left : left + width] = image
    return padded


# --------------------------------------------------------------------------------- convolution
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
    window = _window("conv2d", weight.shape[2:4] or (1,), stride, padding, dilation)
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
    padded = xp.permute_dims(_padded(xp, image, window, out, 0), (1, 0, 2, 3))
    places = window.places()
    # Filled place by place: `stack` would keep the image's memory order and `reshape` copy again.
    patches = xp.empty((channels, len(places), batch, *out), dtype=image.dtype)
    for k, place in enumerate(places):
        patches[:, k] = padded[window.seen(place, out)]
    rows = channels // groups * len(places)
    return xp.reshape(patches, (groups, rows, batch * out[0] * out[1]))


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
    window = _window("conv2d", weight.shape[2:], stride, padding, dilation)
    batch, channels, *out = meta.shape
    columns = _columns(xp, image, window, tuple(out), groups)
    product = xp.matmul(_flat_weight(xp, weight, groups), columns)
    result = xp.permute_dims(xp.reshape(product, (channels, batch, *out)), (1, 0, 2, 3))
    if bias is not None:
        result = result + xp.reshape(wide(xp, bias, meta.dtype), (channels, 1, 1))
    return cast(xp, result, meta.dtype)


def _conv_input(
    grad: Any, input: Any, weight: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Any:
    return grad.conv2d_input(weight, input.shape, stride, padding, dilation, groups)


def _conv_weight(
    grad: Any, input: Any, weight: Any, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Any:
    return grad.conv2d_weight(input, weight.shape, stride, padding, dilation, groups)


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
    window = _window(name, weight.shape[2:4] or (1,), stride, padding, dilation)
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
    window = _window("conv2d_input", weight.shape[2:], stride, padding, dilation)
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


CONV2D_INPUT: PureOp = pure(
    "conv2d_input(Tensor self, Tensor weight, int[] input_size, int[] stride, int[] padding, "
    "int[] dilation, int groups) -> Tensor",
    meta=_conv2d_input_rule,
    kernel=_conv2d_input_kernel,
    vjp={
        "self": lambda grad, weight, stride, padding, dilation, groups: grad._do(
            "conv2d", weight, None, stride, padding, dilation, groups
        ),
        "weight": lambda grad, self, weight_meta, stride, padding, dilation, groups: (
            self.conv2d_weight(grad, weight_meta.shape, stride, padding, dilation, groups)
        ),
    },
    cost=Cost.CONTRACTION,
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
    window = _window(name, weight_size[2:4] or (1,), stride, padding, dilation)
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
    window = _window("conv2d_weight", weight_size[2:], stride, padding, dilation)
    columns = _columns(xp, image, window, grad.shape[2:], groups)
    product = xp.matmul(_by_group(xp, grad, groups), xp.permute_dims(columns, (0, 2, 1)))
    return cast(xp, xp.reshape(product, weight_size), meta.dtype)


CONV2D_WEIGHT: PureOp = pure(
    "conv2d_weight(Tensor self, Tensor input, int[] weight_size, int[] stride, int[] padding, "
    "int[] dilation, int groups) -> Tensor",
    meta=_conv2d_weight_rule,
    kernel=_conv2d_weight_kernel,
    vjp={
        "self": lambda grad, input, stride, padding, dilation, groups: input._do(
            "conv2d", grad, None, stride, padding, dilation, groups
        ),
        "input": lambda grad, self, input_meta, stride, padding, dilation, groups: (
            self.conv2d_input(grad, input_meta.shape, stride, padding, dilation, groups)
        ),
    },
    cost=Cost.CONTRACTION,
)
"""The gradient of conv2d towards its weight, for the gradient `self` of its result."""


# ---------------------------------------------------------------------------------- max pooling
def _pool_window(
    name: str, kernel_size: Ints, stride: Ints, padding: Ints, dilation: Ints
) -> Window:
    window = _window(name, kernel_size, stride or kernel_size, padding, dilation)
    for pad, size in zip(window.padding, window.kernel, strict=True):
        if pad > size // 2:
            raise ArgumentError(
                f"{name}: argument 'padding' is {padding}, expected at most half of the kernel "
                f"size {kernel_size}"
            )
    return window


def _pool_size(size: int, window: Window, axis: int, ceil_mode: bool) -> int:
    """Windows that fit; with `ceil_mode` one that hangs over the end if it begins on the image."""
    step, pad = window.stride[axis], window.padding[axis]
    spare = size + 2 * pad - window.extent[axis]
    count = (spare + (step - 1 if ceil_mode else 0)) // step + 1
    return count - 1 if ceil_mode and (count - 1) * step >= size + pad else count


def _max_pool_rule(
    self: TensorMeta,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool,
) -> tuple[TensorMeta, TensorMeta]:
    name = "max_pool2d"
    if len(self.shape) not in (3, 4) or 0 in self.shape[1:]:
        raise ShapeError(
            f"{name}: the tensor has shape {self.shape}, expected 3 or 4 dimensions, all but the "
            "batch of at least 1"
        )
    if self.dtype.is_complex or self.dtype is dtypes.bool_:
        raise DTypeError(f"{name}: dtype is {self.dtype}, expected a floating or integer one")
    window = _pool_window(name, kernel_size, stride, padding, dilation)
    out = tuple(_pool_size(self.shape[i - 2], window, i, ceil_mode) for i in (0, 1))
    if min(out) < 1:
        raise ShapeError(
            f"{name}: the result's size is {out}, expected at least 1: the window {kernel_size} is "
            f"larger than shape {self.shape}"
        )
    shape = (*self.shape[:-2], *out)
    stride = image_strides(shape, channels_last=suggests_channels_last(self))
    values = tensor_meta(shape, stride, self.dtype, self.device)
    return values, values.with_dtype(dtypes.int64)


def _lowest(xp: Any, dtype: Any) -> Any:
    return -float("inf") if dtypes.from_numpy(dtype).is_floating_point else int(xp.iinfo(dtype).min)


def _lines(xp: Any, count: int, step: int, first: int) -> Any:
    """Row (or column) of the image where place `first` of each window falls."""
    return xp.arange(count, dtype=xp.int64) * step + first


def _first_inside(xp: Any, window: Window, out: Ints, width: int) -> Any:
    """(outH, outW): the flat index of the first place of each window that is on the image."""
    starts = []
    for n, step, pad, gap in zip(out, window.stride, window.padding, window.dilation, strict=True):
        start = _lines(xp, n, step, -pad)
        starts.append(xp.where(start < 0, start % gap, start))
    return starts[0][:, None] * width + starts[1][None, :]


def _max_pool_kernel(
    xp: Any,
    metas: tuple[TensorMeta, TensorMeta],
    a: Any,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool,
) -> tuple[Any, Any]:
    a = wide(xp, a, metas[0].dtype)
    window = _pool_window("max_pool2d", kernel_size, stride, padding, dilation)
    shape, out, width = metas[0].shape, metas[0].shape[-2:], a.shape[-1]
    padded = _padded(xp, a, window, out, _lowest(xp, a.dtype))
    best = xp.full(shape, _lowest(xp, a.dtype), dtype=a.dtype)
    where = xp.broadcast_to(_first_inside(xp, window, out, width), shape)
    for place in window.places():
        seen = padded[window.seen(place, out)]
        rows = _lines(xp, out[0], window.stride[0], place[0] - window.padding[0])
        columns = _lines(xp, out[1], window.stride[1], place[1] - window.padding[1])
        # A nan wins over anything, a later nan over an earlier one: PyTorch's comparison.
        better = xp.logical_or(seen > best, seen != seen)
        best = xp.where(better, seen, best)
        where = xp.where(better, rows[:, None] * width + columns[None, :], where)
    return cast(xp, best, metas[0].dtype), where


def _max_pool_vjp(grad_values: Any, self: Any, indices: Any) -> Any:
    shape = self.shape
    planes = grad_values.new_zeros((*shape[:-2], shape[-2] * shape[-1]))
    flat = planes.scatter_add(-1, indices.flatten(-2), grad_values.flatten(-2))
    return flat.view(shape)


MAX_POOL2D_WITH_INDICES: PureOp = pure(
    "max_pool2d_with_indices(Tensor self, int[] kernel_size, int[] stride=[], int[] padding=[0], "
    "int[] dilation=[1], bool ceil_mode=False) -> (Tensor values, Tensor indices)",
    meta=_max_pool_rule,
    kernel=_max_pool_kernel,
    # PyTorch saves self for its shape.
    vjp={"self": _max_pool_vjp},
    cost=Cost.REDUCTION,
)
"""The maximum of each window and its place in the plane (row-major); the first of equal ones."""
