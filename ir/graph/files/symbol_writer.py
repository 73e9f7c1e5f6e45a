"""`WrittenSymbols`: the tables of symbols, sizes and guards in the file of a graph.

Ground floor. Spec: `specs/serialize.md`, SER-15 and SER-16.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NoReturn

from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.graph.files.limits import TEXT
from aotlite.ir.graph.files.overlap_guards import answer_entry
from aotlite.ir.graph.files.size_texts import DEPTH, NAME, size_tree
from aotlite.ir.graph.graph import Graph
from aotlite.ir.graph.role import Output, Role, SavedSize
from aotlite.ir.graph.symbolic.binding import parameters_of, sizes_among
from aotlite.ir.provenance.location import Location
from aotlite.ir.symbols.assumption import Answer, Assumption
from aotlite.ir.symbols.calls import Call
from aotlite.ir.symbols.cases.parts import names_in
from aotlite.ir.symbols.floats.size_float import depth_of
from aotlite.ir.symbols.polynomial import Atom
from aotlite.ir.symbols.symint import SymInt
from aotlite.ir.symbols.table import SymbolTable, table_of

__all__ = ["WrittenSymbols", "says_sizes"]

Entry = dict[str, object]


class WrittenSymbols:
    """The tables of a graph with symbols. Raises UnsupportedError for what no file can hold."""

    def __init__(self, graph: Graph) -> None:
        sizes = list(sizes_among([(node.args, node.meta) for node in graph.nodes]))
        table = table_of(sizes)
        assert table is not None
        self.table: SymbolTable = table
        self.parameters = parameters_of(graph)
        for name, role in self.parameters.items():
            if role is None:
                raise noted(
                    UnsupportedError(
                        f"serialize: the symbol {name} is the size of no input, expected one that "
                        "an input binds, that the graph computes, or that has a role"
                    ),
                    "A graph with numbers in its place can be saved: "
                    "ir.graph.symbolic.numbers.at_sizes(graph, {...}).",
                )
        names = set(graph.symbols)
        self.guards = [each for each in table.log if names_in(each.fact) <= names]
        answers = any(isinstance(each.fact, Answer) for each in self.guards)
        self.is_closed = not (self.parameters or answers or says_sizes(graph.output_roles))
        """Whether sizes of inputs, and comparisons, say it all: then the second version has it."""
        self.sizes = [*sizes, *self._guarded()]

    @classmethod
    def of(
        cls, table: SymbolTable, sizes: Iterable[SymInt], guards: Sequence[Assumption]
    ) -> WrittenSymbols:
        """The tables of these sizes and guards, which no graph has."""
        made = cls.__new__(cls)
        made.table, made.parameters, made.guards, made.is_closed = table, {}, list(guards), True
        made.sizes = [*sizes, *made._guarded()]
        return made

    def _guarded(self) -> list[SymInt]:
        """The sizes of which the guards speak."""
        sides = [size for each in self.guards for size in _sides(each)]
        return [size for size in sides if type(size) is SymInt]

    def tables(
        self, place: Callable[[Location], int] | None, role: Callable[[Role | None], object]
    ) -> Entry:
        """The entries; `place` gives the position of a line, if lines are kept, and `role` the
        JSON of a role."""
        named = names_in(tuple(self.sizes))
        given = [{"symbol": name, "role": role(r)} for name, r in self.parameters.items()]
        return {
            **({} if self.is_closed else {"parameters": given}),
            "symbols": [self._symbol(name) for name in self.table.symbols if name in named],
            "sizes": [text for text in self._texts() if text not in named],
            "guards": [self._guard(each, place) for each in self.guards],
        }

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
        at = None if guard.location is None or place is None else place(guard.location)
        who: Entry = {"op": guard.op, "place": at}
        fact = guard.fact
        if isinstance(fact, Answer):
            return answer_entry(fact, self.size) | who
        left, right = self.size(fact.left), self.size(fact.right)
        return {"left": left, "relation": fact.relation, "right": right} | who

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


def says_sizes(roles: Iterable[Role]) -> bool:
    """Whether some output is a size, or the value of one."""
    return any(type(r) is SavedSize or (type(r) is Output and r.symbol) for r in roles)


def _sides(guard: Assumption) -> tuple[int | SymInt, ...]:
    fact = guard.fact
    if isinstance(fact, Answer):
        return tuple(sizes_among(fact.operands))
    return fact.left, fact.right


def _refuse(what: str, got: str) -> NoReturn:
    raise UnsupportedError(f"serialize: {what} is {got}")
