"""Pooling by the maximum: of windows of one size, on images and lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.errors import DTypeError
from aotlite.ir.geometry.sizes import is_symbolic
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.composite import composite
from aotlite.ir.op.dims import leading
from aotlite.ir.op.workspace import OPERANDS, RESULTS
from aotlite.ir.ops.declare import pure
from aotlite.ir.ops.kinds import require_floating
from aotlite.ir.ops.loops import Loops, LoopTensor, Place
from aotlite.ir.ops.nn.window import (
    WINDOWS,
    Given,
    Ints,
    Window,
    along_a_line,
    held_by_windows,
    lines,
    padded_image,
    places_best,
)
from aotlite.ir.ops.pooling.windows import (
    candidate,
    check_image,
    check_line,
    lowest,
    on_a_line,
    plane_of,
    pool_size,
    pool_window,
    standing,
    to_maxima,
    with_indices,
)
from aotlite.ir.ops.precision import OperandT, cast, wide
from aotlite.ir.ops.shape.memory_format import image_like
from aotlite.ir.scalar.expression import Scalar
from aotlite.ir.symbols.proving import is_proved


def _max_pool_rule(
    self: TensorMeta,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool,
) -> tuple[TensorMeta, TensorMeta]:
    name = "max_pool2d"
    check_image(name, self)
    if self.dtype.is_complex or self.dtype is dtypes.bool_:
        raise DTypeError(f"{name}: dtype is {self.dtype}, expected a floating or integer one")
    window = pool_window(name, kernel_size, stride, padding, dilation)
    values = image_like(self, pool_size(name, self.shape, window, ceil_mode))
    return values, values.with_dtype(dtypes.int64)


def _first_inside(xp: Namespace, window: Window, out: Ints, width: int) -> Array:
    """(outH, outW): the flat index of the first place of each window that is on the image."""
    starts = []
    for n, step, pad, gap in zip(out, window.stride, window.padding, window.dilation, strict=True):
        start = lines(xp, n, step, -pad)
        starts.append(xp.where(start < 0, start % gap, start))
    return starts[0][:, None] * width + starts[1][None, :]


def _max_pool_kernel(
    xp: Namespace,
    metas: tuple[TensorMeta, TensorMeta],
    a: Array,
    kernel_size: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    ceil_mode: bool,
) -> tuple[Array, Array]:
    a = wide(xp, a, metas[0].dtype)
    window = pool_window("max_pool2d", kernel_size, stride, padding, dilation)
    shape, out, width = metas[0].shape, metas[0].shape[-2:], a.shape[-1]
    padded = padded_image(xp, a, window, out, lowest(xp, a.dtype))
    best = xp.full(shape, lowest(xp, a.dtype), dtype=a.dtype)
    where = xp.broadcast_to(_first_inside(xp, window, out, width), shape)
    for place in window.places():
        seen = padded[window.seen(place, out)]
        rows = lines(xp, out[0], window.stride[0], place[0] - window.padding[0])
        columns = lines(xp, out[1], window.stride[1], place[1] - window.padding[1])
        # A nan wins over anything, a later nan over an earlier one: PyTorch's comparison.
        better = xp.logical_or(seen > best, seen != seen)
        best = xp.where(better, seen, best)
        where = xp.where(better, rows[:, None] * width + columns[None, :], where)
    return cast(xp, best, metas[0].dtype), where


def _held(args: tuple[Any, ...], results: Sequence[TensorMeta]) -> int:
    window = pool_window("max_pool2d", *args[1:5])
    return held_by_windows(args[0].meta.shape, window, results[0].shape[-2:])


# ------------------------------------------------------------------------------------- maxima
def maxima(
    k: Loops, metas: tuple[TensorMeta, TensorMeta], a: LoopTensor, window: Window
) -> tuple[LoopTensor, ...] | None:
    """The largest element of each window and its place in the plane; None where a window stands
    wholly beside the image.
    """
    image, out = a.shape[-2:], metas[0].shape[-2:]
    if not all(_meets(window, axis, image[axis], out[axis]) for axis in (0, 1)):
        return None

    def parts(row: Sequence[Place], inner: Sequence[Place]) -> tuple[Scalar, Scalar]:
        plane, *at = plane_of(row)
        y, x = standing(window, at, inner)
        inside = k.all(k.inside(y, 0, image[0]), k.inside(x, 0, image[1]))
        return candidate(k, a, (*plane, y, x), inside)

    whole = all(_is_inside(window, axis, image[axis], out[axis]) for axis in (0, 1))
    return places_best(k, metas, window.kernel, parts, whole=whole)


def _is_inside(window: Window, axis: int, size: int, count: int) -> bool:
    """Whether all windows stand on the image along an axis."""
    last = (count - 1) * window.stride[axis] + window.extent[axis]
    return window.padding[axis] == 0 and is_proved(last <= size)


def _meets(window: Window, axis: int, size: int, count: int) -> bool:
    """Whether each window has a place on the image along an axis."""
    step, pad, gap = window.stride[axis], window.padding[axis], window.dilation[axis]
    if is_symbolic((size, count)):  # each begins before the image's end, and none ends before it
        return gap == 1 or size >= gap
    places = range(0, window.kernel[axis] * gap, gap)
    return all(any(0 <= o * step - pad + p < size for p in places) for o in range(count))


MAX_POOL2D_WITH_INDICES: PureOp = pure(
    "max_pool2d_with_indices(Tensor self, int[] kernel_size, int[] stride=[], int[] padding=[0], "
    "int[] dilation=[1], bool ceil_mode=False) -> (Tensor values, Tensor indices)",
    meta=_max_pool_rule,
    kernel=_max_pool_kernel,
    # PyTorch saves self for its shape.
    vjp={"self": to_maxima},
    cost=Cost.REDUCTION,
    dims=leading(2),
    loops=lambda k, metas, a, *args: maxima(k, metas, a, pool_window("max_pool2d", *args[:4])),
    workspace={RESULTS: 4, OPERANDS: 3, WINDOWS: _held},
)
"""The maximum of each window and its place in the plane (row-major); the first of equal ones."""


# ------------------------------------------------------------------------------ what users call
@composite(is_method=False)
def max_pool2d(
    input: OperandT,
    kernel_size: Given,
    stride: Given | None = None,
    padding: Given = 0,
    dilation: Given = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> OperandT:
    """The largest value of each window: (n, c, h, w) -> (n, c, h', w'); with indices, a pair."""
    steps = kernel_size if stride is None else stride
    pair = input._do("max_pool2d_with_indices", kernel_size, steps, padding, dilation, ceil_mode)
    return with_indices(pair[0], pair[1]) if return_indices else pair[0]


@composite(is_method=False)
def max_pool1d(
    input: OperandT,
    kernel_size: Given,
    stride: Given | None = None,
    padding: Given = 0,
    dilation: Given = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> OperandT:
    """The largest value of each window of a line: (n, c, l) -> (n, c, l'); with indices, a pair."""
    name = "max_pool1d"
    check_line(name, input)
    require_floating(name, input.dtype)
    window = on_a_line(name, kernel_size, stride, padding)
    gaps = (1, *along_a_line(name, "dilation", dilation))
    pair = input.unsqueeze(-2)._do("max_pool2d_with_indices", *window, gaps, ceil_mode)
    values, indices = (one.squeeze(-2) for one in pair)
    return with_indices(values, indices) if return_indices else values
