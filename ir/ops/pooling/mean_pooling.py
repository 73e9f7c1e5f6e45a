"""Pooling by the mean: of windows of one size, on images and lines.

The op is linear, and its gradient is an op of its own, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import attrs

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.errors import ArgumentError, DTypeError
from aotlite.ir.geometry.sizes import is_symbolic
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.composite import composite
from aotlite.ir.op.dims import leading
from aotlite.ir.op.operand import Operand
from aotlite.ir.op.workspace import OPERANDS, RESULTS
from aotlite.ir.ops.declare import pure
from aotlite.ir.ops.loops import Element, Loops, LoopTensor, Place
from aotlite.ir.ops.nn.window import (
    WINDOWS,
    Given,
    Ints,
    Window,
    held_by_windows,
    lines,
    padded_image,
    places_summed,
)
from aotlite.ir.ops.pooling.windows import (
    check_grad,
    check_image,
    check_line,
    on_a_line,
    plane_of,
    pool_size,
    pool_window,
    standing,
)
from aotlite.ir.ops.precision import OperandT, accumulator, cast, wide
from aotlite.ir.ops.shape.memory_format import image_like
from aotlite.ir.scalar.expression import Scalar
from aotlite.ir.symbols.proving import is_proved


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


def _spans(
    xp: Namespace, window: Window, out: Ints, image: Ints, clipped: bool
) -> tuple[Array, Array]:
    """Rows (outH, 1) and columns (outW,) that each window covers; `clipped` to the image proper."""
    found = []
    for axis in (0, 1):
        pad, size = window.padding[axis], image[axis]
        start = lines(xp, out[axis], window.stride[axis], -pad)
        end = xp.minimum(start + window.kernel[axis], size if clipped else size + pad)
        found.append(end - (xp.maximum(start, 0) if clipped else start))
    return found[0][:, None], found[1]


def _divisor(xp: Namespace, how: _Means, window: Window, out: Ints, image: Ints) -> Array | int:
    """By what each window's sum is divided: a number, or (outH, outW) int64."""
    if how.divisor_override is not None:
        return how.divisor_override
    rows, columns = _spans(xp, window, out, image, not how.count_include_pad)
    # A window that lies on the border alone is 0 whatever it is divided by.
    return xp.maximum(rows * columns, 1)


def _avg_pool_kernel(xp: Namespace, meta: TensorMeta, a: Array, *args: Any) -> Array:
    a, how, out = wide(xp, a, meta.dtype), _Means(*args), meta.shape[-2:]
    window = how.window("avg_pool2d")
    padded = padded_image(xp, a, window, out, 0)
    total = xp.zeros(meta.shape, dtype=a.dtype)
    for place in window.places():
        total = total + padded[window.seen(place, out)]
    divisor = _divisor(xp, how, window, out, a.shape[-2:])
    return cast(xp, _quotient(xp, total, divisor), meta.dtype)


