"""`at_inputs`: the graph with the numbers that its symbols have for given inputs.

Ground floor. Whoever runs a graph with symbols as it is calls it; a compiled function has its own
guards. Spec: `specs/graph.md`, GRA-16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from aotlite.ir.errors import ArgumentError, GuardError, ShapeError
from aotlite.ir.graph.graph import Graph
from aotlite.ir.graph.symbolic.binding import bindings_of, sizes_among
from aotlite.ir.graph.symbolic.numbers import at_sizes
from aotlite.ir.symbols.cases.parts import names_in
from aotlite.ir.symbols.table import SymbolTable, table_of

__all__ = ["NO_SIZES", "at_inputs", "check_sizes"]

Sizes = Mapping[str, int]

NO_SIZES: Sizes = MappingProxyType({})


def at_inputs(graph: Graph, shapes: Sequence[Sequence[int]], sizes: Sizes = NO_SIZES) -> Graph:
    """The graph at the sizes of inputs of these shapes. `sizes`: symbols that no input gives.

    Raises ShapeError for a shape of another rank, ArgumentError for a symbol without a value, and
    GuardError for sizes at which the graph is not valid. That the rest of the shapes fits is left
    to who reads the inputs: their metas have numbers then.
    """
    given = dict(zip(graph.placeholders, shapes, strict=True))
    for node, shape in given.items():
        if len(shape) != len(node.shape):
            raise ShapeError(
                f"run: input {node.role} has shape {tuple(shape)}, expected {node.shape}"
            )
    bindings = bindings_of(given, graph.symbols)
    missing = [name for name in bindings.free if name not in sizes]
    if missing:
        raise ArgumentError(
            f"graph {graph.name}: the size {missing[0]} is not given, expected it in sizes=: no "
            "input has it"
        )
    values = {name: sizes[name] for name in bindings.free}
    for each in bindings.given:
        values[each.symbol] = each.value(given[each.source][each.dim], values)
    table = table_of(sizes_among([(node.args, node.meta) for node in graph.nodes]))
    assert table is not None
    check_sizes(graph.name, table, values)
    return at_sizes(graph, values)


def check_sizes(name: str, table: SymbolTable, values: Sizes) -> None:
    """Raises GuardError if a graph with these symbols is not valid at these sizes."""
    for symbol, value in values.items():
        low, high = table.symbols[symbol].room
        if (low is not None and value < low) or (high is not None and value > high):
            room = f"at least {low}" if high is None else f"{low} to {high}"
            raise GuardError(f"graph {name}: the size {symbol} is {value}, expected {room}")
    for guard in table.log:
        if names_in(guard.fact) <= values.keys() and not guard.holds(values):
            raise GuardError(f"graph {name}: its sizes are {dict(values)}, expected {guard!r}")
