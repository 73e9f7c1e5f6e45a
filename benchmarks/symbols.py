"""Measures symbolic sizes: arithmetic, comparisons, metas and rules, in microseconds.

`python -m benchmarks.symbols` times each as a trace meets it: again, where the expression has been
met before (layers repeat), and for the first time. A figure is the median over rounds of the
fastest of several loops. "First time" includes what it takes to make the table forget.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import attrs
from rich.console import Console

import aotlite.ir.ops  # noqa: F401  (fills the op table)
from aotlite.cli import number
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS
from aotlite.ir.symbols.table import SymbolTable
from benchmarks.common import machine, machine_console, table
from benchmarks.loops import Action, Medians, measure

COLUMNS = ("again", "first time", "plain ints, again")
LIMITS: Mapping[str, int] = {
    "a + 1": 1,
    "a + b": 1,
    "a - b": 1,
    "a * b": 1,
    "a * b * 3": 2,
    "a != 1, known": 2,
    "a * b > b, known": 3,
}
"""Microseconds: 1 for a sum, a difference or a product, 2 for a comparison that is known."""


@attrs.frozen(eq=False)
class Operand:
    """The parts of a tensor that rules read."""

    meta: object


# ---------------------------------------------------------------------------------------- the cases
def _arithmetic(function: Callable[[int, int], object]) -> dict[str, Action]:
    """On two sizes that have met before; on two whose table has forgotten that they did."""
    known, fresh = SymbolTable(), SymbolTable()
    a, b = fresh.size(6), fresh.size(5)
    names = ("interned", "_results", "truths", "open", "_calls", "events")
    memories = [*[getattr(fresh, name) for name in names], fresh.events.lines]

    def first() -> object:
        for memory in memories:
            memory.clear()
        return function(a, b)

    return {
        "again": partial(function, known.size(6), known.size(5)),
        "first time": first,
        "plain ints, again": partial(function, 6, 5),
    }


def _meta() -> dict[str, Action]:
    a = SymbolTable().size(6)
    shape = (a, a * 2, 3)
    fresh = SymbolTable()
    more = itertools.count()
    c = fresh.size(6)
    return {
        "again": partial(tensor_meta, shape, (a * 6, 3, 1)),
        "first time": lambda: tensor_meta((c + next(more), c)),
        "plain ints, again": partial(tensor_meta, (6, 12, 3), (36, 3, 1)),
    }


def _rule(name: str) -> dict[str, Action]:
    op = OPS[name]
    known = SymbolTable()
    symbolic = Operand(tensor_meta((known.size(6), known.size(6))))
    square = Operand(tensor_meta((6, 6)))

    def first() -> object:
        fresh = SymbolTable()
        operand = Operand(tensor_meta((fresh.size(6), fresh.size(6))))
        return op.infer((operand, operand))

    return {
        "again": partial(op.infer, (symbolic, symbolic)),
        "first time": first,
        "plain ints, again": partial(op.infer, (square, square)),
    }


ARITHMETIC: Mapping[str, Callable[[int, int], object]] = {
    "a + 1": lambda a, b: a + 1,
    "a + b": lambda a, b: a + b,
    "a - b": lambda a, b: a - b,
    "a * b": lambda a, b: a * b,
    "a * b * 3": lambda a, b: a * b * 3,
    "a * b // b": lambda a, b: a * b // b,
}
QUESTIONS: Mapping[str, Callable[[int, int], object]] = {
    "a == a": lambda a, b: a == a,
    "a != 1, known": lambda a, b: a != 1,
    "a * b > b, known": lambda a, b: a * b > b,
    "a > b, open": lambda a, b: a > b,
}
CASES: Mapping[str, Callable[[], Mapping[str, Action]]] = {
    **{name: partial(_arithmetic, function) for name, function in ARITHMETIC.items()},
    **{name: partial(_arithmetic, function) for name, function in QUESTIONS.items()},
    "tensor_meta": _meta,
    "rule of add": partial(_rule, "add"),
    "rule of matmul": partial(_rule, "matmul"),
}


# ----------------------------------------------------------------------------------------- printing
def report(found: Medians, console: Console) -> None:
    """Prints the table, and whether the limits hold."""
    made = table("\nmicroseconds", "what", *COLUMNS, "limit")
    for name, of in found.items():
        figures = [f"{of[column]:.2f}" for column in COLUMNS]
        made.add_row(name, *figures, str(LIMITS.get(name, "")))
    console.print(made)
    for column in ("again", "first time"):
        shares = {name: of[column] / LIMITS[name] for name, of in found.items() if name in LIMITS}
        if shares:
            most = max(shares, key=shares.__getitem__)
            console.print(f"{column}: at most {shares[most]:.2f} of the limit, for {most}")


# -------------------------------------------------------------------------------------- the command
def main(argv: Sequence[str] | None = None) -> None:
    """Measures and prints; see `--help`."""
    parser = argparse.ArgumentParser(prog="benchmarks.symbols", description=__doc__)
    parser.add_argument("--rows", action="append", choices=CASES, help="only these (repeatable)")
    parser.add_argument("--rounds", type=number(1), default=5, help="turns of each")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured there")
    args = parser.parse_args(argv)
    wanted = {name: CASES[name] for name in args.rows or CASES}
    found = measure(wanted, args.rounds)
    console = machine_console()
    report(found, console)
    if args.json:
        text = json.dumps({"machine": list(machine()), "microseconds": found}, indent=1)
        args.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
