"""Compares the speed of this checkout with another commit, row by row.

    python -m benchmarks.against COMMIT                   all eight benchmarks, kernels last
    python -m benchmarks.against COMMIT eager start       only these
    python -m benchmarks.against COMMIT --rounds 30 --rows "first tensor"

The commit is checked out in a temporary folder. In each round every measurement runs once for
either version, in fresh processes and alternating order. A row's figure is the median over the
rounds; the verdict is on the ratio of both medians. Start-up and first calls are seconds of the
processor, calls the fastest of several loops, kernels seconds by the clock; `instructions` counts
Python's for first calls and for calls, and `code` counts those of compiled kernels: a busy machine
does not change them. `saved` counts bytes and ops of twenty training programs; there any more is a
higher row, and one round is enough.

The rows are this checkout's, driven through the public API; those of `cpu` and `code` are each
version's own.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console

from aotlite.cli import number
from benchmarks import cpu, first_call
from benchmarks.common import ONE_THREAD, machine_console, progress, table
from benchmarks.kernels.child import Job as KernelJob
from benchmarks.kernels.columns import OURS, default_backend

ROOT = Path(__file__).parents[1]
LIMIT = 1.03
"""The ratio at which a row counts as slower."""
ROUNDS = 15
KERNEL_ROUNDS = 3

START = {
    "first tensor": "import aotlite; aotlite.ones(2)",
    "first compiled call": """
