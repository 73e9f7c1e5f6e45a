"""What the guards of a call with four symbols cost, compared with a call without symbols.

`python -m benchmarks.size_guards` times the same function, on the same arguments, compiled with
symbols for all four sizes and compiled for its sizes. Rounds alternate; the cost is the median over
rounds of the difference of both, as the machine's speed drifts. At most 0.5 µs is wanted.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import timeit
from collections.abc import Callable, Sequence
from typing import Any

import aotlite as al
from benchmarks.common import machine_console, table

WANTED = 0.5
"""Microseconds."""


def both(x: al.Tensor, y: al.Tensor) -> tuple[al.Tensor, al.Tensor]:
    """A function whose two kernels take little time."""
    return x * 2, y + 1


def measured(rounds: int, calls: int, **options: Any) -> tuple[list[float], list[float]]:
    """Microseconds a call of each round: with symbols, and without."""
    x, y = al.ones(4, 3), al.ones(5, 2)
    made = [al.compile(both, dynamic=dynamic, **options) for dynamic in (True, False)]
    for function in made:
        for _ in range(50):
            function(x, y)
    assert len(made[0].entries[0].guarded.symbols) == 4  # type: ignore[attr-defined]
    found: tuple[list[float], list[float]] = [], []
    collects = gc.isenabled()
    gc.disable()
    try:
        for number in range(rounds):
            for which in (0, 1) if number % 2 else (1, 0):
                found[which].append(_microseconds(made[which], x, y, calls))
    finally:
        if collects:
            gc.enable()
    return found


def _microseconds(function: Callable[..., Any], x: al.Tensor, y: al.Tensor, calls: int) -> float:
    scope = {"function": function, "x": x, "y": y}
    return timeit.timeit("function(x, y)", globals=scope, number=calls) / calls * 1e6


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; returns 1 if the guards cost more than is wanted."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--backend", default="reference")
    given = parser.parse_args(arguments)
    symbols, numbers = measured(given.rounds, given.calls, backend=given.backend)
    cost = statistics.median([a - b for a, b in zip(symbols, numbers, strict=True)])
    columns = "backend", "4 symbols", "none", "guards", "wanted"
    made = table("a call with two arguments, µs", *columns)
    row = statistics.median(symbols), statistics.median(numbers), cost, WANTED
    made.add_row(given.backend, *[f"{each:.2f}" for each in row])
    console = machine_console()
    console.print(made)
    return int(cost > WANTED)


if __name__ == "__main__":
    raise SystemExit(main())
