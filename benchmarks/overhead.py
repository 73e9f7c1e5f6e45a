"""What a call of a compiled function costs: eight elements, kernels included.

`python -m benchmarks.overhead` times aotlite, eager and compiled, the same NumPy calls made bare,
PyTorch (`aot_function` with compilers that do nothing, and eager) and `jax.jit`, all in one process
and by turns. A figure is the median over rounds of the fastest of several loops, in microseconds.
Gradients come from `autograd.grad`, which accumulates nothing; JAX returns them with the value.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from aotlite.cli import number
from benchmarks.calls import CASES, Action, Case, actions
from benchmarks.common import ONE_THREAD, installed_peers, machine, progress, table, wide_console

LOOP_SECONDS = 2e-3
LOOPS = 5
COLUMNS = ("aotlite", "bare NumPy", "aotlite eager", "torch aot", "torch eager", "jax.jit")

Medians = Mapping[str, Mapping[str, float]]
"""Name of a case -> column -> microseconds."""


# ---------------------------------------------------------------------------------------- measuring
def measure(
    cases: Sequence[Case], peers: Sequence[str], rounds: int
) -> dict[str, dict[str, float]]:
    """Medians for every column of every case."""
    found: dict[str, dict[str, float]] = {}
    with progress() as bar:
        task = bar.add_task("", total=len(cases) * rounds)
        for case in cases:
            bar.update(task, description=case.name)
            taken: dict[str, list[float]] = {}
            for one_round in _rounds(actions(case, peers), rounds):
                for column, microseconds in one_round:
                    taken.setdefault(column, []).append(microseconds)
                bar.advance(task)
            found[case.name] = {name: statistics.median(each) for name, each in taken.items()}
    return found


def _rounds(of: Mapping[str, Action], rounds: int) -> Iterator[list[tuple[str, float]]]:
    """For each round the columns in turn, each with the microseconds of its fastest loop."""
    counts = {column: _calls_a_loop(action) for column, action in of.items()}
    for _ in range(rounds):
        yield [(column, _fastest(action, counts[column])) for column, action in of.items()]


def _calls_a_loop(action: Action) -> int:
    """How many calls take about as long as a loop shall; the first ones compile."""
    action()
    action()
    return max(1, int(LOOP_SECONDS / _loop(action, 5)))


def _fastest(action: Action, calls: int) -> float:
    return min(_loop(action, calls) for _ in range(LOOPS)) * 1e6


def _loop(action: Action, calls: int) -> float:
    """Seconds a call."""
    times = range(calls)
    start = time.perf_counter()
    for _ in times:
        action()
    return (time.perf_counter() - start) / calls


# ----------------------------------------------------------------------------------------- printing
def report(found: Medians, console: Console) -> None:
    """Prints the table."""
    columns = [c for c in COLUMNS if any(c in of for of in found.values())]
    made = table("\nmicroseconds a call", "call", "above bare NumPy", "asked", *columns)
    asked = {case.name: case.asked for case in CASES}
    for name, of in found.items():
        limit = asked[name]
        above = of["aotlite"] - of["bare NumPy"]
        texts = [f"{above:.1f}", "-" if limit is None else f"{limit:g}"]
        made.add_row(name, *texts, *(f"{of[column]:.1f}" for column in columns))
    console.print(made)


# -------------------------------------------------------------------------------------- the command
def main(argv: Sequence[str] | None = None) -> None:
    """Measures and prints; see `--help`."""
    args = _parser().parse_args(argv)
    os.environ.update(ONE_THREAD)  # read when a peer is imported, which is later
    console = wide_console()
    peers = [] if args.ours_only else installed_peers(("torch", "jax"), console)
    wanted = [case for case in CASES if not args.rows or case.name in args.rows]
    found = measure(wanted, peers, args.rounds)
    for line in machine():
        console.print(line)
    report(found, console)
    if args.json:
        text = json.dumps({"machine": list(machine()), "microseconds": found}, indent=1)
        args.json.write_text(text, "utf-8")


def _parser() -> argparse.ArgumentParser:
    names = [case.name for case in CASES]
    parser = argparse.ArgumentParser(prog="benchmarks.overhead", description=__doc__)
    parser.add_argument(
        "--rows", action="append", choices=names, metavar="ROW", help=f"one of {names}; repeatable"
    )
    parser.add_argument("--rounds", type=number(1), default=15, help="turns of each library")
    parser.add_argument("--ours-only", action="store_true", help="neither PyTorch nor JAX")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured there")
    return parser


if __name__ == "__main__":
    main()
