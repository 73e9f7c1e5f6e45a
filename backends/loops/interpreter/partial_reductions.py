"""Reductions and scans in NumPy, of rows that come piece by piece, in the order of the IR.

A piece is, for each part of a combiner, an array (rows, n) of the next n points of each row. Any
division into pieces gives the same bits. Spec: `specs/loops.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from aotlite.backends.loops.combiners import Combiner
from aotlite.ir.arrays import Array
from aotlite.ir.dtypes import DType
from aotlite.ir.scalar.evaluation import evaluate, filled
from aotlite.ir.scalar.expression import Scalar, parameter


class Partials:
    """The state of a reduction: (rows, lanes) partial results for each part (`Reduce`).

    `between` is called before each operation. It may raise, to abandon the run.
    """

    def __init__(
        self,
        kind: Combiner,
        rows: int,
        kinds: list[DType],
        lanes: int,
        between: Callable[[], None] = lambda: None,
    ) -> None:
        self.kind, self.kinds, self.rows, self.lanes = kind, kinds, rows, lanes
        self.between = between
        self.partial = [filled((rows, lanes), part) for part in kind.identity(kinds)]
        self.points = 0

    def add(self, arrays: list[Array]) -> None:
        """Combines the next points of each row."""
        begin, n = 0, arrays[0].shape[1]
        at_once = self.kind.ufunc is not None or self.kind.selects
        while begin < n:
            lane = self.points % self.lanes
            whole = (n - begin) // self.lanes * self.lanes
            self.between()
            if lane == 0 and whole and at_once:
                end = begin + whole
                self._add_rounds([array[:, begin:end] for array in arrays])
            else:
                end = min(begin + self.lanes - lane, n)
                self._add_round([array[:, begin:end] for array in arrays], lane)
            self.points += end - begin
            begin = end

    def _add_rounds(self, arrays: list[Array]) -> None:
        """Combines a multiple of `lanes` points, beginning at lane 0."""
        rounds = [array.reshape(self.rows, -1, self.lanes) for array in arrays]
        if self.kind.ufunc is None:
            found = self._chosen(rounds)
            self.partial = joined(self.kind, self.partial, found, self.kinds)
            return
        both = np.concatenate([self.partial[0][:, None], *rounds], axis=1)
        sums = getattr(np, self.kind.ufunc).accumulate(both, axis=1, dtype=both.dtype)
        self.partial = [sums[:, -1].copy()]

    def _chosen(self, rounds: list[Array]) -> list[Array]:
        """Returns (rows, rounds, lanes) -> (rows, lanes), for a combiner that selects, for which
        any brackets give the same bits: pairs of neighbors are combined at once."""
        while (count := rounds[0].shape[1]) > 1:
            self.between()
            first = [each[:, 0 : count - 1 : 2] for each in rounds]
            second = [each[:, 1::2] for each in rounds]
            found = joined(self.kind, first, second, self.kinds)
            if count % 2:
                last = [each[:, -1:] for each in rounds]
                found = [np.concatenate(each, axis=1) for each in zip(found, last, strict=True)]
            rounds = found
        return [each[:, 0] for each in rounds]

    def _add_round(self, part: list[Array], lane: int) -> None:
        """Combines one point into each of some neighboring lanes."""
        end = lane + part[0].shape[1]
        before = [old[:, lane:end] for old in self.partial]
        for old, new in zip(before, joined(self.kind, before, part, self.kinds), strict=True):
            old[...] = new

    def results(self, near: int) -> list[Array]:
        """Returns (rows,) for each part: the lanes, combined in halves."""
        if self.points == 0:
            # A chunk of no points has a partial result, too (`split_reductions`).
            found = self.kind.empty or self.kind.identity
            return [filled((self.rows,), part) for part in found(self.kinds)]
        partial = self.partial
        for count in (near, self.lanes // near):
            grouped = [p.reshape(self.rows, -1, count) for p in partial]
            while grouped[0].shape[2] > 1:
                half = grouped[0].shape[2] // 2
                halves = [p[..., :half] for p in grouped], [p[..., half:] for p in grouped]
                grouped = joined(self.kind, *halves, self.kinds)
            partial = [p[..., 0] for p in grouped]
        return [p[:, 0] for p in partial]


def reduced(
    kind: Combiner, arrays: list[Array], kinds: list[DType], lanes: int, near: int = 1
) -> list[Array]:
    """Returns the reduction (rows, n) -> (rows,) of each part, in the order of `Reduce`."""
    partials = Partials(kind, arrays[0].shape[0], kinds, lanes)
    partials.add(arrays)
    return partials.results(near)


class Scanned:
    """The state of a scan: the combination of all points of each row so far."""

    def __init__(self, kind: Combiner, kinds: list[DType]) -> None:
        self.kind, self.kinds = kind, kinds
        self.last: list[Array] | None = None

    def add(self, arrays: list[Array]) -> list[Array]:
        """Returns (rows, n): for each of the next points the combination up to it."""
        if not arrays[0].shape[1]:
            return list(arrays)
        results = self._accumulated(arrays) if self.kind.ufunc is not None else self._each(arrays)
        self.last = [result[:, -1].copy() for result in results]
        return results

    def _accumulated(self, arrays: list[Array]) -> list[Array]:
        before = [] if self.last is None else [self.last[0][:, None]]
        row = np.concatenate([*before, arrays[0]], axis=1) if before else arrays[0]
        found = getattr(np, str(self.kind.ufunc)).accumulate(row, axis=1, dtype=row.dtype)
        return [found[:, len(before) :]]

    def _each(self, arrays: list[Array]) -> list[Array]:
        results = [np.array(array) for array in arrays]
        before = self.last
        for k in range(results[0].shape[1]):
            if before is not None:
                found = joined(self.kind, before, [array[:, k] for array in arrays], self.kinds)
                for result, new in zip(results, found, strict=True):
                    result[:, k] = new
            before = [result[:, k] for result in results]
        return results


def scanned(kind: Combiner, arrays: list[Array], values: Sequence[Scalar]) -> list[Array]:
    """Returns the scan (rows, n) -> (rows, n): the combination of all points up to each."""
    return Scanned(kind, [value.dtype for value in values]).add(arrays)


def joined(kind: Combiner, a: list[Array], b: list[Array], kinds: list[DType]) -> list[Array]:
    """Returns the combination of earlier points `a` and later points `b`, for each part."""
    return [evaluate(part, [*a, *b]) for part in _combined(kind, tuple(kinds))]


@cache
def _combined(kind: Combiner, kinds: tuple[DType, ...]) -> Sequence[Scalar]:
    """Returns the combiner's trees: each part of the result over the parts of both operands."""
    count = len(kinds)
    first = [parameter(k, dtype) for k, dtype in enumerate(kinds)]
    second = [parameter(count + k, dtype) for k, dtype in enumerate(kinds)]
    return kind.combine(first, second)
