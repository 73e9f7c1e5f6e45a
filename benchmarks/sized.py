"""Compares kernels for all sizes with kernels that are compiled for the one size.

`python -m benchmarks.sized` prints, for each program and size, the time of either, and their ratio:
of a call from Python, and of the C function in a loop in C, which has no overhead of Python's, nor
of allocating results (no column of it where an op runs between two functions). Both are called in
turn; a row is the median of the rounds. Sizes are multiples of the vector width and not. With one
thread, the default, seconds are the processor's, which a busy machine changes less; with
`--threads 2` they are those of the clock.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import numpy as np

from aotlite.backends.calling_convention import Run
from aotlite.backends.cpu.backend import CPU
from aotlite.backends.cpu.runtime.runtime_library import load_runtime
from aotlite.backends.loops.program import slots
from aotlite.backends.loops.program_sizes import SizesAt
from aotlite.backends.native.libraries.library_loading import load_c
from aotlite.backends.threads import set_num_threads
from benchmarks.common import machine_console, table
from benchmarks.sized_programs import PROGRAMS, Program, drawn, sized_graph

COLUMNS = ("program", "sizes", "call, all sizes, us", "one size, us", "ratio")
IN_C = ("in C, all sizes, us", "one size, us", "ratio")
REPEATED = """
void repeat(int (*run)(const void *, void **), const void *call, void **slots, long count)
{
    for (long k = 0; k < count; ++k) run(call, slots);
}
"""
ROUND = 2e-3
"""The seconds of the calls of a round."""
Clock = Callable[[], float]
Rows = Iterator[list[str]]
Repeat = Callable[[int], None]
"""Runs something so many times."""


def called(run: Run, arrays: list[Any], count: int) -> None:
    """Calls a run on these arrays."""
    for _ in range(count):
        run.call(list(arrays))


@cache
def memory(place: int, size: int, dtype: np.dtype[Any]) -> np.ndarray:
    """Returns memory for the k-th result, the same for both runs: where it lies changes times."""
    return aligned(np.empty(size, dtype))


def aligned(array: np.ndarray) -> np.ndarray:
    """Returns a copy at the start of a cache line: where a vector lies changes times by a half."""
    whole = np.empty(array.nbytes + 64, np.uint8)
    start = -whole.ctypes.data % 64
    found = whole[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


class InC:
    """The C function of a run, called in a loop in C."""

    def __init__(self, run: Any, arrays: list[np.ndarray]) -> None:
        outputs = slots(run.program)[len(arrays) :]
        self.call: Any = run.execute.__self__
        results = [memory(k, each.size, each.dtype.numpy) for k, each in enumerate(outputs)]
        self.arrays = [*arrays, *results]
        constants = int(self.call.view(np.int64)[2])
        self.slots = np.zeros(len(self.arrays) + constants + 1, np.uintp)
        self.slots[: len(self.arrays)] = [each.ctypes.data for each in self.arrays]
        library = load_c(REPEATED, "repeat", libraries=False)
        self.repeat = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_long)(
            library.function("repeat").address
        )
        self.run = ctypes.cast(load_runtime().library.al_run, ctypes.c_void_p).value
        self.library = library

    def __call__(self, count: int) -> None:
        self.repeat(self.run, self.call.ctypes.data, self.slots.ctypes.data, count)


def seconds(repeat: Repeat, count: int, clock: Clock) -> float:
    """Returns the seconds of one of `count` in a row."""
    begin = clock()
    repeat(count)
    return (clock() - begin) / count


def alternated(pair: list[Repeat], rounds: int, clock: Clock) -> list[str]:
    """Returns the microseconds of both, and their ratio."""
    count = 1
    while (least := min(seconds(each, count, clock) for each in pair)) * count < ROUND / 4:
        count *= 2
    count = max(int(ROUND / least), 1)
    times: list[list[float]] = [[], []]
    for k in range(rounds):
        for which in (k % 2, 1 - k % 2):
            times[which].append(seconds(pair[which], count, clock))
    ratio = statistics.median(x / y for x, y in zip(*times, strict=True))
    return [*[f"{statistics.median(each) * 1e6:.3f}" for each in times], f"{ratio:.2f}"]


def compared(name: str, program: Program, rounds: int, clock: Clock) -> Rows:
    """Yields the rows of a program."""
    case = sized_graph(program)
    made = CPU.compile_sized(case.graph)
    assert made is not None
    for a, b in program.sizes:
        values = {case.names[k]: n for k, n in (("a", a), ("b", b), ("c", 200)) if k in case.names}
        graph = SizesAt(values).graph(case.graph)
        draws = np.random.default_rng(0)
        metas: list[Any] = [node.meta for node in graph.placeholders]
        arrays = [aligned(drawn(draws, meta)) for meta in metas]
        runs: list[Any] = [made.at(values), CPU.compile(graph)]
        row = [name, f"{a}, {b}"]
        row += alternated([partial(called, run, arrays) for run in runs], rounds, clock)
        if hasattr(runs[0].execute, "__self__") and hasattr(runs[1].execute, "__self__"):
            row += alternated([InC(run, arrays) for run in runs], rounds, clock)
        yield row


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS))
    options = parser.parse_args()
    set_num_threads(options.threads)
    clock = time.process_time if options.threads == 1 else time.perf_counter
    made = table("kernels for all sizes, against those for one", *COLUMNS, *IN_C)
    for name in options.programs:
        for row in compared(name, PROGRAMS[name], options.rounds, clock):
            made.add_row(*row)
    console = machine_console()
    console.print(made)


if __name__ == "__main__":
    main()