import aotlite
x = aotlite.ones(2).requires_grad_()
aotlite.compile(lambda x: (x.sin() * 2 + x).sum(), backend="reference")(x).backward()
""",
}
FIRST_CALLS = ("chain:1000", "chain:5000", "mlp:16", "transformer:2")
SHORT = ("mlp:16", "transformer:2")
PARTITIONS = ("default", "min_cut")

Figures = Mapping[str, float]
"""Row -> seconds or microseconds."""


@attrs.frozen
class Measurement:
    """A process that measures some rows of one version."""

    name: str
    arguments: tuple[str, ...]
    """The arguments of Python."""
    read: Callable[[str, str, float], Figures]
    """(name, output, seconds of the processor) -> figures."""
    is_own: bool = False
    """Whether the version's own benchmarks run, not this checkout's."""
    is_exact: bool = False
    """Whether it counts what is the same in each run, so that one more is more."""


@attrs.frozen
class Row:
    """The figures of both versions, round by round."""

    name: str
    before: Sequence[float]
    now: Sequence[float]
    is_exact: bool = False

    @property
    def ratio(self) -> float:
        """The median of this checkout, divided by that of the commit."""
        return _ratio(statistics.median(self.now), statistics.median(self.before))

    @property
    def verdict(self) -> str:
        """The verdict in one word."""
        limit = 1.0 if self.is_exact else LIMIT
        more, less = ("higher", "lower") if self.is_exact else ("slower", "faster")
        return more if self.ratio > limit else less if self.ratio < 1 / limit else "same"

    @property
    def is_worse(self) -> bool:
        return self.verdict in ("slower", "higher")


def _ratio(now: float, before: float) -> float:
    """The ratio of two figures; a count may be 0."""
    return now / before if before else 1.0 if now == before else math.inf


# ------------------------------------------------------------------------------------ measurements
def _start() -> Iterator[Measurement]:
    for name, program in START.items():
        yield Measurement(name, ("-c", program), lambda name, _, seconds: {name: seconds})


def _calls(benchmark: str) -> Iterator[Measurement]:
    command = ("-m", "benchmarks.one_version", benchmark)
    yield Measurement(benchmark, command, lambda _, printed, __: json.loads(printed))


def _first_calls() -> Iterator[Measurement]:
    for program, partition in itertools.product(FIRST_CALLS, PARTITIONS):
        job = attrs.asdict(first_call.Job(program, "aotlite", partition))
        command = ("-m", "benchmarks.first_call", json.dumps(job))
        yield Measurement(f"{program} {partition}", command, _processor_seconds)


def _instructions() -> Iterator[Measurement]:
    for program, partition in itertools.product(SHORT, PARTITIONS):
        command = ("-m", "benchmarks.instructions", program, partition)
        yield Measurement(f"{program} {partition}", command, lambda _, out, __: json.loads(out))
    for benchmark in ("eager", "overhead"):
        arguments = ("-m", "benchmarks.instructions", benchmark)
        yield Measurement(f"{benchmark} calls", arguments, lambda _, out, __: json.loads(out))


def _processor_seconds(name: str, printed: str, _: float) -> Figures:
    return {name: json.loads(printed)["cpu_seconds"]}


def _kernels() -> Iterator[Measurement]:
    for row in cpu.ROWS:
        job = KernelJob(row.name, (OURS,), default_backend(), KERNEL_ROUNDS, check=False)
        command = ("-m", "benchmarks.kernels.child", json.dumps(attrs.asdict(job)))
        yield Measurement(row.name, command, _kernel_seconds, is_own=True)


def _machine_code() -> Iterator[Measurement]:
    program = (ROOT / "benchmarks" / "machine_code.py").read_text("utf-8")
    for row in cpu.ROWS:
        command = ("-c", program, row.name)
        yield Measurement(row.name, command, lambda _, out, __: json.loads(out), is_own=True)


def _saved() -> Iterator[Measurement]:
    for partition in PARTITIONS:
        command = ("-m", "benchmarks.saved", partition, "--json")
        yield Measurement(partition, command, lambda _, out, __: json.loads(out), is_exact=True)


def _kernel_seconds(name: str, printed: str, _: float) -> Figures:
    found = json.loads(printed)
    return {f"{name} {direction}": of["seconds"][OURS] for direction, of in found.items()}


BENCHMARKS: Mapping[str, Callable[[], Iterator[Measurement]]] = {
    "start": _start,
    "overhead": lambda: _calls("overhead"),
    "eager": lambda: _calls("eager"),
    "pipeline": _first_calls,
    "instructions": _instructions,
    "code": _machine_code,
    "saved": _saved,
    "cpu": _kernels,
}


# --------------------------------------------------------------------------------------- processes
@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """A temporary working tree of the commit."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "before"
        git = ("git", "-C", str(ROOT), "worktree")
        subprocess.run([*git, "add", "--quiet", "--detach", tree, commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", tree], check=True)


@contextmanager
def driver() -> Iterator[Path]:
    """A folder with this checkout's benchmarks, and without its library."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "benchmarks").symlink_to(ROOT / "benchmarks")
        yield Path(folder)


def run(measurement: Measurement, version: Path, folder: Path) -> Figures:
    """The figures of a fresh process that imports this version of the library."""
    if not (version / "aotlite" / "__init__.py").is_file():
        # Else Python would find an installed aotlite.
        raise RuntimeError(f"{version} has no aotlite: give a commit that has one")
    ours = ("AOTLITE_", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    more = cpu.ENVIRONMENT if measurement.is_own else ONE_THREAD
    before = _children_seconds()
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *measurement.arguments],
        cwd=version if measurement.is_own else folder,
        env=kept | more | {"PYTHONPATH": str(version)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{measurement.name} failed in {version}: {done.stderr.strip()[-500:]}")
    return measurement.read(measurement.name, done.stdout, _children_seconds() - before)


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compare(
    measurements: Sequence[Measurement], versions: Sequence[Path], folder: Path, rounds: int
) -> list[Row]:
    """The figures of the two versions; an unmeasured first round warms their caches."""
    taken: dict[tuple[str, bool], tuple[list[float], list[float]]] = {}
    with progress() as bar:
        task = bar.add_task("", total=(rounds + 1) * len(measurements))
        for turn in range(rounds + 1):
            for measurement in measurements:
                bar.update(task, description=measurement.name)
                for index in (0, 1) if turn % 2 else (1, 0):
                    for row, figure in run(measurement, versions[index], folder).items():
                        if turn:
                            key = row, measurement.is_exact
                            taken.setdefault(key, ([], []))[index].append(figure)
                bar.advance(task)
    return [Row(name, *both, is_exact) for (name, is_exact), both in taken.items()]


# ---------------------------------------------------------------------------------------- printing
def report(rows: Sequence[Row], console: Console) -> None:
    """Prints each row, then the slower and the higher ones."""
    made = table("", "row", "before", "now", "ratio", "of the least", "verdict")
    for row in rows:
        medians = [statistics.median(each) for each in (row.before, row.now)]
        least = _ratio(min(row.now), min(row.before))
        figures = [*(f"{each:.4g}" for each in medians), f"{row.ratio:.3f}", f"{least:.3f}"]
        made.add_row(row.name, *figures, row.verdict)
    console.print(made)
    for claim, is_exact in ((f"slower by more than {LIMIT - 1:.0%}", False), ("higher", True)):
        judged = [row for row in rows if row.is_exact is is_exact]
        worse = ", ".join(row.name for row in judged if row.is_worse)
        if judged:
            console.print(f"{claim}: {worse or 'none'}", markup=False)


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    made = argparse.ArgumentParser(
        prog="benchmarks.against",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = made.add_argument
    add("commit", help="anything that git takes for a commit")
    add("benchmarks", nargs="*", metavar="BENCHMARK", help=f"of {[*BENCHMARKS]}; all if none")
    add("--rounds", type=number(1), default=ROUNDS)
    add("--rows", action="append", metavar="TEXT", help="measurements with this text in their name")
    add("--json", type=Path, metavar="FILE", help="write what was measured there")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; 1 if a row is slower or higher."""
    args = parser().parse_args(argv)
    wanted = args.benchmarks or [*BENCHMARKS]
    measurements = [
        each
        for name in wanted
        for each in BENCHMARKS[name]()
        if not args.rows or any(text in each.name for text in args.rows)
    ]
    with checkout(args.commit) as before, driver() as folder:
        rows = compare(measurements, (before, ROOT), folder, args.rounds)
    console = machine_console()
    report(rows, console)
    if args.json:
        data: Any = [attrs.asdict(row) | {"ratio": row.ratio} for row in rows]
        args.json.write_text(json.dumps(data, indent=1) + "\n", "utf-8")
    return int(any(row.is_worse for row in rows))


if __name__ == "__main__":
    sys.exit(main())
