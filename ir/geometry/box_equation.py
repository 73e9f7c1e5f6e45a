"""`is_solvable`: whether `Σ x_k stride_k = target` has integers `0 <= x_k <= count_k`.

Ground floor. `ir/geometry/overlap.py` asks it where a plain search takes too long. The method is
that of Lenstra, and of Aardal, Hurkens and Lenstra. Without the bounds, the solutions are one
solution plus a lattice. `ir/geometry/lattice.py` finds a basis of short vectors of that lattice,
measured in counts. A search along the basis visits few points: it leaves a branch where some
direction separates the point from the box. Rules: ALI-5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from aotlite.ir.geometry.lattice import Row, dot, reduced

__all__ = ["is_solvable"]

Term = tuple[int, int]
"""(stride, count), both positive: contributes `x * stride` for one `x` of 0..count."""

_Vector = list[float]

_ROUNDING = 1e-7
"""Tolerance for rounding errors, as a fraction of a count or of a step: points within it are
visited."""
_DIRECTIONS = 8
"""How many directions are tried to cut off a branch. Each costs time."""
_PASSES = 50
"""The most passes that move the start to the center; two or three are needed, as each is limited by
the digits of a float."""


def is_solvable(terms: Sequence[Term], target: int) -> bool:
    """Whether some `x` within the bounds solves the equation. Exact.

    >>> is_solvable([(6, 10), (10, 10), (15, 10)], 29), is_solvable([(6, 10), (10, 10)], 29)
    (False, False)
    >>> is_solvable([(6, 10), (10, 10), (15, 10)], 31)
    True
    """
    narrowed = _narrowed(list(terms), target)
    if isinstance(narrowed, bool):
        return narrowed
    return _Search(*narrowed).run()


def _narrowed(terms: list[Term], target: int) -> bool | tuple[list[Term], int]:
    """The equation with the tighter bounds that it implies; or the answer, if they give it."""
    while True:
        reach = sum([stride * count for stride, count in terms])
        if target in (0, reach):
            return True
        if not 0 < target < reach:
            return False
        common = math.gcd(*[stride for stride, _ in terms])
        if target % common:
            return False
        if len(terms) == 1:
            return True
        before = terms
        target, reach = target // common, reach // common
        terms, target = _tightened([(s // common, c) for s, c in terms], target, reach)
        if len(terms) == len(before) and terms == before:
            return terms, target


def _tightened(terms: list[Term], target: int, reach: int) -> tuple[list[Term], int]:
    """The terms with the bounds that the others imply, shifted such that each least value is 0."""
    found, least = [], 0
    for stride, count in terms:
        low = max(0, -((reach - stride * count - target) // stride))
        high = min(count, target // stride)
        least += low * stride
        if high > low:
            found.append((stride, high - low))
        elif high < low:
            return [], -1  # no number of steps is possible: nothing reaches a negative target
    return found, target - least


class _Search:
    """A search of the lattice's points near the box, scaled such that the box is [0, 1]^n."""

    def __init__(self, terms: Sequence[Term], target: int) -> None:
        self.counts = [count for _, count in terms]
        self.steps, point = _solutions(terms, target)
        reach = sum([stride * count for stride, count in terms])
        self.level = target / reach
        """All coordinates of the center: a real solution of the equation inside the box."""
        self.weights = [stride * count / reach for stride, count in terms]
        self.axes = _orthogonal([self._scaled(step) for step in self.steps])
        self.lengths = [dot(axis, axis) for axis in self.axes]
        self.ranges = [self._range(axis) for axis in self.axes]
        self.start = self._moved_to_center(point)

    def run(self) -> bool:
        return self._visit(self.start, len(self.axes) - 1)

    def _scaled(self, point: Sequence[int]) -> _Vector:
        return [x / count for x, count in zip(point, self.counts, strict=True)]

    def _from_center(self, point: Sequence[int]) -> _Vector:
        return [x / count - self.level for x, count in zip(point, self.counts, strict=True)]

    def _range(self, axis: _Vector) -> tuple[float, float]:
        """(least, most) extent of the box's solutions along an axis, from the center."""
        center = self.level * sum(axis)
        least, _ = self._farthest([-x for x in axis])
        return -least - center, self._farthest(axis)[0] - center

    def _moved_to_center(self, point: Row) -> Row:
        """The point, moved by lattice steps near the center: a shorter search, smaller numbers."""
        steps = [*zip(self.steps, self.axes, self.lengths, strict=True)]
        for _ in range(_PASSES):
            before = point
            for step, axis, length in reversed(steps):
                point = _plus(point, -round(dot(self._from_center(point), axis) / length), step)
            if point == before:
                break
        return point

    def _visit(self, point: Row, k: int) -> bool:
        """Whether `point` plus some multiples of steps 0 to k is a solution."""
        if k < 0:
            return all(0 <= x <= count for x, count in zip(point, self.counts, strict=True))
        at = dot(self._from_center(point), self.axes[k])
        low, high = [(end - at) / self.lengths[k] for end in self.ranges[k]]
        ends = math.ceil(low - _ROUNDING), math.floor(high + _ROUNDING)
        for n in _outward(*ends, round(-at / self.lengths[k])):
            moved = _plus(point, n, self.steps[k])
            if (k == 0 or self._may_lead(moved, k)) and self._visit(moved, k - 1):
                return True
        return False

    def _may_lead(self, point: Row, k: int) -> bool:
        """Whether no direction was found that separates the point from the box.

        The remaining steps do not move the point along the axes from k on. In the space of these,
        Gilbert's algorithm walks inside the box from the center towards the point.
        """
        axes, lengths = self.axes[k:], self.lengths[k:]
        goal = _coordinates(self._from_center(point), axes, lengths)
        here = [0.0] * len(goal)
        for _ in range(_DIRECTIONS):
            ahead = [a - b for a, b in zip(goal, here, strict=True)]
            direction = _combined(ahead, axes)
            farthest, corner = self._farthest(direction)
            if _along(ahead, goal, lengths) > farthest - self.level * sum(direction) + _ROUNDING:
                return False
            there = _coordinates([x - self.level for x in corner], axes, lengths)
            way = [a - b for a, b in zip(there, here, strict=True)]
            length = _along(way, way, lengths)
            part = _along(ahead, way, lengths) / length if length > _ROUNDING**2 else 0.0
            if part <= 0.0:
                return True
            here = [a + min(1.0, part) * b for a, b in zip(here, way, strict=True)]
        return True

    def _farthest(self, direction: _Vector) -> tuple[float, _Vector]:
        """(distance, point) of the real solution in the box that is farthest in a direction.

        A fractional knapsack: coordinates are filled by their gain per weight.
        """
        worth = [(x / w, k) for k, (x, w) in enumerate(zip(direction, self.weights, strict=True))]
        left, far = self.level, 0.0
        corner = [0.0] * len(direction)
        for _, k in sorted(worth, reverse=True):
            part = corner[k] = min(1.0, left / self.weights[k])
            far += part * direction[k]
            left -= part * self.weights[k]
            if part < 1.0:
                break
        return far, corner


