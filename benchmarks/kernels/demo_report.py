"""The bars of the demo's step, and whether they hold."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from benchmarks.common import table
from benchmarks.kernels.columns import COMPILED, OURS
from benchmarks.kernels.demo import OURS_EAGER
from benchmarks.kernels.report import Bar, Ratio, ratio, report_bars

OF_EAGER, OF_TORCH = 1 / 2, 1.1
RESTART, POINTS = 1e-5, 0.5
"""The limits: relative difference of one step, percentage points of accuracy."""


def bars(runs: Sequence[Mapping[str, Any]]) -> list[Bar]:
    """The demo's bars; times need three runs that agree, the others one."""
    if not runs:
        return []
    seconds = {name: [run["seconds"][name] for run in runs] for name in runs[0]["seconds"]}
    made = [
        Bar(f"the demo's step, of {name}'s", asked, found)
        for name, asked in ((OURS_EAGER, OF_EAGER), (COMPILED, OF_TORCH))
        if (found := ratio(seconds[OURS], seconds.get(name))) is not None
    ]
    restart = Ratio((max(run["restart"] for run in runs) / RESTART,))
    made.append(
        Bar("the demo's step from eager's state, difference in 1e-5", 1, restart, by_spread=False)
    )
    accuracies = [pair for run in runs for pair in run["accuracies"]]
    if accuracies:
        points = abs(_points(accuracies, 0) - _points(accuracies, 1))
        name = f"accuracy of {len(accuracies)} trainings, points from eager's"
        made.append(Bar(name, POINTS, Ratio((points,)), by_spread=False))
    return made


def _points(accuracies: Sequence[Sequence[float]], place: int) -> float:
    return 100 * statistics.mean(pair[place] for pair in accuracies)


def report(runs: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Prints the times and the bars."""
    if runs:
        made = table("\nmilliseconds a step, the least of all runs", *runs[0]["seconds"])
        times = (min(run["seconds"][name] for run in runs) for name in runs[0]["seconds"])
        made.add_row(*(f"{each * 1e3:.3g}" for each in times))
        console.print(made)
    report_bars(bars(runs), console)
