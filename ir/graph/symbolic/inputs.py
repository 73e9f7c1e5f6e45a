"""`RunSizes`: the numbers of a graph's symbols in one run.

The sizes of the inputs give most of them, when the run begins. A symbol that depends on values gets
its number when the run has computed it. Whoever runs a graph with symbols as it is makes one; a
compiled function has its own guards. Ground floor. Spec: `specs/graph.md`, GRA-16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from types import MappingProxyType
from typing import TypeVar

from aotlite.ir.errors import ArgumentError, GuardError, ShapeError, noted
from aotlite.ir.graph.graph import Graph, Node
from aotlite.ir.graph.symbolic.binding import (
    ComputedSize,
    bindings_in,
    names_among,
    parameters_of,
    sizes_among,
)
from aotlite.ir.graph.symbolic.numbers import with_sizes
from aotlite.ir.provenance.location import place_of
from aotlite.ir.symbols.assumption import Assumption, concrete
from aotlite.ir.symbols.cases.parts import names_in
from aotlite.ir.symbols.table import table_of

__all__ = ["NO_SIZES", "RunSizes"]

Sizes = Mapping[str, int]
T = TypeVar("T")

NO_SIZES: Sizes = MappingProxyType({})


class RunSizes:
    """The sizes of one run of a graph; `graph` has numbers for those that are known.

    `shapes` are those of the inputs, `sizes` the numbers of symbols that no input gives.

    Raises ShapeError for a shape of another rank, ArgumentError for a symbol without a value, or
    for sizes of other symbols, and GuardError for sizes at which the graph is not valid. That the
    rest of the shapes fits is left to who reads the inputs: their metas have numbers then.
    """

    def __init__(self, graph: Graph, shapes: Sequence[Sequence[int]], sizes: Sizes) -> None:
        self._symbolic = graph
        inputs = dict(zip(graph.placeholders, shapes, strict=True))
        for node, shape in inputs.items():
            if len(shape) != len(node.shape):
                raise ShapeError(
                    f"run: input {node.role} has shape {tuple(shape)}, expected {node.shape}"
                )
        table = table_of(sizes_among([(node.args, node.meta) for node in graph.nodes]))
        assert table is not None
        self._table = table
        bindings = bindings_in(graph)
        self.values = _parameters(graph, sizes)
        for each in bindings.given:
            self.values[each.symbol] = each.value(inputs[each.source][each.dim], self.values)
        _check_given(graph, sizes, self.values)
        self._checked: set[int] = set()
        self._check()
        self.awaited: list[ComputedSize] = list(bindings.computed)
        """The symbols that the rest of the run computes, in this order."""
        self.graph = self._with_numbers()

    def computed(self, value: int) -> None:
        """Takes the number of the next awaited symbol. GuardError where it is not as it must be."""
        symbol = self.awaited.pop(0).symbol
        known = self.values.setdefault(symbol, value)
        if known != value:
            name = self._symbolic.name
            raise GuardError(f"graph {name}: an input gives {symbol} as {known}, expected {value}")
        self._check()
        self.graph = self._with_numbers()

    def _with_numbers(self) -> Graph:
        def put(value: T) -> T:
            return concrete(value, self.values) if self.knows(value) else value

        return with_sizes(self._symbolic, put)

    def knows(self, value: object) -> bool:
        """Whether all symbols of a size or meta have numbers."""
        return names_among([value]) <= self.values.keys()

    def _check(self) -> None:
        """Raises GuardError if the graph is not valid at the sizes that are known by now."""
        name, values = self._symbolic.name, self.values
        for symbol, value in values.items():
            low, high = self._table.symbols[symbol].room
            if (low is not None and value < low) or (high is not None and value > high):
                room = f"at least {low}" if high is None else f"{low} to {high}"
                raise GuardError(f"graph {name}: the size {symbol} is {value}, expected {room}")
        for number, guard in enumerate(self._table.log):
            if number not in self._checked and names_in(guard.fact) <= values.keys():
                self._checked.add(number)
                if not guard.holds(values):
                    raise _violated(name, guard, values)


def _violated(name: str, guard: Assumption, values: Sizes) -> GuardError:
    place = None if guard.location is None else place_of(guard.location).note()
    text = f"graph {name}: its sizes are {dict(values)}, expected {guard!r}"
    return noted(GuardError(text), place)


def _parameters(graph: Graph, sizes: Sizes) -> dict[str, int]:
    """The numbers of the symbols that nothing gives."""
    values: dict[str, int] = {}
    for name, role in parameters_of(graph).items():
        if name not in sizes:
            why = "no input has it" if role is None else f"it is {role}"
            raise ArgumentError(
                f"graph {graph.name}: the size {name} is not given, expected it in sizes=: {why}"
            )
        try:
            values[name] = index(sizes[name])
        except TypeError:
            raise ArgumentError(
                f"graph {graph.name}: the size {name} is {sizes[name]!r}, expected an int"
            ) from None
    return values


def _check_given(graph: Graph, sizes: Sizes, values: Sizes) -> None:
    """Raises ArgumentError for a size of no symbol, or one that differs from that of an input."""
    for name, value in sizes.items():
        if name not in graph.symbols:
            known = ", ".join(graph.symbols)
            raise ArgumentError(
                f"graph {graph.name}: sizes= has {name!r}, expected symbols of the graph: {known}"
            )
        if values.get(name, value) != value:
            raise ArgumentError(
                f"graph {graph.name}: sizes= has {name} as {value}, expected {values[name]} as the "
                "inputs have it"
            )


def holds_symbols(node: Node) -> bool:
    """Whether the meta of a node has symbols without a number."""
    return bool(names_among([node.meta]))
