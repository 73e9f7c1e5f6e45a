"""Pooling by the mean: of windows of one size, and of as many windows as the result has elements.

Each op is linear, and the gradient of each is an op of its own, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.composite import composite
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.ops.declare import common_device, pure
from aotlite.ir.ops.memory_format import image_strides, suggests_channels_last
from aotlite.ir.ops.pooling import check_image, check_line, on_a_line, pool_size, pool_window
from aotlite.ir.ops.precision import cast, wide
from aotlite.ir.ops.window import Given, Ints, Window, along_a_line, lines, padded_image


# ------------------------------------------------------------------------- windows of one size
def _avg_window(name: str, kernel_size: Ints, stride: Ints, padding: Ints) -> Window:
    return pool_window(name, kernel_size, stride, padding, (1,))


def _avg_pool_rule(
    self: TensorMeta,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> TensorMeta:
    return _avg_pool_meta(
        "avg_pool2d", self, (kernel_size, stride, padding), ceil_mode, divisor_override
    )


def _avg_pool_meta(
    name: str, self: TensorMeta, given: tuple[Ints, Ints, Ints], ceil_mode: bool, divisor: Any
) -> TensorMeta:
    check_image(name, self)
    if not (self.dtype.is_floating_point or self.dtype is dtypes.int64):
        raise DTypeError(f"{name}: dtype is {self.dtype}, expected a floating one or int64")
    if divisor == 0:
        raise ArgumentError(f"{name}: argument 'divisor_override' is 0, expected another number")
    shape = pool_size(name, self.shape, _avg_window(name, *given), ceil_mode)
    stride = image_strides(shape, channels_last=suggests_channels_last(self))
    return tensor_meta(shape, stride, self.dtype, self.device)


def _spans(xp: Any, window: Window, out: Ints, image: Ints, clipped: bool) -> tuple[Any, Any]:
    """Rows (outH, 1) and columns (outW,) that each window covers; `clipped` to the image proper."""
    found = []
    for axis in (0, 1):
        pad, size = window.padding[axis], image[axis]
        start = lines(xp, out[axis], window.stride[axis], -pad)
        end = xp.minimum(start + window.kernel[axis], size if clipped else size + pad)
        found.append(end - (xp.maximum(start, 0) if clipped else start))
    return found[0][:, None], found[1]


def _divisor(
    xp: Any, window: Window, out: Ints, image: Ints, include_pad: bool, override: int | None
) -> Any:
    """By what each window's sum is divided: a number, or (outH, outW) int64."""
    if override is not None:
        return override
    rows, columns = _spans(xp, window, out, image, not include_pad)
    # A window that lies on the border alone is 0 whatever it is divided by.
    return xp.maximum(rows * columns, 1)


