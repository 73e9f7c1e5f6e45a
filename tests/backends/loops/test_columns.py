"""Columns reduced while rows are computed: what waits for a column waits for all rows (FUS-13).

The sizes from which on columns are taken into rows, rows are not gone over twice, and sums are
divided, are lowered, so that small programs are treated as large ones are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.backends.loops.backend import program_of
from aotlite.backends.loops.passes.fusion import fuse, row_column_reduction
from aotlite.backends.loops.passes.pass_order import improved
from aotlite.backends.loops.program import Kernel
from aotlite.backends.loops.verify import verify
from tests.backends.loops.helpers.lowered_sizes import SIZES, lower
from tests.backends.loops.test_fused_graphs import memories

Step = tuple[str, int, int, int]
"""What is done, along which axis, and to which two of the values so far (counted modulo)."""

STEPS: dict[str, Callable[[Any, Any, int], Any]] = {
    "softmax": lambda a, b, axis: a.softmax(axis),
    "less_max": lambda a, b, axis: a - b.amax(axis, keepdim=True),
    "by_sum": lambda a, b, axis: a / (b.abs().sum(axis, keepdim=True) + 1),
    "times_mean": lambda a, b, axis: a * b.mean(axis, keepdim=True),
    "sum": lambda a, b, axis: a.sum(axis, keepdim=True),
    "max": lambda a, b, axis: a.amax(axis, keepdim=True),
    "logsumexp": lambda a, b, axis: a - b.logsumexp(axis, keepdim=True),
    "product": lambda a, b, axis: a * b,
    "difference": lambda a, b, axis: a - b,
}


def applied(steps: list[Step], kept: set[int], *given: Any) -> tuple[Any, ...]:
    """Of the values that the steps make of what is given, the last one and those that are kept."""
    values = list(given)
    for name, axis, first, second in steps:
        pair = values[first % len(values)], values[second % len(values)]
        values.append(STEPS[name](*pair, axis))
    last = len(values) - 1
    return tuple([values[k] for k in range(len(given), last + 1) if k in kept or k == last])


step = st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 1), *[st.integers(0, 5)] * 2)


class CheckedSteps(fuse.StepOrder):
    """Steps that say, whenever they have been changed, whether they know what comes later."""

    def put(self, first: int, second: int, kernel: Kernel) -> None:
        super().put(first, second, kernel)
        self.check()

    def replace(self, first: int, second: int, parts: fuse.Replacement) -> None:
        super().replace(first, second, parts)
        self.check()

    def check(self) -> None:
        alive = sum(1 << each for each in self.steps)
        for k in self.steps:
            later = set[int]()
            waiting = [k]
            while waiting:
                new = self.after[waiting.pop()] - later
                later |= new
                waiting += new
            assert self.below[k] & alive == sum(1 << each for each in later)


@pytest.mark.draws(long=400)
@settings(max_examples=120)
@given(
    st.lists(step, min_size=2, max_size=6),
    st.sets(st.integers(2, 7)),
    st.sampled_from([(16, 8), (19, 8), (8, 16), (12, 12)]),
    st.sets(st.sampled_from(sorted(SIZES))),
)
@example([("by_sum", 1, 0, 0), ("softmax", 0, 2, 2)], {2}, (16, 8), {"rows", "once"})
@example([("softmax", 1, 0, 0), ("sum", 0, 0, 0), ("softmax", 1, 1, 1)], {2, 3}, (16, 8), {"rows"})
@example(
    [
        ("softmax", 1, 0, 0),
        ("softmax", 1, 1, 1),
        ("product", 0, 0, 3),
        ("sum", 0, 4, 4),
        ("difference", 0, 3, 5),
        ("max", 0, 6, 6),
    ],
    {2, 3, 5, 7},
    (19, 8),
    {"rows", "once"},
)
def test_rows_and_columns_of_one_array_are_what_they_are_apart(
    steps: list[Step], kept: set[int], shape: tuple[int, int], lowered: set[str]
) -> None:
    """Found: the sum of a column's exponentials was added up before the column's maximum was known;
    a kernel that columns had been taken into was taken for one of columns; steps that came of one
    had no place in the order of steps."""
    given = list(np.random.default_rng(0).standard_normal((2, *shape)))
    graph = al.capture(lambda x, y: applied(steps, kept, x, y))(*map(al.from_numpy, given))
    before = program_of(graph)
    with pytest.MonkeyPatch.context() as patch:
        replaced = fuse.StepOrder.__name__
        for module in (fuse, row_column_reduction):
            patch.setattr(module, replaced, CheckedSteps)
        lower(patch, lowered)
        after = improved(before, threads=2)
    verify(after)
    for first, second in zip(memories(before, given), memories(after, given), strict=True):
        # Sums in another order, of up to 19 values a step, in float64.
        np.testing.assert_allclose(first, second, rtol=1e-9, atol=1e-11)
