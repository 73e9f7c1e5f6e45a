"""`SymbolReader`: the symbols, sizes and guards of a file, in a symbol table of their own.

Ground floor. The guards of the file hold in the table. What a size or a meta rule asks beyond them
is proved from them, or refused: the graph would assume more than its file says. Spec:
`specs/serialize.md`, SER-16 and SER-17.
"""

from __future__ import annotations

import ast
import time
from collections.abc import Mapping
from typing import Final, TypeAlias

from aotlite.ir.errors import AotliteError
from aotlite.ir.graph.files.limits import Json
from aotlite.ir.graph.files.overlap_guards import answer_from
from aotlite.ir.graph.files.size_texts import NAME, SIGNS, size_tree, terms_of
from aotlite.ir.graph.files.values import (
    Read,
    Said,
    Unread,
    count_from,
    each,
    field,
    integer_from,
    number_from,
    optional,
    record,
    role_from,
    text_from,
)
from aotlite.ir.graph.graph import Graph
from aotlite.ir.graph.role import Primal, Role, SavedSize, Size
from aotlite.ir.graph.symbolic.binding import parameters_of
from aotlite.ir.meta import TensorMeta
from aotlite.ir.meta.symbolic import always_same_meta
from aotlite.ir.symbols.assumption import Answer, Assumption
from aotlite.ir.symbols.symint import RELATIONS, SymBool, SymInt
from aotlite.ir.symbols.table import SymbolTable, table_of
from aotlite.ir.symbols.validation.claims import Claim, Premises
from aotlite.ir.symbols.validation.expansion import Expansion
from aotlite.ir.symbols.validation.solver import Solver, is_installed

__all__ = ["SymbolReader"]

AnySize: TypeAlias = int | SymInt

_SYMBOL: Final = frozenset(("symbol", "hint", "least", "most", "sources"))
_PARAMETER: Final = frozenset(("symbol", "role"))
_GUARD: Final = frozenset(("left", "relation", "right", "op", "place"))
_ANSWER: Final = frozenset(("function", "operands", "value", "op", "place"))
PROOF_SECONDS: Final = 2.0
"""The time that proofs may take for one file."""
_DECIDED: Final = "no assumption but the guards of the file"


