"""Pooling by the mean: of windows of one size, on images and lines.

The op is linear, and its gradient is an op of its own, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from aotlite.ir import dtypes
from aotlite.ir.errors import ArgumentError, DTypeError
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.composite import composite
from aotlite.ir.op.dims import leading
from aotlite.ir.op.workspace import OPERANDS, RESULTS
from aotlite.ir.ops.declare import pure
from aotlite.ir.ops.nn.window import (
    WINDOWS,
    Given,
    Ints,
    Window,
    held_by_windows,
    lines,
    padded_image,
)
from aotlite.ir.ops.pooling.loops import Means, means, means_backward
from aotlite.ir.ops.pooling.windows import (
    check_grad,
    check_image,
    check_line,
    on_a_line,
    pool_size,
    pool_window,
)
from aotlite.ir.ops.precision import cast, wide
from aotlite.ir.ops.shape.memory_format import image_like


class _Means(NamedTuple):
    """What to take means of: the arguments of `avg_pool2d` and its gradient after the tensors."""

    kernel_size: Ints
    stride: Ints
    padding: Ints
    ceil_mode: bool
    count_include_pad: bool
    divisor_override: int | None

    def window(self, name: str) -> Window:
        return pool_window(name, self.kernel_size, self.stride, self.padding, (1,))


def _means(name: str, self: TensorMeta, how: _Means) -> TensorMeta:
    """The meta of the means of an image."""
    check_image(name, self)
    if not (self.dtype.is_floating_point or self.dtype is dtypes.int64):
        raise DTypeError(f"{name}: dtype is {self.dtype}, expected a floating one or int64")
    if how.divisor_override == 0:
        raise ArgumentError(f"{name}: argument 'divisor_override' is 0, expected another number")
    return image_like(self, pool_size(name, self.shape, how.window(name), how.ceil_mode))


def _spans(xp: Any, window: Window, out: Ints, image: Ints, clipped: bool) -> tuple[Any, Any]:
    """Rows (outH, 1) and columns (outW,) that each window covers; `clipped` to the image proper."""
    found = []
    for axis in (0, 1):
        pad, size = window.padding[axis], image[axis]
        start = lines(xp, out[axis], window.stride[axis], -pad)
        end = xp.minimum(start + window.kernel[axis], size if clipped else size + pad)
        found.append(end - (xp.maximum(start, 0) if clipped else start))
    return found[0][:, None], found[1]


def _divisor(xp: Any, how: _Means, window: Window, out: Ints, image: Ints) -> Any:
    """By what each window's sum is divided: a number, or (outH, outW) int64."""
    if how.divisor_override is not None:
        return how.divisor_override
    rows, columns = _spans(xp, window, out, image, not how.count_include_pad)
    # A window that lies on the border alone is 0 whatever it is divided by.
    return xp.maximum(rows * columns, 1)


def _avg_pool_kernel(xp: Any, meta: TensorMeta, a: Any, *args: Any) -> Any:
    a, how, out = wide(xp, a, meta.dtype), _Means(*args), meta.shape[-2:]
    window = how.window("avg_pool2d")
    padded = padded_image(xp, a, window, out, 0)
    total = xp.zeros(meta.shape, dtype=a.dtype)
    for place in window.places():
        total = total + padded[window.seen(place, out)]
    divisor = _divisor(xp, how, window, out, a.shape[-2:])
    return cast(xp, _quotient(xp, total, divisor), meta.dtype)


def _quotient(xp: Any, total: Any, divisor: Any) -> Any:
    """total / divisor in total's dtype; integers towards zero, as in PyTorch."""
    if not isinstance(divisor, int):
        divisor = xp.astype(divisor, total.dtype)
    if total.dtype != dtypes.int64.numpy:
        return total / divisor
    return xp.sign(total) * xp.sign(divisor) * (xp.abs(total) // xp.abs(divisor))


def _loops_of(name: str, how: _Means, image: Ints, out: Ints) -> Means:
    window = how.window(name)
    return Means(window, image, out, how.count_include_pad, how.divisor_override)


def _avg_pool_loops(k: Any, meta: TensorMeta, a: Any, *args: Any) -> Any:
    how = _loops_of("avg_pool2d", _Means(*args), a.shape[-2:], meta.shape[-2:])
    return means(k, meta, a, how)


def _avg_back_loops(k: Any, meta: TensorMeta, grad: Any, a: Any, *args: Any) -> Any:
    image, out = a.shape[-2:], grad.shape[-2:]
    return means_backward(k, meta, grad, _loops_of("avg_pool2d", _Means(*args), image, out))


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


def _held(args: tuple[Any, ...], results: Sequence[TensorMeta]) -> int:
    image, out = args[0].meta.shape, results[0].shape[-2:]
    return held_by_windows(image, _Means(*args[1:]).window("avg_pool2d"), out)


def _held_back(args: tuple[Any, ...], results: Sequence[TensorMeta]) -> int:
    image, out = results[0].shape, args[0].meta.shape[-2:]
    return held_by_windows(image, _Means(*args[2:]).window("avg_pool2d"), out)


AVG_POOL2D: PureOp = pure(
    "avg_pool2d(Tensor self, int[] kernel_size, int[] stride=[], int[] padding=[0], "
    "bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None) -> Tensor",
    meta=lambda self, *args: _means("avg_pool2d", self, _Means(*args)),
    kernel=_avg_pool_kernel,
    # PyTorch saves self for its shape.
    vjp={"self": _avg_pool_vjp},
    cost=Cost.REDUCTION,
    workspace={RESULTS: 4, OPERANDS: 3, WINDOWS: _held},
    dims=leading(2),
    linear=(("self",),),
    loops=_avg_pool_loops,
)
"""The mean of each window, which counts the places on the border if `count_include_pad`."""


def _avg_back_rule(grad_output: TensorMeta, self: TensorMeta, *args: Any) -> TensorMeta:
    name = "avg_pool2d_backward"
    check_grad(name, grad_output, _means(name, self, _Means(*args)))
    return image_like(self, self.shape)


def _avg_back_kernel(xp: Any, meta: TensorMeta, grad: Any, a: Any, *args: Any) -> Any:
    grad, how, out = wide(xp, grad, meta.dtype), _Means(*args), grad.shape[-2:]
    window, (height, width) = how.window("avg_pool2d_backward"), a.shape[-2:]
    share = _quotient(xp, grad, _divisor(xp, how, window, out, (height, width)))
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
    workspace={RESULTS: 4, OPERANDS: 3, WINDOWS: _held_back},
    dims=leading(2),
    loops=_avg_back_loops,
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
