"""Compares kernels for all sizes with kernels that are compiled for the one size.

`python -m benchmarks.sized` prints, for each program and size, the time of a call of either, and
their ratio. Both are called in turn; a row is the median of the rounds. Sizes are multiples of the
vector width and not. With one thread, the default, seconds are the processor's, which a busy
machine changes less; with `--threads 2` they are those of the clock.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import attrs
import numpy as np

from aotlite.backends.calling_convention import Run
from aotlite.backends.cpu.backend import CPU
from aotlite.backends.loops.program_sizes import SizesAt
from aotlite.backends.threads import set_num_threads
from aotlite.ir.graph import Graph
from aotlite.ir.graph.builder import Builder
from aotlite.ir.meta import tensor_meta
from aotlite.ir.symbols.table import SymbolTable
from benchmarks.common import machine, table, wide_console

HINTS = {"a": 200, "b": 300, "c": 100}
SIZES = ((64, 64), (61, 67), (256, 512), (250, 509), (1000, 1024), (1003, 1021), (16, 30000))
COLUMNS = ("program", "sizes", "all sizes, us", "one size, us", "ratio")
Clock = Callable[[], float]
Rows = Iterator[list[str]]


def _layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    centered = x - x.mean(-1, True)
    return centered / ((centered * centered).mean(-1, True) + 1e-5).sqrt() * weight + bias


PROGRAMS: dict[str, tuple[Any, ...]] = {
    "pointwise": (lambda x, y: (x * 2 + y).tanh() * y, ("a", "b"), ("a", "b")),
    "bias, relu": (lambda x, b: (x + b).relu(), ("a", "b"), ("b",)),
    "row reduction": (lambda x: x.sum(1), ("a", "b")),
    "column reduction": (lambda x: x.sum(0), ("a", "b")),
    "whole reduction": (lambda x: x.sum(), ("a", "b")),
    "softmax": (lambda x: x.softmax(-1), ("a", "b")),
    "layer norm": (_layer_norm, ("a", "b"), ("b",), ("b",)),
    "matmul, bias, gelu": (lambda x, w, b: (x @ w + b).gelu(), ("a", "b"), ("b", "c"), ("c",)),
}


@attrs.frozen
class SizedGraph:
    """The graph of a program with symbolic sizes, and the names of its symbols by letter."""

    graph: Graph
    names: dict[str, str]


def sized_graph(name: str) -> SizedGraph:
    """Returns the graph of a program."""
    function, *shapes = PROGRAMS[name]
    symbols, build, found = SymbolTable(), Builder("program"), dict[str, Any]()
    for letter in dict.fromkeys(letter for shape in shapes for letter in shape):
        found[letter] = symbols.symbol(HINTS[letter], letter, lower=2)
    inputs = [build.placeholder(tensor_meta(tuple(found[k] for k in shape))) for shape in shapes]
    names = {letter: str(size) for letter, size in found.items()}
    return SizedGraph(build.finish([function(*inputs)]), names)


def seconds(call: Callable[[], object], count: int, clock: Clock) -> float:
    """Returns the seconds of a call, of `count` in a row."""
    begin = clock()
    for _ in range(count):
        call()
    return (clock() - begin) / count


def called(run: Run, arrays: list[Any]) -> None:
    """Calls a run on these arrays."""
    run.call(list(arrays))


def compared(name: str, rounds: int, clock: Clock) -> Rows:
    """Yields the rows of a program."""
    case = sized_graph(name)
    made = CPU.compile_sized(case.graph)
    assert made is not None
    for a, b in SIZES:
        values = {
            case.names[k]: n for k, n in zip("abc", (a, b, 200), strict=True) if k in case.names
        }
        graph = SizesAt(values).graph(case.graph)
        draws = np.random.default_rng(0)
        metas: list[Any] = [node.meta for node in graph.placeholders]
        arrays = [draws.standard_normal(meta.shape).astype(np.float32) for meta in metas]
        calls = [partial(called, run, arrays) for run in (made.at(values), CPU.compile(graph))]
        count = max(int(2e-3 / min(seconds(call, 3, clock) for call in calls)), 1)
        times: list[list[float]] = [[], []]
        for k in range(rounds):
            for which in (k % 2, 1 - k % 2):
                times[which].append(seconds(calls[which], count, clock))
        any_size, one_size = map(statistics.median, times)
        ratio = statistics.median(x / y for x, y in zip(*times, strict=True))
        yield [name, f"{a}, {b}", f"{any_size * 1e6:.3f}", f"{one_size * 1e6:.3f}", f"{ratio:.2f}"]


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("programs", nargs="*", default=list(PROGRAMS))
    options = parser.parse_args()
    set_num_threads(options.threads)
    clock = time.process_time if options.threads == 1 else time.perf_counter
    made = table("kernels for all sizes, against those for one", *COLUMNS)
    for name in options.programs:
        for row in compared(name, options.rounds, clock):
            made.add_row(*row)
    console = wide_console()
    for line in machine():
        console.print(line)
    console.print(made)


if __name__ == "__main__":
    main()