def _avg_pool_kernel(
    xp: Any,
    meta: TensorMeta,
    a: Any,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    a = wide(xp, a, meta.dtype)
    window, out = _avg_window("avg_pool2d", kernel_size, stride, padding), meta.shape[-2:]
    padded = padded_image(xp, a, window, out, 0)
    total = xp.zeros(meta.shape, dtype=a.dtype)
    for place in window.places():
        total = total + padded[window.seen(place, out)]
    divisor = _divisor(xp, window, out, a.shape[-2:], count_include_pad, divisor_override)
    return cast(xp, _quotient(xp, total, divisor), meta.dtype)


def _quotient(xp: Any, total: Any, divisor: Any) -> Any:
    """total / divisor in total's dtype; integers towards zero, as in PyTorch."""
    if not isinstance(divisor, int):
        divisor = xp.astype(divisor, total.dtype)
    if total.dtype != dtypes.int64.numpy:
        return total / divisor
    return xp.sign(total) * xp.sign(divisor) * (xp.abs(total) // xp.abs(divisor))


def _avg_pool_vjp(
    grad: Any,
    self: Any,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    return grad._do(
        "avg_pool2d_backward",
        self,
        kernel_size,
        stride,
        padding,
        ceil_mode,
        count_include_pad,
        divisor_override,
    )


AVG_POOL2D: PureOp = pure(
    "avg_pool2d(Tensor self, int[] kernel_size, int[] stride=[], int[] padding=[0], "
    "bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor",
    meta=_avg_pool_rule,
    kernel=_avg_pool_kernel,
    # PyTorch saves self for its shape.
    vjp={"self": _avg_pool_vjp},
    cost=Cost.REDUCTION,
)
"""The mean of each window, which counts the places on the border if `count_include_pad`."""


def _avg_back_rule(
    grad_output: TensorMeta,
    self: TensorMeta,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> TensorMeta:
    name = "avg_pool2d_backward"
    given = (kernel_size, stride, padding)
    _check_grad(name, grad_output, _avg_pool_meta(name, self, given, ceil_mode, divisor_override))
    return _like_image(self)


def _check_grad(name: str, grad_output: TensorMeta, expected: TensorMeta) -> None:
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


def _like_image(self: TensorMeta) -> TensorMeta:
    stride = image_strides(self.shape, channels_last=suggests_channels_last(self))
    return tensor_meta(self.shape, stride, self.dtype, self.device)


def _avg_back_kernel(
    xp: Any,
    meta: TensorMeta,
    grad: Any,
    a: Any,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    window = _avg_window("avg_pool2d", kernel_size, stride, padding)
    grad, out, (height, width) = wide(xp, grad, meta.dtype), grad.shape[-2:], a.shape[-2:]
    divisor = _divisor(xp, window, out, (height, width), count_include_pad, divisor_override)
    share = _quotient(xp, grad, divisor)
    hollow = xp.zeros(meta.shape, dtype=grad.dtype)
    reach = padded_image(xp, hollow, window, out, 0)
    for place in window.places():
        seen = window.seen(place, out)
        reach[seen] = reach[seen] + share
    top, left = window.padding
    return cast(xp, reach[..., top : top + height, left : left + width], meta.dtype)


def _avg_back_vjp(
    grad: Any,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Any:
    return grad._do(
        "avg_pool2d",
        kernel_size,
        stride,
        padding,
        ceil_mode,
        count_include_pad,
        divisor_override,
    )


AVG_POOL2D_BACKWARD: PureOp = pure(
    "avg_pool2d_backward(Tensor grad_output, Tensor self, int[] kernel_size, int[] stride, "
    "int[] padding, bool ceil_mode, bool count_include_pad, int? divisor_override) -> Tensor",
    meta=_avg_back_rule,
    kernel=_avg_back_kernel,
    vjp={
        "grad_output": _avg_back_vjp,
        "self": lambda grad: grad.new_zeros(grad.shape),
    },
    cost=Cost.REDUCTION,
)
"""The gradient of avg_pool2d towards `self`, which is read for its geometry alone."""


@composite(is_method=False)
def avg_pool2d(
    input: Any,
    kernel_size: Given,
    stride: Given | None = None,
    padding: Given = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Any:
    """The mean of each window: (n, c, h, w) -> (n, c, h', w'), also without n."""
    steps = kernel_size if stride is None else stride
    return input._do(
        "avg_pool2d",
        kernel_size,
        steps,
        padding,
        ceil_mode,
        count_include_pad,
        divisor_override,
    )


@composite(is_method=False)
def avg_pool1d(
    input: Any,
    kernel_size: Given,
    stride: Given | None = None,
    padding: Given = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:
    """The mean of each window of a line: (n, c, l) -> (n, c, l'), also without n."""
    check_line("avg_pool1d", input)
    window = on_a_line("avg_pool1d", kernel_size, stride, padding)
    rows = input.unsqueeze(-2)._do("avg_pool2d", *window, ceil_mode, count_include_pad)
    return rows.squeeze(-2)


# --------------------------------------------------------------------- as many as the result has
def _adaptive_rule(self: TensorMeta, output_size: Ints) -> TensorMeta:
    return _adaptive_meta("adaptive_avg_pool2d", self, output_size)


def _adaptive_meta(name: str, self: TensorMeta, output_size: Ints) -> TensorMeta:
    check_covered(name, self.shape)
    if not self.dtype.is_floating_point:
        raise DTypeError(f"{name}: dtype is {self.dtype}, expected a floating one")
    shape = (*self.shape[:-2], *adaptive_size(name, output_size))
    stride = image_strides(shape, channels_last=suggests_channels_last(self))
    return tensor_meta(shape, stride, self.dtype, self.device)


def check_covered(name: str, shape: Ints) -> None:
    """Raises ShapeError unless it is (*, c, h, w), height and width not 0."""
    if len(shape) not in (3, 4) or 0 in shape[-2:]:
        raise ShapeError(
            f"{name}: the tensor has shape {shape}, expected 3 or 4 dimensions, height and width "
            "of at least 1"
        )


def adaptive_size(name: str, output_size: Ints) -> Ints:
    """(height, width) of the result, from one number or two."""
    size = output_size * 2 if len(output_size) == 1 else output_size
    if len(size) != 2 or any(n < 0 for n in size):
        raise ShapeError(
            f"{name}: argument 'output_size' is {output_size}, expected 1 or 2 sizes of at least 0"
        )
    return size


def covered(xp: Any, count: int, size: int) -> tuple[Any, Any]:
    """First and end of each of `count` stretches that cover `size` places evenly."""
    index = xp.arange(count, dtype=xp.int64)
    return index * size // max(count, 1), -(-(index + 1) * size // max(count, 1))


def _stretch_sums(xp: Any, a: Any, axis: int, count: int) -> Any:
    """Sums over `count` stretches that cover an axis evenly; they may share their ends."""
    size = a.shape[axis]
    first, end = covered(xp, count, size)
    longest = int(xp.max(end - first)) if count and size else 0
    shape = list(a.shape)
    shape[axis] = count
    total = xp.zeros(tuple(shape), dtype=a.dtype)
    column = [1] * a.ndim
    column[axis] = count
    for step in range(longest):
        inside = xp.reshape(first + step < end, tuple(column))
        piece = xp.take(a, xp.minimum(first + step, size - 1), axis=axis)
        total = total + xp.where(inside, piece, xp.zeros((), dtype=a.dtype))
    return total


def _areas(xp: Any, out: Ints, image: Ints, dtype: Any) -> Any:
    """(outH, outW): how many places each window covers."""
    rows, columns = (covered(xp, *sides) for sides in zip(out, image, strict=True))
    return xp.astype((rows[1] - rows[0])[:, None] * (columns[1] - columns[0]), dtype)


def _both_sums(xp: Any, a: Any, out: Ints) -> Any:
    return _stretch_sums(xp, _stretch_sums(xp, a, a.ndim - 1, out[1]), a.ndim - 2, out[0])


def _adaptive_kernel(xp: Any, meta: TensorMeta, a: Any, output_size: Ints) -> Any:
    a, out = wide(xp, a, meta.dtype), meta.shape[-2:]
    result = _both_sums(xp, a, out) / _areas(xp, out, a.shape[-2:], a.dtype)
    return cast(xp, result, meta.dtype)


ADAPTIVE_AVG_POOL2D: PureOp = pure(
    "adaptive_avg_pool2d(Tensor self, int[] output_size) -> Tensor",
    meta=_adaptive_rule,
    kernel=_adaptive_kernel,
    # PyTorch saves self for its shape.
    vjp={"self": lambda grad, self: grad._do("adaptive_avg_pool2d_backward", self)},
    cost=Cost.REDUCTION,
)
"""The means of windows that cover the image evenly, as many as the result has elements."""


def _adaptive_back_rule(grad_output: TensorMeta, self: TensorMeta) -> TensorMeta:
    name = "adaptive_avg_pool2d_backward"
    if len(grad_output.shape) != len(self.shape):
        raise ShapeError(
            f"{name}: argument 'grad_output' has shape {grad_output.shape}, expected "
            f"{len(self.shape)} dimensions"
        )
    _check_grad(name, grad_output, _adaptive_meta(name, self, grad_output.shape[-2:]))
    return _like_image(self)


def _adaptive_back_kernel(xp: Any, meta: TensorMeta, grad: Any, a: Any) -> Any:
    grad = wide(xp, grad, meta.dtype)
    share = grad / _areas(xp, grad.shape[-2:], a.shape[-2:], grad.dtype)
    # A place lies in window i exactly if i lies in the place's stretch of the windows.
    return cast(xp, _both_sums(xp, share, a.shape[-2:]), meta.dtype)


ADAPTIVE_AVG_POOL2D_BACKWARD: PureOp = pure(
    "adaptive_avg_pool2d_backward(Tensor grad_output, Tensor self) -> Tensor",
    meta=_adaptive_back_rule,
    kernel=_adaptive_back_kernel,
    vjp={
        "grad_output": lambda grad, grad_output_meta: grad._do(
            "adaptive_avg_pool2d", grad_output_meta.shape[-2:]
        ),
        "self": lambda grad: grad.new_zeros(grad.shape),
    },
    cost=Cost.REDUCTION,
)
"""The gradient of adaptive_avg_pool2d towards `self`, which is read for its geometry alone."""


@composite(is_method=False)
def adaptive_avg_pool2d(input: Any, output_size: int | Sequence[int | None]) -> Any:
    """The means of windows that cover the image evenly: (n, c, h, w) -> (n, c, *output_size).

    None in the place of a size keeps the input's.
    """
    name = "adaptive_avg_pool2d"
    size = adaptive_size(name, filled_in(output_size, input.shape[-2:]))
    if size != (1, 1) or input.ndim not in (3, 4):
        return input._do(name, size)
    # As in PyTorch, whose mean saves nothing.
    mean = input.mean((-1, -2), True)
    if not suggests_channels_last(input.meta):
        return mean
    return mean._do("restride", image_strides(mean.shape, channels_last=True))


def filled_in(output_size: int | Sequence[int | None], own: Ints) -> Ints:
    """The sizes asked for, the own ones in the places of None."""
    if isinstance(output_size, int):
        output_size = (output_size,) * len(own)
    if len(output_size) != len(own):
        return tuple([-1 if size is None else size for size in output_size])
    return tuple([n if size is None else size for size, n in zip(output_size, own, strict=True)])


@composite(is_method=False)
def adaptive_avg_pool1d(input: Any, output_size: int | Sequence[int]) -> Any:
    """The means of stretches that cover the line evenly: (n, c, l) -> (n, c, output_size)."""
    check_line("adaptive_avg_pool1d", input)
    (size,) = along_a_line("adaptive_avg_pool1d", "output_size", output_size)
    return adaptive_avg_pool2d(input.unsqueeze(-2), (1, size)).squeeze(-2)
