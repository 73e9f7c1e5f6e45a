"""One row of the CPU benchmark, once, in a process of its own.

`python -m benchmarks.kernels.child JOB` with a job as JSON prints one JSON object: for each
direction the seconds of each column, what failed and why, how far the results are from float64, and
the roofline. A column that fails to compile, or that is wrong, is left out; the others go on.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from benchmarks.kernels.columns import (
    WRITTEN,
    Measured,
    as_arrays,
    disagreement,
    for_check,
    make_action,
    reference,
    tolerance,
)
from benchmarks.kernels.functions import Action
from benchmarks.kernels.roofline import roofline
from benchmarks.kernels.timing import alternate
from benchmarks.kernels.twins import row_of

THREADS = 2


@attrs.frozen
class Job:
    """A measurement of one row."""

    row: str
    """A row's name, or NAME~INDEX for a twin."""
    columns: tuple[str, ...]
    backend: str
    rounds: int
    seed: int = 0
    check: bool = True
    """Whether results are compared with float64 first."""


def measure(job: Job) -> dict[str, Any]:
    """Direction -> the measurements of the job."""
    pin()
    row = row_of(job.row, job.seed)
    return {direction: _one(row, direction, job) for direction in row.directions}


def pin() -> None:
    """Pins this process to two CPUs, as libraries make a thread for each allowed one."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])


def _one(row: Measured, direction: str, job: Job) -> dict[str, Any]:
    arrays = row.arrays()
    maker = _Maker(row, direction, arrays, job.backend)
    if job.check:
        maker.expected = reference(for_check(row), direction, for_check(row).arrays())
    for column in job.columns:
        if column != WRITTEN or row.written:
            maker.add(column)
    maker.expected = None
    timed = alternate(maker.actions, job.rounds)
    results = as_arrays(next(iter(maker.actions.values()))()) if maker.actions else []
    maker.actions.clear()
    gc.collect()
    return {
        "seconds": {column: each.seconds for column, each in timed.items()},
        "faults": {column: each.faults for column, each in timed.items()},
        "failed": maker.failed,
        "errors": maker.errors,
        "roofline": _roofline(row, direction, arrays, results),
    }


@attrs.define
class _Maker:
    """Makes the actions of a row, and keeps those that work and are right."""

    row: Measured
    direction: str
    arrays: Sequence[np.ndarray]
    backend: str
    expected: list[np.ndarray] | None = None
    actions: dict[str, Action] = attrs.field(factory=dict)
    errors: dict[str, float] = attrs.field(factory=dict)
    failed: dict[str, str] = attrs.field(factory=dict)

    def add(self, column: str) -> None:
        """Adds an action, or the reason why there is none."""
        try:
            action = self._made(self.row, column, self.arrays)
            if self.expected is None:
                action()
            else:
                self._compare(column, action)
        except Exception as error:  # any error of a library; the others are measured all the same
            said = str(error).strip().partition("\n")[0]
            self.failed[column] = f"{type(error).__name__}: {said}"
            return
        if column not in self.failed:
            self.actions[column] = action

    def _made(self, row: Measured, column: str, arrays: Sequence[np.ndarray]) -> Action:
        return make_action(row, self.direction, column, arrays, self.backend)

    def _compare(self, column: str, action: Action) -> None:
        compared = for_check(self.row)
        if compared != self.row:
            action = self._made(compared, column, compared.arrays())
        assert self.expected is not None
        error = disagreement(as_arrays(action()), self.expected)
        self.errors[column] = error
        if not error <= tolerance(self.row):
            self.failed[column] = f"wrong: off by {error:.1e}, expected {tolerance(self.row):.0e}"


def _roofline(
    row: Measured, direction: str, arrays: Sequence[np.ndarray], results: Sequence[np.ndarray]
) -> dict[str, Any]:
    """The roofline; empty without a compiler or a result."""
    try:
        found = roofline(row, direction, arrays, results)
    except (OSError, RuntimeError, IndexError) as error:
        return {"failed": str(error)}
    return {**attrs.asdict(found), "seconds": found.seconds}


def main() -> None:
    """Prints the measurement of the job in the first argument."""
    given = json.loads(sys.argv[1])
    job = Job(**{**given, "columns": tuple(given["columns"])})
    print(json.dumps(measure(job)))


if __name__ == "__main__":
    main()