def _quotient(xp: Namespace, total: Array, divisor: Array | int) -> Array:
    """total / divisor in total's dtype; integers towards zero, as in PyTorch."""
    if not isinstance(divisor, int):
        divisor = xp.astype(divisor, total.dtype)
    if total.dtype != dtypes.int64.numpy:
        return total / divisor
    return xp.sign(total) * xp.sign(divisor) * (xp.abs(total) // xp.abs(divisor))


# -------------------------------------------------------------------------------------- means
@attrs.frozen
class Means:
    """Windows of which means are taken."""

    window: Window
    image: Ints
    out: Ints
    border: bool
    """Places on the border count."""
    divisor: int | None
    """By what sums are divided, if that is given."""

    def span(self, axis: int) -> int | None:
        """How many rows, or columns, each window covers; None if they differ, or may."""
        if is_symbolic((self.out[axis], self.image[axis])):
            _, end = self._ends(self.out[axis] - 1, axis)
            is_whole = self.border or self.window.padding[axis] == 0
            inside = is_whole and is_proved(end <= self.limit(axis))
            return self.window.kernel[axis] if inside else None
        spans = {end - first for first, end in (self._span(o, axis) for o in range(self.out[axis]))}
        return spans.pop() if len(spans) == 1 else None

    def _span(self, o: int, axis: int) -> tuple[int, int]:
        first, end = self._ends(o, axis)
        return (first if self.border else max(first, 0)), min(end, self.limit(axis))

    def _ends(self, o: int, axis: int) -> tuple[int, int]:
        first = o * self.window.stride[axis] - self.window.padding[axis]
        return first, first + self.window.kernel[axis]

    def limit(self, axis: int) -> int:
        """Where what counts ends."""
        return self.image[axis] + (self.window.padding[axis] if self.border else 0)


def means(k: Loops, meta: TensorMeta, a: LoopTensor, how: Means) -> LoopTensor:
    """The mean of each window."""
    formed = accumulator(meta.dtype)

    def term(row: Sequence[Place], inner: Sequence[Place]) -> Scalar:
        plane, *at = plane_of(row)
        y, x = standing(how.window, at, inner)
        inside = k.all(k.inside(y, 0, how.image[0]), k.inside(x, 0, how.image[1]))
        return k.where(inside, k.cast(a[(*plane, y, x)], formed), 0)

    def finish(total: Scalar, row: Sequence[Place]) -> Scalar:
        return _divided(k, total, _divisor_at(k, how, *row[-2:]))

    return places_summed(k, meta, how.window.kernel, term, finish)


def means_backward(k: Loops, meta: TensorMeta, grad: LoopTensor, how: Means) -> LoopTensor:
    """The gradient of the image: each pixel's shares of the windows that see it."""
    formed = accumulator(meta.dtype)
    over = tuple(
        [-(-n // step) for n, step in zip(how.window.kernel, how.window.stride, strict=True)]
    )

    def term(row: Sequence[Place], inner: Sequence[Place]) -> Scalar:
        plane, *pixel = plane_of(row)
        found, at = [], []
        for axis in (0, 1):
            stands, sees = _behind(k, how, axis, pixel[axis], inner[axis])
            at.append(stands)
            found.append(sees)
        value = k.cast(grad[(*plane, *at)], formed)
        return k.where(k.all(*found), _divided(k, value, _divisor_at(k, how, *at)), 0)

    return places_summed(k, meta, over, term, lambda total, row: total)


def _behind(k: Loops, how: Means, axis: int, pixel: Any, back: Any) -> tuple[Place, Scalar]:
    """(the window that stands `back` before the last one that sees a pixel, whether it sees it)."""
    step, size = how.window.stride[axis], how.window.kernel[axis]
    from_border = pixel + how.window.padding[axis]
    last = from_border if step == 1 else from_border // step
    stands = -back + last
    reach = k.position(from_border) - k.position(stands) * step
    return stands, k.all(k.inside(stands, 0, how.out[axis]), reach < size)


def _divisor_at(k: Loops, how: Means, y: Place, x: Place) -> Element:
    """By what the sum of the window at y, x is divided: a number, or an int64."""
    if how.divisor is not None:
        return how.divisor
    rows, columns = _covered_by(k, how, 0, y), _covered_by(k, how, 1, x)
    if type(rows) is int and type(columns) is int:
        return max(rows * columns, 1)
    count: Any = columns * rows if type(rows) is int else rows * columns
    return k.where(count < 1, 1, count)  # a window on the border alone is 0 anyhow


def _covered_by(k: Loops, how: Means, axis: int, at: Place) -> Scalar | int:
    """How many rows, or columns, the window at a position covers."""
    span = how.span(axis)
    if span is not None:
        return span
    first = k.position(at) * how.window.stride[axis] - how.window.padding[axis]
    end, limit = first + how.window.kernel[axis], how.limit(axis)
    end = k.where(end < limit, end, limit)
    return end - (first if how.border else k.where(first < 0, 0, first))


def _divided(k: Loops, total: Scalar, divisor: Element) -> Scalar:
    """total / divisor; integers towards zero."""
    count = k.cast(divisor, total.dtype)
    return total / count if total.dtype.is_floating_point else k.make("idiv", total, count)


def _loops_of(name: str, how: _Means, image: Ints, out: Ints) -> Means:
    window = how.window(name)
    return Means(window, image, out, how.count_include_pad, how.divisor_override)


def _avg_pool_loops(k: Loops, meta: TensorMeta, a: LoopTensor, *args: Any) -> LoopTensor:
    how = _loops_of("avg_pool2d", _Means(*args), a.shape[-2:], meta.shape[-2:])
    return means(k, meta, a, how)


def _avg_back_loops(
    k: Loops, meta: TensorMeta, grad: LoopTensor, a: LoopTensor, *args: Any
) -> LoopTensor:
    image, out = a.shape[-2:], grad.shape[-2:]
    return means_backward(k, meta, grad, _loops_of("avg_pool2d", _Means(*args), image, out))


def _avg_pool_vjp(
    grad: Operand,
    self: Operand,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Operand:
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


def _avg_back_kernel(xp: Namespace, meta: TensorMeta, grad: Array, a: Array, *args: Any) -> Array:
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
    grad: Operand,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> Operand:
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
    input: OperandT,
    kernel_size: Given,
    stride: Given | None = None,
    padding: Given = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> OperandT:
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
    input: OperandT,
    kernel_size: Given,
    stride: Given | None = None,
    padding: Given = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> OperandT:
    """The mean of each window of a line: (n, c, l) -> (n, c, l'), also without n."""
    check_line("avg_pool1d", input)
    window = on_a_line("avg_pool1d", kernel_size, stride, padding)
    rows = input.unsqueeze(-2)._do("avg_pool2d", *window, ceil_mode, count_include_pad)
    return rows.squeeze(-2)
