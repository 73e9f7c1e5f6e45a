"""`WrittenSymbols`: the tables of symbols, sizes and guards in the file of a graph.

Ground floor. Spec: `specs/serialize.md`, SER-15 and SER-16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NoReturn

from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.graph.files.limits import TEXT
from aotlite.ir.graph.files.size_texts import DEPTH, NAME, size_tree
from aotlite.ir.graph.graph import Graph
from aotlite.ir.graph.symbolic.binding import bindings_of, sizes_among
from aotlite.ir.provenance.location import Location
from aotlite.ir.symbols.assumption import Answer, Assumption
from aotlite.ir.symbols.calls import Call
from aotlite.ir.symbols.cases.parts import names_in
from aotlite.ir.symbols.floats.size_float import depth_of
from aotlite.ir.symbols.polynomial import Atom
from aotlite.ir.symbols.symint import SymInt
from aotlite.ir.symbols.table import SymbolTable, table_of

__all__ = ["WrittenSymbols"]

Entry = dict[str, object]


class WrittenSymbols:
    """The tables of a graph with symbols. Raises UnsupportedError for what no file can hold."""

    def __init__(self, graph: Graph) -> None:
        sizes = list(sizes_among([(node.args, node.meta) for node in graph.nodes]))
        table = table_of(sizes)
        assert table is not None
        self.table: SymbolTable = table
        free = bindings_of(graph.placeholders, graph.symbols).free
        if free:
            raise noted(
                UnsupportedError(
                    f"serialize: the symbol {free[0]} is the size of no input, expected one that "
                    "an input binds"
                ),
                "A graph with numbers in its place can be saved: "
                "ir.graph.symbolic.numbers.at_sizes(graph, {...}).",
            )
        self.guards = self._guards(set(graph.symbols))
        sizes += [size for each in self.guards for size in _sides(each) if type(size) is SymInt]
        self.sizes = sizes

    def tables(self, place: Callable[[Location], int] | None) -> Entry:
        """The entries; `place` gives the position of a line, if lines are kept."""
        named = names_in(tuple(self.sizes))
        return {
            "symbols": [self._symbol(name) for name in self.table.symbols if name in named],
            "sizes": [text for text in self._texts() if text not in named],
            "guards": [self._guard(each, place) for each in self.guards],
        }

    def _guards(self, names: set[str]) -> list[Assumption]:
        """The assumptions on these symbols, and on those that they are compared with."""
        waiting, found = list(self.table.log), set[int]()
        while True:
            rest = [each for each in waiting if id(each) not in found]
            met = [each for each in rest if names_in(each.fact) & names]
            if not met:
                return [each for each in waiting if id(each) in found]
            found.update(map(id, met))
            names = names.union(*[names_in(each.fact) for each in met])

    def _symbol(self, name: str) -> Entry:
        symbol = self.table.symbols[name]
        if symbol.hint is None or not NAME.fullmatch(name):
            _refuse(f"the symbol {name}", "one that is known when the graph runs only")
        least, most = symbol.room
        sources = [text[:TEXT] for text in symbol.sources[:TEXT]]
        return {
            "symbol": name,
            "hint": symbol.hint,
            "least": least,
            "most": most,
            "sources": sources,
        }

    def _guard(self, guard: Assumption, place: Callable[[Location], int] | None) -> Entry:
        if isinstance(guard.fact, Answer):
            _refuse("a guard", f"{guard.text}, expected a comparison of sizes")
        at = None if guard.location is None or place is None else place(guard.location)
        return {
            "left": self.size(guard.fact.left),
            "relation": guard.fact.relation,
            "right": self.size(guard.fact.right),
            "op": guard.op,
            "place": at,
        }

    def _texts(self) -> Iterable[int | str]:
        """The texts of all sizes; first those of the calls in them, as the table has made them."""
        atoms: dict[int, Atom] = {}
        waiting = list(self.sizes)
        while waiting:
            for monomial in waiting.pop().terms:
                for atom in monomial:
                    if isinstance(atom, Call) and atom.number not in atoms:
                        atoms[atom.number] = atom
                        both = atom.left, atom.right
                        waiting += [side for side in both if type(side) is SymInt]
        calls = [self.table.of({(atoms[number],): 1}) for number in sorted(atoms)]
        return dict.fromkeys(map(self.size, [*calls, *self.sizes]))

    def size(self, value: int | SymInt) -> int | str:
        """A size in the file: a number, or the text of an expression."""
        if type(value) is not SymInt:
            return value  # type: ignore[return-value]
        if value.table is not self.table:
            _refuse("a size", f"{value} of another trace, expected sizes of one trace")
        text = self.table.expression(value)
        if depth_of(value):
            _refuse("a size", f"{text[:60]}, which is made of floats, expected one of integers")
        if size_tree(text) is None:
            most = f"at most {TEXT} characters, and {DEPTH} brackets in one another"
            _refuse("a size", f"{text[:60]}, expected an expression of {most}")
        return text


def _sides(guard: Assumption) -> tuple[int | SymInt, ...]:
    fact = guard.fact
    return () if isinstance(fact, Answer) else (fact.left, fact.right)


def _refuse(what: str, got: str) -> NoReturn:
    raise UnsupportedError(f"serialize: {what} is {got}")
