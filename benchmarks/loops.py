"""Timing of calls of microseconds: loops of each action in turn, medians over rounds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from benchmarks.common import progress

LOOP_SECONDS = 5e-4
"""The seconds of a loop; short, so that some loop of each round runs undisturbed."""
LOOPS = 20

Action = Callable[[], Any]
"""A function without arguments that makes one call."""
Medians = Mapping[str, Mapping[str, float]]
"""Name of a case -> column -> microseconds."""


def measure(
    cases: Mapping[str, Callable[[], Mapping[str, Action]]], rounds: int
) -> dict[str, dict[str, float]]:
    """Microseconds for every column of every case, whose actions are made when its turn comes."""
    found: dict[str, dict[str, float]] = {}
    with progress() as bar:
        task = bar.add_task("", total=len(cases) * rounds)
        for name, make in cases.items():
            bar.update(task, description=name)
            taken: dict[str, list[float]] = {}
            for one_round in _rounds(make(), rounds):
                for column, microseconds in one_round:
                    taken.setdefault(column, []).append(microseconds)
                bar.advance(task)
            found[name] = {column: statistics.median(each) for column, each in taken.items()}
    return found


def _rounds(of: Mapping[str, Action], rounds: int) -> Iterator[list[tuple[str, float]]]:
    """For each round the columns in turn, each with the microseconds of its fastest loop."""
    counts = {column: calls_a_loop(action) for column, action in of.items()}
    for _ in range(rounds):
        yield [(column, fastest(action, counts[column])) for column, action in of.items()]


def calls_a_loop(action: Action) -> int:
    """The number of calls of a loop; the first calls compile."""
    action()
    action()
    return max(1, int(LOOP_SECONDS / _loop(action, 5)))


def fastest(action: Action, calls: int) -> float:
    """The microseconds of a call in the fastest of several loops."""
    return min(_loop(action, calls) for _ in range(LOOPS)) * 1e6


def _loop(action: Action, calls: int) -> float:
    """Seconds a call."""
    times = range(calls)
    start = time.perf_counter()
    for _ in times:
        action()
    return (time.perf_counter() - start) / calls
