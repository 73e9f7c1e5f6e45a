"""The limit of the machine for a row: its memory by a triad, its arithmetic by multiply-adds.

Measured in the row's own process, with as many bytes as the row must read and write at least: each
input and result once, as if one pass did everything.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from benchmarks.kernels.adamw import AdamW
from benchmarks.kernels.columns import Measured
from benchmarks.kernels.digits import Digits
from benchmarks.kernels.rows import BOTH, FORWARD
from benchmarks.kernels.timing import alternate
from benchmarks.kernels.written import aligned, call_with, library

CHUNKS, CHAINS, TURNS = 16, 96, 4000
ROUNDS = 7


@attrs.frozen
class Roofline:
    """The measured limits, and the least seconds of a row."""

    bytes: int
    bytes_a_second: float
    operations: int
    operations_a_second: float

    @property
    def seconds(self) -> float:
        """The least seconds, if memory and arithmetic overlap completely."""
        return max(self.bytes / self.bytes_a_second, self.operations / self.operations_a_second)


def roofline(
    row: Measured, direction: str, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray]
) -> Roofline:
    """Measures the limits for the inputs and results of a row."""
    moved = traffic(row, direction, arrays, results)
    read = sum(each.nbytes for each in arrays)
    bandwidth = _reading(moved) if read > 0.9 * moved else _triad(moved)
    operations = 2 * row.products * (1 if direction == FORWARD else 3)
    return Roofline(moved, bandwidth, operations, _multiply_adds())


def traffic(
    row: Measured, direction: str, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray]
) -> int:
    """The least bytes that are read and written."""
    read, written = (sum(each.nbytes for each in part) for part in (arrays, results))
    match row:
        case AdamW():
            return read + written * 5  # two running means, read and written, and the parameters
        case Digits():
            return read + written
    if direction == BOTH:
        written -= sum(arrays[place].nbytes for place in row.passed_on)
        read += results[0].nbytes  # as large as the tangent
    return read + written


def _triad(moved: int) -> float:
    """Bytes a second of a[i] = b[i] + 3 c[i], by the faster kind of store."""
    size = max(64, moved // 12 // 64 * 64)
    slots = [aligned((size,)) for _ in range(3)]
    calls = [call_with(library("roofline").triad, slots, (size, big)) for big in (0, 1)]
    found = alternate({str(i): lambda c=c: [c()] for i, c in enumerate(calls)}, ROUNDS)  # type: ignore[misc]
    return size * 12 / min(each.seconds for each in found.values())


def _reading(moved: int) -> float:
    """Bytes a second of a sum."""
    size = max(64, moved // 4 // 64 * 64)
    call = call_with(library("roofline").reading, [aligned((CHUNKS,)), aligned((size,))], (size,))
    return size * 4 / alternate({"": lambda: [call()]}, ROUNDS)[""].seconds


def _multiply_adds() -> float:
    """Float32 operations a second, two for each multiply-add."""
    slots = [aligned((CHUNKS,)), aligned((CHAINS + 2,))]
    call = call_with(library("roofline").multiply_adds, slots, (TURNS,))
    seconds = alternate({"": lambda: [call()]}, ROUNDS)[""].seconds
    return 2 * CHUNKS * CHAINS * TURNS / seconds