def _solutions(terms: Sequence[Term], target: int) -> tuple[list[Row], Row]:
    """(short lattice vectors, measured in counts; one integer solution that ignores the bounds).

    The last column of a row is its sum `Σ x_k stride_k`, times a large weight. So all rows of the
    reduced basis but the last have 0 there, and are lattice vectors. The last has 1, as the strides
    have no common divisor; `target` times it is a solution.
    """
    size = len(terms)
    largest = max(count for _, count in terms)
    units = [max(1, 8 * largest // count) for _, count in terms]
    weight = max(stride for stride, _ in terms) * 8 * largest * size << size
    rows = []
    for k, (stride, _) in enumerate(terms):
        rows.append([0] * size + [weight * stride])
        rows[k][k] = units[k]
    *steps, last = reduced(rows)
    one = last[-1] // weight
    point = [one * target * x // unit for x, unit in zip(last, units, strict=False)]
    return [[x // unit for x, unit in zip(row, units, strict=False)] for row in steps], point


def _outward(low: int, high: int, middle: int) -> Iterator[int]:
    """The numbers from low to high, by their distance from the middle."""
    up = min(max(middle, low), high + 1)
    down = up - 1
    while up <= high or down >= low:
        if up <= high:
            yield up
            up += 1
        if down >= low:
            yield down
            down -= 1


def _plus(point: Row, times: int, step: Row) -> Row:
    return [x + times * y for x, y in zip(point, step, strict=True)] if times else point


def _orthogonal(vectors: Iterable[_Vector]) -> list[_Vector]:
    """The Gram-Schmidt orthogonalization, not normalized."""
    axes: list[_Vector] = []
    for vector in vectors:
        rest = vector
        for axis in axes:
            times = dot(rest, axis) / dot(axis, axis)
            rest = [x - times * y for x, y in zip(rest, axis, strict=True)]
        axes.append(rest)
    return axes


def _coordinates(vector: _Vector, axes: list[_Vector], lengths: list[float]) -> _Vector:
    return [dot(vector, axis) / length for axis, length in zip(axes, lengths, strict=True)]


def _combined(coordinates: _Vector, axes: list[_Vector]) -> _Vector:
    """The vector with these coordinates."""
    found = [0.0] * len(axes[0])
    for times, axis in zip(coordinates, axes, strict=True):
        found = [x + times * y for x, y in zip(found, axis, strict=True)]
    return found


def _along(a: _Vector, b: _Vector, lengths: list[float]) -> float:
    """The scalar product of two vectors, by their coordinates."""
    return sum([x * y * length for x, y, length in zip(a, b, lengths, strict=True)])