class SymbolReader:
    """The symbols of a file, in a table of their own, and the words for sizes."""

    def __init__(self, root: Json, place: Read) -> None:
        self.table = SymbolTable()
        self.words: dict[str, SymInt] = {}
        """A text of the file -> the size."""
        each(self._symbol, root["symbols"], ".symbols")
        self.parameters: dict[str, Role] = {}
        """The roles of the symbols that the file says no input gives."""
        each(self._parameter, root.get("parameters", []), ".parameters")
        asked: list[SymBool | Answer] = []
        self.table.asked = asked.append
        each(self._text, root["sizes"], ".sizes")
        self.table.asked = None
        self._place = optional(place)
        each(self._guard, root["guards"], ".guards")
        self.guards = tuple(self.table.log)
        self._proofs = _Proofs(self.table, self.guards)
        for fact in asked:  # that a divisor is not 0, say
            self._prove(fact, "a size", ".sizes")

    def size_from(self, value: object) -> AnySize:
        """A size: a number, or a text of the tables."""
        if type(value) is not str:
            return count_from(value)
        return self.word(value)

    def integer_from(self, value: object) -> AnySize:
        """An integer argument: a number, or a text of the tables."""
        return self.word(value) if type(value) is str else integer_from(value)

    def number_from(self, value: object) -> complex | SymInt:
        """A number of any of Python's types, or a text of the tables."""
        found = self.words.get(value) if type(value) is str else None
        return number_from(value) if found is None else found

    def word(self, value: str) -> SymInt:
        """The size of a text."""
        found = self.words.get(value)
        if found is None:
            raise Unread(value, "the text of one of the sizes of the file")
        return found

    def same_meta(self, a: object, b: object) -> bool:
        """Whether two metas, or tuples of them, are equal: proved from the guards of the file."""
        if always_same_meta(a, b):
            return True
        if isinstance(a, tuple) and isinstance(b, tuple):
            return len(a) == len(b) and all(map(self.same_meta, a, b))
        if not isinstance(a, TensorMeta) or not isinstance(b, TensorMeta):
            return False
        if a.dtype is not b.dtype or a.device != b.device or a.ndim != b.ndim:
            return False
        return all(map(self._equal, (*a.shape, *a.stride), (*b.shape, *b.stride)))

    def _equal(self, a: AnySize, b: AnySize) -> bool:
        if a is b:
            return True
        left, right = (a, b) if type(a) is SymInt else (b, a)
        return type(left) is SymInt and self.holds(SymBool(left, "==", right))

    def holds(self, fact: SymBool) -> bool:
        """Whether the guards of the file imply a comparison."""
        return self._proofs.follows(fact)

    def check(self, what: str) -> None:
        """Raises Unread if the guards of the file do not imply what was assumed since."""
        while len(self.table.log) > len(self.guards):
            self._prove(self.table.log.pop().fact, what)

    def _prove(self, fact: SymBool | Answer, what: str, at: str = "") -> None:
        if not self._proofs.follows(fact):
            raise Unread(Said(f"{what} that assumes {fact}"[:160]), _DECIDED, at)

    def end(self, graph: Graph) -> None:
        """Raises FormatError if the verified graph has other parameters than the file says, or
        assumes more than the guards."""
        free = parameters_of(graph)
        try:
            bound = {*graph.symbols} - {*free} | {*self.parameters}
            for name in self.table.symbols:
                if name not in bound:
                    got = Said(f"a list with {name}")
                    raise Unread(got, "a size of an input for each, or a parameter", ".symbols")
            for place, name in enumerate(self.parameters):
                if name not in free:
                    expected = "a symbol that no input gives, and that the graph does not compute"
                    raise Unread(name, expected, f".parameters[{place}].symbol")
            self.check("a graph")
        except Unread as error:
            raise error.error() from None

    # --- entries
    def _symbol(self, value: object) -> None:
        entry = record(value, _SYMBOL)
        name = field(entry, "symbol", text_from)
        if not NAME.fullmatch(name) or name in self.words:
            raise Unread(name, "a name such as s0, which no other symbol has", ".symbol")
        hint = field(entry, "hint", integer_from)
        least, most = (field(entry, key, optional(integer_from)) for key in ("least", "most"))
        if (least is not None and hint < least) or (most is not None and hint > most):
            raise Unread(hint, f"one of {least} to {most}", ".hint")
        self.words[name] = self.table.named_symbol(name, hint, (least, most))
        self.table.symbols[name].sources.extend(each(text_from, entry["sources"], ".sources"))
        if least != 2 or most is not None:
            self.table.weakest = True

    def _parameter(self, value: object) -> None:
        entry = record(value, _PARAMETER)
        name, role = field(entry, "symbol", text_from), field(entry, "role", role_from)
        if name not in self.table.symbols or name in self.parameters:
            raise Unread(name, "a symbol of the file, which no other entry has", ".symbol")
        if isinstance(role, SavedSize) and role.index != len(self.saved_sizes):
            raise Unread(str(role), f"saved_size_{len(self.saved_sizes)}, the next one", ".role")
        if not isinstance(role, (Primal, SavedSize, Size)) or role in self.parameters.values():
            raise Unread(str(role), "the role of a size, which no other entry has", ".role")
        self.parameters[name] = role
        if not isinstance(role, SavedSize):
            self.table.symbols[name].role = role

    @property
    def saved_sizes(self) -> tuple[str, ...]:
        """The names of the saved sizes, in order."""
        found = self.parameters.items()
        return tuple([name for name, role in found if isinstance(role, SavedSize)])

    def _text(self, value: object) -> None:
        text = text_from(value)
        if text in self.words:
            raise Unread(text, "a size that no other entry has")
        self.words[text] = _Expression(self.words, text).value()

    def _guard(self, value: object) -> None:
        is_answer = type(value) is dict and "function" in value
        entry = record(value, _ANSWER if is_answer else _GUARD)
        op, at = field(entry, "op", optional(text_from)), field(entry, "place", self._place)
        fact = answer_from(entry, self.integer_from, self.table) if is_answer else self._fact(entry)
        self.table.log.append(Assumption(fact, op, at))
        self.table.learn(fact)

    def _fact(self, entry: Json) -> SymBool:
        relation = field(entry, "relation", text_from)
        if relation not in RELATIONS:
            raise Unread(relation, f"one of {', '.join(RELATIONS)}", ".relation")
        left, right = (field(entry, side, self.integer_from) for side in ("left", "right"))
        if type(left) is not SymInt:
            raise Unread(entry["left"], "a size with a symbol", ".left")
        fact = SymBool(left, relation, right)
        if not fact.hint:
            raise Unread(Said(f"{fact}"[:100]), "a guard that holds for the hints")
        return fact


