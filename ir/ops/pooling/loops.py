"""Pooling as loops: windows are inner axes; places outside of the image are ignored.

Gradients of means are sums over the windows that see a pixel.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
import numpy as np

from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.nn.window import Ints, Window
from aotlite.ir.ops.nn.window_loops import FEW, places_best, places_summed, summed
from aotlite.ir.ops.precision import accumulator

_BEYOND = 2**63 - 1
"""The place of what is beside the image: of equal elements the first one is chosen."""


def _planes(row: Any) -> tuple[tuple[Any, ...], Any, Any]:
    """(positions before the plane, row, column)."""
    return row[:-2], row[-2], row[-1]


# ------------------------------------------------------------------------------------- maxima
def maxima(k: Any, metas: tuple[TensorMeta, TensorMeta], a: Any, window: Window) -> Any:
    """The largest element of each window and its place in the plane; None where a window stands
    wholly beside the image.
    """
    image, out = a.shape[-2:], metas[0].shape[-2:]
    if not all(_meets(window, axis, image[axis], out[axis]) for axis in (0, 1)):
        return None

    def parts(row: Any, inner: Any) -> Any:
        plane, *at = _planes(row)
        y, x = _standing(window, at, inner)
        inside = k.all(k.inside(y, 0, image[0]), k.inside(x, 0, image[1]))
        return _candidate(k, a, (*plane, y, x), inside)

    whole = all(_is_inside(window, axis, image[axis], out[axis]) for axis in (0, 1))
    return places_best(k, metas, window.kernel, parts, whole=whole)


def _is_inside(window: Window, axis: int, size: int, count: int) -> bool:
    """Whether all windows stand on the image along an axis."""
    last = (count - 1) * window.stride[axis] + window.extent[axis]
    return window.padding[axis] == 0 and last <= size


def _candidate(k: Any, a: Any, at: tuple[Any, ...], inside: Any) -> tuple[Any, Any]:
    """(value, place in the plane) of an element, which counts for nothing if it is not inside."""
    value = k.wide(a[at])
    least = -np.inf if value.dtype.is_floating_point else np.iinfo(value.dtype.numpy).min
    row, column = at[-2] * a.shape[-1], at[-1]
    affine = hasattr(column, "extents")
    place = k.position(column + row if affine else k.position(row) + column)
    return k.where(inside, value, least), k.where(inside, place, _BEYOND)


def _meets(window: Window, axis: int, size: int, count: int) -> bool:
    """Whether each window has a place on the image along an axis."""
    step, pad, gap = window.stride[axis], window.padding[axis], window.dilation[axis]
    places = range(0, window.kernel[axis] * gap, gap)
    return all(any(0 <= o * step - pad + p < size for p in places) for o in range(count))


def _standing(window: Window, at: Any, place: Any) -> list[Any]:
    """Row and column of the image at a place of the window that stands at these positions."""
    return [
        at[axis] * window.stride[axis] + place[axis] * window.dilation[axis] - window.padding[axis]
        for axis in (0, 1)
    ]


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

    def spans(self, axis: int) -> list[int]:
        """How many rows, or columns, each window covers."""
        return [end - first for first, end in (self._span(o, axis) for o in range(self.out[axis]))]

    def _span(self, o: int, axis: int) -> tuple[int, int]:
        first = o * self.window.stride[axis] - self.window.padding[axis]
        end = min(first + self.window.kernel[axis], self.limit(axis))
        return (first if self.border else max(first, 0)), end

    def limit(self, axis: int) -> int:
        """Where what counts ends."""
        return self.image[axis] + (self.window.padding[axis] if self.border else 0)


def means(k: Any, meta: TensorMeta, a: Any, how: Means) -> Any:
    """The mean of each window."""
    formed = accumulator(meta.dtype)

    def term(row: Any, inner: Any) -> Any:
        plane, *at = _planes(row)
        y, x = _standing(how.window, at, inner)
        inside = k.all(k.inside(y, 0, how.image[0]), k.inside(x, 0, how.image[1]))
        return k.where(inside, k.cast(a[(*plane, y, x)], formed), 0)

    def finish(total: Any, row: Any) -> Any:
        return _divided(k, total, _divisor(k, how, *row[-2:]))

    return places_summed(k, meta, how.window.kernel, term, finish)


def means_backward(k: Any, meta: TensorMeta, grad: Any, how: Means) -> Any:
    """The gradient of the image: each pixel's shares of the windows that see it."""
    formed = accumulator(meta.dtype)
    over = tuple(
        [-(-n // step) for n, step in zip(how.window.kernel, how.window.stride, strict=True)]
    )

    def term(row: Any, inner: Any) -> Any:
        plane, *pixel = _planes(row)
        found, at = [], []
        for axis in (0, 1):
            stands, sees = _behind(k, how, axis, pixel[axis], inner[axis])
            at.append(stands)
            found.append(sees)
        value = k.cast(grad[(*plane, *at)], formed)
        return k.where(k.all(*found), _divided(k, value, _divisor(k, how, *at)), 0)

    return places_summed(k, meta, over, term, lambda total, row: total)


def _behind(k: Any, how: Means, axis: int, pixel: Any, back: Any) -> tuple[Any, Any]:
    """(the window that stands `back` before the last one that sees a pixel, whether it sees it)."""
    step, size = how.window.stride[axis], how.window.kernel[axis]
    from_border = pixel + how.window.padding[axis]
    last = from_border if step == 1 else from_border // step
    stands = -back + last
    reach = k.position(from_border) - k.position(stands) * step
    return stands, k.all(k.inside(stands, 0, how.out[axis]), reach < size)


def _divisor(k: Any, how: Means, y: Any, x: Any) -> Any:
    """By what the sum of the window at y, x is divided: a number, or an int64."""
    if how.divisor is not None:
        return how.divisor
    rows, columns = _covered_by(k, how, 0, y), _covered_by(k, how, 1, x)
    if type(rows) is int and type(columns) is int:
        return max(rows * columns, 1)
    count = columns * rows if type(rows) is int else rows * columns
    return k.where(count < 1, 1, count)  # a window on the border alone is 0 anyhow


def _covered_by(k: Any, how: Means, axis: int, at: Any) -> Any:
    """How many rows, or columns, the window at a position covers."""
    spans = how.spans(axis)
    if len(set(spans)) == 1:
        return spans[0]
    first = k.position(at) * how.window.stride[axis] - how.window.padding[axis]
    end, limit = first + how.window.kernel[axis], how.limit(axis)
    end = k.where(end < limit, end, limit)
    return end - (first if how.border else k.where(first < 0, 0, first))


def _divided(k: Any, total: Any, divisor: Any) -> Any:
    """total / divisor; integers towards zero."""
    count = k.cast(divisor, total.dtype)
    return total / count if total.dtype.is_floating_point else k.make("idiv", total, count)


# ----------------------------------------------------------------------- windows that cover evenly
def _stretch(i: Any, count: int, size: int) -> tuple[Any, Any]:
    """First and end of stretch i of `count` that cover `size` places evenly."""
    return i * size // count, ((i + 1) * size + count - 1) // count


def _longest(count: int, size: int) -> int:
    return max([end - first for first, end in (_stretch(i, count, size) for i in range(count))])


def even_maxima(k: Any, metas: tuple[TensorMeta, TensorMeta], a: Any) -> Any:
    """The largest element of each window and its place in the plane."""
    image, out = a.shape[-2:], metas[0].shape[-2:]
    if 0 in metas[0].shape:
        return k.new(metas[0]), k.new(metas[1])

    def parts(row: Any, inner: Any) -> Any:
        plane, *at = _planes(row)
        places, inside = _stretched(k, at, inner, (out, image))
        return _candidate(k, a, (*plane, *places), inside)

    whole = all(size % count == 0 for count, size in zip(out, image, strict=True))
    return places_best(k, metas, tuple(map(_longest, out, image)), parts, whole=whole)


def _stretched(k: Any, at: Any, inner: Any, sides: tuple[Ints, Ints]) -> tuple[list[Any], Any]:
    """(row and column at a place of the window at these positions, whether it has that place)."""
    places, inside = [], []
    for i, step, count, size in zip(at, inner, *sides, strict=True):
        first, end = _stretch(i, count, size)
        places.append(step + first)
        inside.append(k.position(step + first) < k.position(end))
    return places, k.all(*inside)


def even_means(k: Any, meta: TensorMeta, a: Any, *, backward: bool = False) -> Any:
    """The mean of each window; or what windows with these values give to each pixel."""
    formed, here, there = accumulator(meta.dtype), meta.shape[-2:], a.shape[-2:]
    if 0 in meta.shape or 0 in a.shape:
        return k.map(meta, lambda *i: 0)

    def term(row: Any, inner: Any) -> Any:
        plane, *at = _planes(row)
        places, inside = _stretched(k, at, inner, (here, there))
        value = k.cast(a[(*plane, *places)], formed)
        if backward:
            value = value / _area(k, places, (there, here), formed)
        return k.where(inside, value, 0)

    def finish(total: Any, row: Any) -> Any:
        return total if backward else total / _area(k, row[-2:], (here, there), formed)

    rows, columns = map(_longest, here, there)
    if rows * columns > FEW:
        return places_summed(k, meta, (rows, columns), term, finish)

    def line(row: Any, inner: Any) -> Any:  # as the kernel does, which sums lines first
        return summed(term, row, [(*inner, step) for step in range(columns)])

    return places_summed(k, meta, (rows,), line, finish)


def _area(k: Any, at: Any, sides: tuple[Ints, Ints], dtype: Any) -> Any:
    """How many places the window at these positions covers."""
    lengths = []
    for i, count, size in zip(at, *sides, strict=True):
        affine = hasattr(i, "extents")
        first, end = (_stretch if affine else partial(_of_scalar, k))(i, count, size)
        lengths.append(k.position(end) - k.position(first))
    return k.cast(lengths[0] * lengths[1], dtype)


def _of_scalar(k: Any, i: Any, count: int, size: int) -> tuple[Any, Any]:
    last = (i + 1) * size + (count - 1)
    return k.make("idiv", i * size, count), k.make("idiv", last, count)
