"""First calls of all rows, each in a fresh process: aotlite's against torch.compile's.

Each measurement has a folder of its own for every disk cache, empty at first; a second process of
aotlite then finds what the first one left there.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console

from benchmarks.common import progress, table
from benchmarks.kernels.columns import COMPILED, OURS
from benchmarks.kernels.first_calls import FirstCall
from benchmarks.kernels.report import Bar, Ratio, mean, report_bars

REPEATS = 5
MEAN, ANY = 1 / 3, 1 / 2
"""The bars, of torch.compile's first call."""
WARM_SECONDS, WARM_A_NODE = 30e-3, 100e-6
"""The limit of a first call above a later one, with a warm disk cache."""
WARM = "aotlite, warm disk cache"

Run = Callable[..., dict[str, Any]]
"""(job, environment variables) -> the output of a process."""
Found = dict[str, dict[str, list[dict[str, Any]]]]
"""Row -> column -> the outputs of the repeats."""


def measure(
    rows: Sequence[str], columns: Sequence[str], repeats: int, backend: str, run: Run
) -> Found:
    """Measures all columns in turn, so that the state of the machine is the same for all.

    An interrupt ends it early, with the repeats so far.
    """
    found: Found = {}
    with progress() as bar:
        task = bar.add_task("", total=len(rows) * repeats)
        try:
            for repeat, row in itertools.product(range(repeats), rows):
                bar.update(task, description=f"first call of {row}, {repeat + 1} of {repeats}")
                turn: dict[str, list[dict[str, Any]]] = {}
                for column in columns:
                    _once(turn, FirstCall(row, column, backend), run)
                of = found.setdefault(row, {})
                for column, each in turn.items():
                    of.setdefault(column, []).extend(each)
                bar.advance(task)
        except KeyboardInterrupt:
            bar.console.print("interrupted: what follows is incomplete")
    return found


def _once(of: dict[str, list[dict[str, Any]]], job: FirstCall, run: Run) -> None:
    with tempfile.TemporaryDirectory(prefix="aotlite-first-call-") as folder:
        of.setdefault(job.column, []).append(run(job, **caches(folder)))
        if job.column == OURS:
            of.setdefault(WARM, []).append(run(job, **caches(folder)))


def caches(folder: str) -> dict[str, str]:
    """Variables that move every disk cache there."""
    return {
        "AOTLITE_CACHE": f"{folder}/aotlite",
        "TORCHINDUCTOR_CACHE_DIR": f"{folder}/inductor",
        "TRITON_CACHE_DIR": f"{folder}/triton",
        "JAX_COMPILATION_CACHE_DIR": f"{folder}/jax",
    }


# -------------------------------------------------------------------------------------------- bars
def bars(found: Found) -> list[Bar]:
    """The bars of first calls; medians count, whatever their spread."""
    ratios = {row: each for row, of in found.items() if (each := _ratio(of)) is not None}
    made = []
    if ratios:
        whole = mean([Ratio((each.median,)) for each in ratios.values()])
        made.append(_bar("first calls, geometric mean, of torch.compile's", MEAN, whole))
    for row, each in ratios.items():
        made.append(_bar(f"first call of {row}, of torch.compile's", ANY, each))
    for row, of in found.items():
        warm = _seconds(of, WARM, "beyond")
        if warm:
            allowed = WARM_SECONDS + WARM_A_NODE * of[WARM][0]["joint_nodes"]
            part = Ratio((statistics.median(warm) / allowed,))
            made.append(_bar(f"first call of {row}, warm disk cache, of what is allowed", 1, part))
    return made


def _bar(name: str, asked: float, figure: Ratio) -> Bar:
    return Bar(name, asked, figure, by_spread=False)


def _ratio(of: Mapping[str, list[dict[str, Any]]]) -> Ratio | None:
    ours, theirs = _seconds(of, OURS, "seconds"), _seconds(of, COMPILED, "seconds")
    if not ours or not theirs:
        return None
    return Ratio((statistics.median(ours) / statistics.median(theirs),))


def _seconds(of: Mapping[str, list[dict[str, Any]]], column: str, what: str) -> list[float]:
    """The seconds of each repeat; empty if one failed."""
    runs = of.get(column, [])
    if any("failed" in run for run in runs):
        return []
    if what == "beyond":
        return [run["seconds"] - run["later"] for run in runs]
    return [run[what] for run in runs]


# ---------------------------------------------------------------------------------------- printing
def report(found: Found, console: Console) -> None:
    """Prints the table and the bars."""
    columns = [*dict.fromkeys(column for of in found.values() for column in of)]
    made = table("\nseconds of a first call, median", "row", "joint nodes", *columns, "of torch")
    for row, of in found.items():
        nodes = next(
            (str(run["joint_nodes"]) for run in of.get(WARM, []) if "failed" not in run), "-"
        )
        made.add_row(row, nodes, *(_text(of, column) for column in columns), _ratio_text(of))
    console.print(made)
    process = [t for of in found.values() for t in _seconds(of, OURS, "process_seconds")]
    theirs = [t for of in found.values() for t in _seconds(of, COMPILED, "process_seconds")]
    for name, times in ((OURS, process), (COMPILED, theirs)):
        if times:
            console.print(
                f"{name}: {statistics.median(times):.2f} s before, for a function of three ops"
            )
    for row, of in found.items():
        for column, runs in of.items():
            for why in {run["failed"] for run in runs if "failed" in run}:
                console.print(f"{row}: {column} failed: {why}", markup=False)
    report_bars(bars(found), console)


def _text(of: Mapping[str, list[dict[str, Any]]], column: str) -> str:
    times = _seconds(of, column, "seconds")
    return f"{statistics.median(times):.3f}" if times else "-"


def _ratio_text(of: Mapping[str, list[dict[str, Any]]]) -> str:
    found = _ratio(of)
    return "-" if found is None else f"{found.median:.2f}"
