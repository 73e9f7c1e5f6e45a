"""The first call of a row in a fresh process, with caches empty or filled by another process.

`python -m benchmarks.kernels.first_calls JOB` prints one JSON object. Before the row a small
function of other ops is compiled and called: importing a compiler's own modules, and finding the C
compiler, is `process_seconds` and does not count as the row's; a row's own figure is smaller that
way for every library. Neither do inputs, an optimizer's state and tangents: they are the caller's;
nor the first pages of their sizes, which another function of the row's inputs has touched.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import attrs
import numpy as np

from benchmarks.kernels import columns
from benchmarks.kernels.child import pin
from benchmarks.kernels.columns import Measured, make_action
from benchmarks.kernels.functions import ASIDE, Action
from benchmarks.kernels.rows import BOTH, Row, matrix_row
from benchmarks.kernels.twins import row_of

LATER_CALLS = 3


@attrs.frozen
class FirstCall:
    """A first call: the row and the library."""

    row: str
    column: str
    backend: str


def direction_of(row: Measured) -> str:
    """Forward and backward, if a row has both."""
    return row.directions[-1]


def measure(job: FirstCall) -> dict[str, Any]:
    """Seconds of the first call; of the calls after it, the fastest; nodes of the joint graphs.

    Also seconds of the processor, which matter on a busy machine.
    """
    pin()
    row = row_of(job.row)
    arrays = row.arrays()
    start = time.perf_counter()
    warm_up = _warm_up()
    _made(warm_up, warm_up.arrays(), job)()
    process_seconds = time.perf_counter() - start
    if isinstance(row, Row):
        _made(_of_its_sizes(row), arrays, job)()
    columns.JOINT_NODES.clear()
    action = _made(row, arrays, job)
    aside = attrs.evolve(ASIDE)
    start, cpu_start = time.perf_counter(), time.process_time()
    action()
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    seconds -= ASIDE.seconds - aside.seconds
    cpu_seconds -= ASIDE.cpu_seconds - aside.cpu_seconds
    cpu_start = time.process_time()
    action()
    return {
        "cpu_seconds": cpu_seconds,
        "later_cpu_seconds": time.process_time() - cpu_start,
        "process_seconds": process_seconds,
        "seconds": seconds,
        "later": min(_timed(action) for _ in range(LATER_CALLS)),
        "joint_nodes": sum(columns.JOINT_NODES),
    }


def _made(row: Measured, arrays: list[np.ndarray], job: FirstCall) -> Action:
    return make_action(row, direction_of(row), job.column, arrays, job.backend)


def _timed(action: Action) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def _warm_up() -> Row:
    def body(lib: Any, x: Any) -> Any:
        return lib.reduce("sum", lib.pointwise("sin", x) * 2.0, None)

    return matrix_row("warm-up", body, (3, 4), directions=(BOTH,))


def _of_its_sizes(row: Row) -> Row:
    """Another function of the row's inputs, after which the allocators have pages of these sizes.

    New pages are the system's affair, and a virtual machine may have to get them from its host: of
    64 MB that takes longer than most compilations.
    """

    def body(lib: Any, *tensors: Any) -> Any:
        parts = [lib.pointwise("sin", tensors[i]) * 2.0 for i in row.with_grad]
        return sum(lib.reduce("sum", part, None) for part in parts)

    return attrs.evolve(row, name="warm-up of memory", body=body, written=None)


def main() -> None:
    """Prints the measurement of the job in the first argument."""
    print(json.dumps(measure(FirstCall(**json.loads(sys.argv[1])))))


if __name__ == "__main__":
    main()
