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
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from aotlite.cli import number
from benchmarks.calls import CASES, actions
from benchmarks.common import ONE_THREAD, installed_peers, machine, table, wide_console
from benchmarks.loops import Medians, measure

COLUMNS = ("aotlite", "bare NumPy", "aotlite eager", "torch aot", "torch eager", "jax.jit")


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
    found = measure({c.name: partial(actions, c, peers) for c in wanted}, args.rounds)
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
