"""Measures first calls: front ends on the same programs, without kernels.

`python -m benchmarks.pipeline` times aotlite (verification off), PyTorch's `aot_function` and JAX's
`jit(value_and_grad(f)).lower`, each measurement in a fresh process, the libraries by turns, and
prints the best of several rounds: microseconds for each forward op of the program, and the growth
of peak memory. The compilers of the graphs return zeros. The first backward
counts as part of the first call, because PyTorch compiles it only then.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console
from rich.table import Table

from aotlite.cli import number
from benchmarks.common import ONE_THREAD, installed_peers, machine, progress, table, wide_console
from benchmarks.first_call import Job
from benchmarks.programs import program

CHAINS = (1_000, 5_000, 20_000, 50_000)
OURS_ONLY = ("chain:100000",)
ROWS = (
    *(f"chain:{length}" for length in CHAINS),
    *OURS_ONLY,
    *("mlp:16", "mlp:64"),
    *("transformer:2", "transformer:8", "transformer:24"),
)
ONCE_ABOVE = 60.0
"""The seconds above which a job is measured once."""
ASKED = "asked: 30 times less than PyTorch, less than JAX, exponent 1.05, a third of the memory"

Column = tuple[str, str, int]
"""A library, its partitioner and the level of verification."""
OURS, OURS_CUT = ("aotlite", "default", 0), ("aotlite", "min_cut", 0)
VERIFIED = ("aotlite", "default", 1)
TORCH, TORCH_CUT = ("torch", "default", 0), ("torch", "min_cut", 0)
JAX = ("jax", "default", 0)
COLUMNS: tuple[Column, ...] = (OURS, TORCH, JAX, OURS_CUT, TORCH_CUT, VERIFIED)


@attrs.frozen
class Measured:
    """The best figures of one column of one row, or the reason why there are none."""

    rounds: int
    seconds: float | None
    bytes: int | None
    failed: str | None


Results = Mapping[tuple[str, Column], Measured]


# ---------------------------------------------------------------------------------------- measuring
def run_job(job: Job, timeout: float) -> dict[str, Any]:
    """Returns the output of a fresh process for a job; `{"failed": why}` without output."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.first_call"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AOTLITE_")}
    root = Path(__file__).parents[1]
    try:
        done = subprocess.run(
            [*command, json.dumps(attrs.asdict(job))],
            cwd=root,
            env=kept | ONE_THREAD,
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
        said = done.stderr.strip().rpartition("\n")[2]
        return {"failed": f"exit status {done.returncode}: {said}"}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(
    rows: Sequence[str],
    columns: Sequence[Column],
    rounds: int,
    timeout: float,
    clock: str = "seconds",
) -> dict[tuple[str, Column], Measured]:
    """Every column of every row; in each round the columns follow each other.

    The `clock` is "seconds" or "cpu_seconds".
    """
    runs: dict[tuple[str, Column], list[dict[str, Any]]] = {}
    wanted = [(row, column) for row in rows for column in columns if _belongs(row, column)]
    with progress() as bar:
        task = bar.add_task("", total=len(wanted) * rounds)
        for row in rows:
            for _, column in itertools.product(range(rounds), columns):
                if not _belongs(row, column):
                    continue
                bar.update(task, description=f"{row} {_named(column)}")
                taken = runs.setdefault((row, column), [])
                if _goes_on(taken):
                    peer, partition, verify = column
                    taken.append(run_job(Job(row, peer, partition, verify), timeout))
                bar.advance(task)
    return {key: _best(taken, clock) for key, taken in runs.items()}


def _belongs(row: str, column: Column) -> bool:
    return row not in OURS_ONLY or column[0] == "aotlite"


def _goes_on(taken: Sequence[dict[str, Any]]) -> bool:
    """Whether another round follows: not after a failure, nor after a slow job."""
    return all(run.get("seconds", math.inf) <= ONCE_ABOVE for run in taken)


def _best(taken: Sequence[dict[str, Any]], clock: str) -> Measured:
    failed = next((run["failed"] for run in taken if "failed" in run), None)
    if failed is not None:
        return Measured(len(taken), None, None, failed)
    seconds, growth = (min(run[key] for run in taken) for key in (clock, "bytes"))
    return Measured(len(taken), seconds, growth, None)


def exponent(seconds_by_length: Mapping[int, float]) -> float | None:
    """The slope of log(seconds) over log(length), fitted by least squares; None for one length.

    >>> exponent({10: 1.0, 20: 2.0, 40: 4.0})
    1.0
    """
    points = [(math.log(n), math.log(s)) for n, s in seconds_by_length.items()]
    if len(points) < 2:
        return None
    mean_x, mean_y = (sum(axis) / len(points) for axis in zip(*points, strict=True))
    products = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return round(products / sum((x - mean_x) ** 2 for x, _ in points), 3)


# ----------------------------------------------------------------------------------------- printing
def report(results: Results, console: Console) -> None:
    """Prints a table for each partitioner, exponents, and a line for each column that failed."""
    rows = list(dict.fromkeys(row for row, _ in results))
    console.print(_table("default partition", rows, results, (OURS, TORCH, JAX, VERIFIED)))
    console.print(_table("min-cut partition", rows, results, (OURS_CUT, TORCH_CUT, JAX)))
    for line in _exponents(results):
        console.print(line)
    for (row, column), found in results.items():
        if found.failed is not None:
            console.print(f"{row}, {_named(column)}: {found.failed}", markup=False)
    console.print(ASKED)


def _table(title: str, rows: Sequence[str], results: Results, columns: tuple[Column, ...]) -> Table:
    made = table(
        f"\n{title}: microseconds a user's op, MiB by which the peak of memory grew",
        *("row", "ops", "seconds", "aotlite", "torch", "torch / aotlite", "jax", "jax / aotlite"),
        *("MiB: aotlite", "torch", "aotlite / torch", "jax"),
        *(["verify 1 adds"] if len(columns) > 3 else []),
    )
    for row in rows:
        ops = program(row).ops
        ours, torch, jax, *verified = [results.get((row, column)) for column in columns]
        made.add_row(
            *(row, f"{ops:,}", _seconds(ours), _micro(ours, ops)),
            *(_micro(torch, ops), _ratio(torch, ours), _micro(jax, ops), _ratio(jax, ours)),
            *(_size(ours), _size(torch), _ratio(ours, torch, "bytes"), _size(jax)),
            *(_added(each, ours, ops) for each in verified),
        )
    return made


def _exponents(results: Results) -> Iterator[str]:
    for column in COLUMNS:
        by_length = {
            int(row.partition(":")[2]): found.seconds
            for (row, of), found in results.items()
            if of == column and row.startswith("chain:") and found.seconds is not None
        }
        fitted = exponent(by_length)
        if fitted is not None:
            lengths = ", ".join(f"{length:,}" for length in by_length)
            yield f"exponent of {_named(column)} over chains of {lengths}: {fitted:.3f}"


def _named(column: Column) -> str:
    peer, partition, verify = column
    words = [peer, *([] if column == JAX else [partition]), *(["verify 1"] if verify else [])]
    return " ".join(words)


def _seconds(found: Measured | None) -> str:
    return "-" if found is None or found.seconds is None else f"{found.seconds:.3g}"


def _micro(found: Measured | None, ops: int) -> str:
    if found is None or found.seconds is None:
        return "-" if found is None else "failed"
    return f"{found.seconds / ops * 1e6:.1f}"


def _added(more: Measured | None, less: Measured | None, ops: int) -> str:
    """The microseconds of an op by which one is slower than the other."""
    if more is None or less is None or more.seconds is None or less.seconds is None:
        return "-"
    return f"{(more.seconds - less.seconds) / ops * 1e6:.1f}"


def _size(found: Measured | None) -> str:
    if found is None or found.bytes is None:
        return "-" if found is None else "failed"
    return f"{found.bytes / 2**20:.1f}"


def _ratio(above: Measured | None, below: Measured | None, what: str = "seconds") -> str:
    upper, lower = (None if found is None else getattr(found, what) for found in (above, below))
    return f"{upper / lower:.2f}" if upper is not None and lower else "-"


# -------------------------------------------------------------------------------------- the command
def main(argv: Sequence[str] | None = None) -> None:
    """Measures and prints; see `--help`."""
    args = _parser().parse_args(argv)
    console = wide_console()
    peers = [] if args.ours_only else installed_peers(("torch", "jax"), console)
    columns = [column for column in COLUMNS if column[0] in ("aotlite", *peers)]
    clock = "cpu_seconds" if args.cpu_time else "seconds"
    results = measure(args.rows, columns, args.rounds, args.timeout, clock)
    for line in [*machine(), *(["processor time"] if args.cpu_time else [])]:
        console.print(line)
    report(results, console)
    if args.json:
        found = [{"row": row, "column": c, **attrs.asdict(m)} for (row, c), m in results.items()]
        text = json.dumps({"machine": [*machine()], "clock": clock, "results": found}, indent=1)
        args.json.write_text(text, "utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks.pipeline", description=__doc__)
    parser.add_argument(
        "--rows", type=_rows, default=ROWS, metavar="ROW,ROW", help=f"default: {','.join(ROWS)}"
    )
    parser.add_argument("--rounds", type=number(1), default=5, help="fresh processes of each kind")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds of one process")
    parser.add_argument(
        "--cpu-time", action="store_true", help="processor time, for a machine that is not idle"
    )
    parser.add_argument("--ours-only", action="store_true", help="neither PyTorch nor JAX")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured there")
    return parser


def _rows(text: str) -> tuple[str, ...]:
    rows = tuple(text.split(","))
    try:
        for row in rows:
            program(row)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return rows


if __name__ == "__main__":
    main()
