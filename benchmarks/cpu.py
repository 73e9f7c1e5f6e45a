"""Measures kernels: compiled functions against PyTorch, JAX and handwritten C, on two threads.

`python -m benchmarks.cpu` measures each row in a process of its own: aotlite, PyTorch (eager and
`torch.compile`), `jax.jit`, and hand-written C (`benchmarks/handwritten`), all from one
description, by turns, after their results were compared with float64. A time is the minimum over
the rounds; a ratio is taken within a run; three runs, of which the median counts. `--twins` adds
five drawn variants of each row, `--first-call` times first calls instead, `--demo` the demo's step.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console

from aotlite.cli import number
from benchmarks.common import is_installed, machine, progress, wide_console
from benchmarks.kernels import demo_report, first_call_report
from benchmarks.kernels.child import THREADS, Job
from benchmarks.kernels.columns import (
    COLUMNS,
    COMPILED,
    JAX,
    LIBRARY,
    OURS,
    ROWS,
    default_backend,
)
from benchmarks.kernels.demo import DemoJob
from benchmarks.kernels.report import Bar, Results, bars, report
from benchmarks.kernels.twins import row_of, twin_text, twins_of

ROUNDS, RUNS = 15, 3
QUICK_ROUNDS = 3
SEEDS = 5
"""The number of complete trainings of the demo, compiled and eager."""
TIMEOUT = 1800.0
"""The limit for one row of one run, in seconds."""

WARM_MEMORY = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20),
}
"""Variables that make glibc keep freed memory; else every large result costs new pages, and the
system's kernel would be measured."""
ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(THREADS)),
    "NPROC": str(THREADS),
    "XLA_FLAGS": f"--xla_cpu_multi_thread_eigen=true intra_op_parallelism_threads={THREADS}",
    "JAX_PLATFORMS": "cpu",
    **WARM_MEMORY,
}
"""The environment of every measuring process, the same for all columns."""
REMOVED = ("OPENBLAS_CORETYPE", "MKL_DEBUG_CPU_TYPE", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
"""The variables that are unset, so that a library chooses as on a user's machine."""


# --------------------------------------------------------------------------------------- processes
def environment() -> dict[str, str]:
    """The environment of measuring processes."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in REMOVED and not name.startswith("AOTLITE_")
    }
    return kept | ENVIRONMENT


def run_child(module: str, job: Any, timeout: float, **more: str) -> dict[str, Any]:
    """Returns the output of a fresh process for a job; `{"failed": why}` without output."""
    command = [sys.executable, "-W", "ignore", "-m", module, json.dumps(attrs.asdict(job))]
    try:
        done = subprocess.run(
            command,
            cwd=Path(__file__).parents[1],
            env=environment() | more,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"over {timeout:g} s"}
    if done.returncode < 0:
        return {"failed": f"ended by {signal.Signals(-done.returncode).name}"}
    if done.returncode:
        return {"failed": f"exit status {done.returncode}: {done.stderr.strip()[-300:]}"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(jobs: Sequence[Job], runs: int, console: Console) -> Results:
    """Measures all rows, run by run; the first run also compares results with float64.

    An interrupt ends it early, with the measurements so far.
    """
    results: dict[tuple[str, str], dict[str, Any]] = {}
    with progress() as bar:
        task = bar.add_task("", total=runs * len(jobs))
        try:
            for run, job in itertools.product(range(runs), jobs):
                bar.update(task, description=f"run {run + 1}: {job.row}")
                given = attrs.evolve(job, check=run == 0)
                found = run_child("benchmarks.kernels.child", given, TIMEOUT)
                _add(results, job, found, console)
                bar.advance(task)
        except KeyboardInterrupt:
            console.print("interrupted: what follows is incomplete")
    return results


def _add(results: Any, job: Job, found: dict[str, Any], console: Console) -> None:
    """Adds a run of a row; if its process failed, every column failed."""
    if isinstance(found.get("failed"), str):
        why = found["failed"]
        console.print(f"{job.row} failed: {why}", markup=False)
        nothing: dict[str, Any] = {"seconds": {}, "faults": {}, "errors": {}, "roofline": {}}
        failed = dict.fromkeys(job.columns, why)
        directions = row_of(job.row, job.seed).directions
        found = {direction: {**nothing, "failed": failed} for direction in directions}
    for direction, of in found.items():
        entry = results.setdefault(
            (job.row, direction),
            {"seconds": {}, "faults": {}, "roofline": [], "failed": {}, "errors": {}},
        )
        for column, seconds in of["seconds"].items():
            entry["seconds"].setdefault(column, []).append(seconds)
        for part in ("failed", "errors", "faults"):
            entry[part].update(of[part])
        entry["roofline"] += [of["roofline"]["seconds"]] if "seconds" in of["roofline"] else []


def complete(results: Results) -> Results:
    """Drops the columns that some run lacks, as their ratios would be of different runs."""
    for of in results.values():
        runs = max(map(len, of["seconds"].values()), default=0)
        for column in [c for c, each in of["seconds"].items() if len(each) < runs]:
            del of["seconds"][column]
            of["failed"].setdefault(column, "it failed in one of the runs")
    return results


# ---------------------------------------------------------------------------------------- the rows
def jobs_of(args: argparse.Namespace, columns: tuple[str, ...]) -> list[Job]:
    """A job for each selected row, and for its twins."""
    rows = [row for row in ROWS if not args.rows or row.name in args.rows]
    names = [row.name for row in rows]
    if args.twins:
        names += [twin for row in rows for twin in twins_of(row)]
    return [Job(name, columns, args.backend, args.rounds, args.seed) for name in names]


def available(wanted: Sequence[str], console: Console) -> tuple[str, ...]:
    """Returns the columns of installed libraries; prints a line for each other one."""
    missing = [c for c in wanted if c in LIBRARY and not is_installed(LIBRARY[c])]
    for column in missing:
        console.print(f"{LIBRARY[column]} is not installed: {column} is left out")
    return tuple(column for column in wanted if column not in missing)


def conditions(args: argparse.Namespace) -> Iterator[str]:
    """Returns lines about the machine and the settings."""
    *lines, _ = machine()
    yield from lines
    core = os.environ.get("OPENBLAS_CORETYPE", "not set")
    yield f"OPENBLAS_CORETYPE {core}; unset where measured"
    yield f"{THREADS} threads; " + " ".join(f"{k}={v}" for k, v in ENVIRONMENT.items())
    yield f"backend {args.backend}, {args.runs} runs of {args.rounds} rounds, seed {args.seed}"
    yield f"load average {', '.join(f'{each:.1f}' for each in os.getloadavg())}"


# ------------------------------------------------------------------------------------- the command
def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    names = [row.name for row in ROWS]
    made = argparse.ArgumentParser(prog="benchmarks.cpu", description=__doc__)
    add = made.add_argument
    add("--rows", action="append", choices=names, metavar="ROW", help=f"of {names}; repeatable")
    add("--columns", action="append", choices=COLUMNS, help="measure only these; repeatable")
    add("--backend", default=default_backend(), help="what aotlite compiles with")
    add("--rounds", type=number(1), default=ROUNDS, help="turns of each column in a run")
    add("--runs", type=number(1), default=RUNS, help="fewer than three decide nothing")
    add("--quick", action="store_true", help=f"one run of {QUICK_ROUNDS} rounds")
    add("--twins", action="store_true", help="also drawn variants of each row")
    add("--seed", type=number(0), default=0, help="what twins are drawn by")
    add("--list-twins", action="store_true", help="print what the twins are, and measure nothing")
    add("--first-call", action="store_true", help="time first calls instead")
    add("--demo", action="store_true", help="time the demo's step instead")
    add("--json", type=Path, metavar="FILE", help="write what was measured there")
    return made


def main(argv: Sequence[str] | None = None) -> None:
    """Measures and prints; see `--help`."""
    args = parser().parse_args(argv)
    if args.quick:
        args.rounds, args.runs = QUICK_ROUNDS, 1
    console = wide_console()
    if args.list_twins:
        _list_twins(args, console)
        return
    start = list(conditions(args))
    for line in start:
        console.print(line, markup=False)
    mode = _first_calls if args.first_call else _demo if args.demo else _kernels
    found = mode(args, console)
    end = f"load average at the end {', '.join(f'{each:.1f}' for each in os.getloadavg())}"
    console.print(end)
    if args.json:
        text = json.dumps({"conditions": [*start, end], **found}, indent=1)
        args.json.write_text(text + "\n", "utf-8")


def _kernels(args: argparse.Namespace, console: Console) -> dict[str, Any]:
    columns = available(args.columns or COLUMNS, console)
    results = complete(measure(jobs_of(args, columns), args.runs, console))
    report(results, console)
    return {
        "rows": [{"row": row, "direction": way, **of} for (row, way), of in results.items()],
        "bars": _as_data(bars(results)),
    }


def _first_calls(args: argparse.Namespace, console: Console) -> dict[str, Any]:
    columns = available(args.columns or (OURS, COMPILED, JAX), console)
    rows = [row.name for row in ROWS if not args.rows or row.name in args.rows]
    repeats = 1 if args.quick else first_call_report.REPEATS
    found = first_call_report.measure(
        rows,
        columns,
        repeats,
        args.backend,
        lambda job, **more: run_child("benchmarks.kernels.first_calls", job, TIMEOUT, **more),
    )
    first_call_report.report(found, console)
    return {"first_calls": found, "bars": _as_data(first_call_report.bars(found))}


def _demo(args: argparse.Namespace, console: Console) -> dict[str, Any]:
    runs = []
    with progress() as bar:
        task = bar.add_task("the demo's step", total=args.runs)
        for run in range(args.runs):
            job = DemoJob(args.backend, args.rounds, 0 if run or args.quick else SEEDS)
            runs.append(run_child("benchmarks.kernels.demo", job, TIMEOUT))
            bar.advance(task)
    for run_failed in [each["failed"] for each in runs if "failed" in each]:
        console.print(f"the demo failed: {run_failed}", markup=False)
    runs = [each for each in runs if "failed" not in each]
    demo_report.report(runs, console)
    return {"demo": runs, "bars": _as_data(demo_report.bars(runs))}


def _as_data(found: Sequence[Bar]) -> list[dict[str, Any]]:
    return [attrs.asdict(bar) | {"verdict": bar.verdict} for bar in found]


def _list_twins(args: argparse.Namespace, console: Console) -> None:
    for job in jobs_of(args, (OURS,)):
        for twin in twins_of(row_of(job.row)):
            console.print(f"{twin}: {twin_text(row_of(twin, args.seed))}", markup=False)


if __name__ == "__main__":
    main()
