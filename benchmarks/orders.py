"""Counts the runs at each derivative of a compiled function, call by call.

`python -m benchmarks.orders` differentiates functions up to a third order, several times, and
prints for each call and order how often the function was run, how many ops the eager engine ran,
and which graphs. After the first call each order should have no runs, no eager ops, and one graph
(DBL-2). `--eager` prints the same for the functions without compilation.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
from rich.console import Console

import aotlite as al
from aotlite.cli import number
from aotlite.inspect import Ran, counting
from benchmarks.common import table, wide_console

Call = Callable[..., Any]
ORDERS = ("forward", "backward", "second", "third")


def cubes(x: Any) -> Any:
    """Known derivatives: 3x², 6x, 6."""
    return (x * x * x).sum()


def network(x: Any) -> Any:
    """Two layers, as in a physics-informed network."""
    return ((x @ x.t()).tanh() @ x).sin().sum()


def written(x: Any) -> Any:
    """Writes and views in between."""
    y = x.exp() * x
    y[0].mul_(3.0)
    return (y * y).sum()


FUNCTIONS = {each.__name__: each for each in (cubes, network, written)}


@attrs.frozen
class Row:
    """The runs of one call at one order."""

    function: str
    call: int
    order: int
    ran: Ran

    @property
    def is_met(self) -> bool:
        """Whether the graph of the order alone ran; the first call compiles."""
        ran = self.ran
        return self.call == 0 or (ran.captures, ran.eager_ops, dict(ran.graphs)) == (
            0,
            0,
            {self.order: 1},
        )


def rows_of(name: str, function: Call, calls: int) -> Iterator[Row]:
    """The runs of each call, order by order; cotangents are made outside of the count."""
    x = al.tensor([[0.5, -1.0], [2.0, 0.25]], dtype=al.float64, requires_grad=True)
    for call in range(calls):
        with counting() as ran:
            value = function(x)
        yield Row(name, call, 0, ran)
        for order in range(1, len(ORDERS)):
            given, again = al.ones_like(value), order < len(ORDERS) - 1
            with counting() as ran:
                found: Any = al.autograd.grad(value, [x], given, create_graph=again)
            value = found[0]
            yield Row(name, call, order, ran)


def report(rows: Sequence[Row], console: Console, *, judges: bool) -> None:
    """Prints the table."""
    columns = ("call", "order", "runs of the function", "eager ops", "graphs run", "met")
    made = table("\nwhat ran", "function", *columns)
    for row in rows:
        graphs = ", ".join(f"{n} {ORDERS[k]}" for k, n in sorted(row.ran.graphs.items())) or "-"
        met = "-" if not judges or row.call == 0 else "yes" if row.is_met else "no"
        counts = f"{row.ran.captures}", f"{row.ran.eager_ops}"
        made.add_row(row.function, f"{row.call + 1}", ORDERS[row.order], *counts, graphs, met)
    console.print(made)


def main(argv: Sequence[str] | None = None) -> None:
    """Counts and prints; see `--help`."""
    parser = argparse.ArgumentParser("benchmarks.orders", description=__doc__)
    add = parser.add_argument
    add("--calls", type=number(1), default=3, help="of each function")
    add("--eager", action="store_true", help="the functions as they are")
    add("--backend", default="auto", help="that compiles the graphs")
    args = parser.parse_args(argv)
    rows: list[Row] = []
    for name, function in FUNCTIONS.items():
        called = function if args.eager else al.compile(function, backend=args.backend)
        rows += rows_of(name, called, args.calls)
    report(rows, wide_console(), judges=not args.eager)


if __name__ == "__main__":
    main()
