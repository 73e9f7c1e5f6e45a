"""Sums of kernels: long sums are formed in parts, to limit rounding errors.

NumPy sums contiguous runs of memory pairwise, and everything else in order. In a long column of
float32 numbers the last ones would hardly count.
"""

from __future__ import annotations

from math import prod
from typing import Any

from aotlite.ir.arrays import Array, Namespace, reducer

PART = 512
"""The numbers that a part sums in order."""
LONG = 4 * PART
"""The most numbers that are summed in order, without parts."""
WIDE = 4096
"""The number of parts that are formed side by side where lines of memory are shorter: adding long
lines is fast."""


def sum_over(xp: Namespace, a: Array, axes: tuple[int, ...], *, keepdims: bool = False) -> Array:
    """The sum of an array over these axes."""
    count = 1
    for axis in axes:
        count *= a.shape[axis]
    if count > LONG:
        axes = tuple([axis % len(a.shape) for axis in axes])
        lines = _lines(a.shape, getattr(a, "strides", None), axes)
        if _is_long(a.shape, lines[1]):
            return _in_parts(xp, a, axes, lines, keepdims=keepdims)
    return reducer(xp, "sum")(a, axis=axes, keepdims=keepdims)


def is_in_parts(shape: tuple[int, ...], stride: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Whether `sum_over` forms parts of an array of this geometry first."""
    if prod([shape[axis] for axis in axes]) <= LONG:
        return False
    return _is_long(shape, _lines(shape, stride, axes)[1])


def _is_long(shape: tuple[int, ...], columns: list[int]) -> bool:
    return 0 not in shape and prod([shape[axis] for axis in columns]) > LONG


def _lines(
    shape: tuple[int, ...], stride: tuple[int, ...] | None, axes: tuple[int, ...]
) -> tuple[list[int], list[int], list[int]]:
    """The axes that are one run of memory, those added up in order, and all; innermost first.

    Axes of size 1 are left out. Where strides are not known there is no run.
    """
    every = [axis for axis in reversed(range(len(shape))) if shape[axis] != 1]
    run: list[int] = []
    if stride is not None:
        every = _as_numpy_goes(every, stride)
        for axis in every:
            if axis not in axes or run and stride[axis] != stride[run[-1]] * shape[run[-1]]:
                break
            run.append(axis)
    return run, [axis for axis in every if axis in axes and axis not in run], every


def _as_numpy_goes(axes: list[int], stride: tuple[int, ...]) -> list[int]:
    """The axes, given innermost first, in the order of NumPy's loops: small strides are inside.

    An axis along which memory repeats itself stays where it is.
    """
    order: list[int] = []
    for axis in axes:
        place = len(order)
        for i in reversed(range(len(order))):
            if stride[axis] and stride[order[i]]:
                if abs(stride[order[i]]) <= abs(stride[axis]):
                    break
                place = i
        order.insert(place, axis)
    return order


def _in_parts(
    xp: Namespace,
    a: Array,
    axes: tuple[int, ...],
    lines: tuple[list[int], list[int], list[int]],
    *,
    keepdims: bool,
) -> Array:
    shape = tuple(a.shape)
    together, columns, every = lines
    rows, axis = PART, columns[0]
    for axis in columns:
        if shape[axis] > rows:
            break
        together = [*together, axis]
        rows //= shape[axis]
    if rows == 1:
        part = xp.sum(a, axis=tuple(together), keepdims=True)
        return sum_over(xp, part, axes, keepdims=keepdims)
    size = shape[axis]
    # Rows that are far apart are added, those between them side by side.
    width = WIDE if together else prod([shape[i] for i in every[: every.index(axis)]])
    beside = min(max(WIDE // width, 1), size // rows)
    blocks = size // (rows * beside)
    split = blocks * rows * beside
    before, after = shape[:axis], shape[axis + 1 :]
    first = a if split == size else _between(a, axis, 0, split)
    parts = xp.reshape(first, (*before, blocks, rows, beside, *after))
    over = (*[i if i < axis else i + 2 for i in together], axis + 1)
    part = xp.sum(parts, axis=over, keepdims=True)
    left = [1 if i in together else n for i, n in enumerate(shape)]
    left[axis] = blocks * beside
    found = sum_over(xp, xp.reshape(part, tuple(left)), axes, keepdims=keepdims)
    if split == size:
        return found
    return found + sum_over(xp, _between(a, axis, split, size), axes, keepdims=keepdims)


def _between(a: Any, axis: int, start: int, stop: int) -> Any:
    """What lies between these positions of an axis."""
    if len(a.shape) == 1:
        return a[start:stop]
    return a[(slice(None),) * axis + (slice(start, stop), ...)]