class _Proofs:
    """Whether the guards of a file imply a fact."""

    def __init__(self, table: SymbolTable, guards: tuple[Assumption, ...]) -> None:
        self._premises = Premises(table, guards)
        self._expansion: Expansion | None = None
        self._solver: Solver | None = None
        self._left = PROOF_SECONDS

    def follows(self, fact: SymBool | Answer) -> bool:
        """Whether it is proved; False for one without a proof, or when the time is over."""
        if isinstance(fact, Answer):
            return False
        claim, begin = Claim(fact.relation, fact.left, fact.right, True), time.thread_time()
        if self._expansion is None:
            self._expansion = Expansion(self._premises)
        try:
            if self._left <= 0:
                return False
            if self._expansion.proves(claim):
                return True
            if not is_installed():
                return False
            if self._solver is None:
                self._solver = Solver(self._premises)
            return self._solver.refutes(claim, begin + self._left) is False
        finally:
            self._left -= time.thread_time() - begin


class _Expression:
    """Evaluates the text of a size, by the grammar of printed ones."""

    def __init__(self, words: Mapping[str, SymInt], text: str) -> None:
        self.words, self.text = words, text

    def value(self) -> SymInt:
        """The size; Unread for another text."""
        tree = size_tree(self.text)
        try:
            found = None if tree is None else self._of(tree)
        except (KeyError, TypeError, AotliteError, ZeroDivisionError):
            found = None
        if type(found) is SymInt:
            return found
        raise Unread(self.text, "the text of a size, such as 2*s0 + 1, of symbols of the file")

    def _of(self, node: ast.AST) -> AnySize:
        """The value of a tree that `size_tree` has accepted."""
        rights = []
        while isinstance(node, ast.BinOp):  # a long sum is nested deeply on its left side
            rights.append((SIGNS[type(node.op)], node.right))
            node = node.left
        found = self._end(node)
        while rights:
            sign, right = rights.pop()
            found = _called(sign, found, self._of(right))
        return found

    def _end(self, node: ast.AST) -> AnySize:
        match node:
            case ast.Constant(value=int() as number):
                return number
            case ast.UnaryOp(operand=operand):
                return -self._of(operand)
            case ast.Call(func=ast.Name(id=name), args=[left, right]):
                return _called(name, self._of(left), self._of(right))
            case ast.Name(id=name):
                return self.words[name]
        raise TypeError(node)


def _called(sign: str, a: AnySize, b: AnySize) -> AnySize:
    if sign == "*" and terms_of(a) > 1 and terms_of(b) > 1:
        raise TypeError("printed products are expanded")
    if sign in ("+", "-", "*"):
        return a + b if sign == "+" else a - b if sign == "-" else a * b
    table = table_of((a, b))
    if table is None or (sign == "**" and type(b) is int):
        raise TypeError("neither operand is symbolic, or a printed power is a product")
    return table.call(sign, a, b)
