"""What rules by cases were found to need, kept for later traces.

Ground floor. What a rule gives, and which assumptions that needs, is found by the rule, its
operands, and what is known of their symbols. A trace that asks the same of other symbols gets the
same answer: as a rule's results for numbers are kept for all functions. What is kept is in symbols
of no trace, so that no trace stays alive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from aotlite.ir.symbols.assumption import Answer
from aotlite.ir.symbols.calls import Call, Computed
from aotlite.ir.symbols.cases.parts import Fact, Open, SizePart, moved_fact, parts_of
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.polynomial import Atom, Symbol, Terms
from aotlite.ir.symbols.symint import SymBool, SymInt
from aotlite.ir.symbols.table import SymbolTable

__all__ = ["Known", "forget_results", "keep_known", "key_of", "known_for", "tried_before"]

MOST = 4096
"""How many results are kept; then all are forgotten."""

Known = tuple[tuple[str, ...], "Sequence[Fact]", object]
"""The names of symbols in the order of the key, and in these symbols the facts that a result
needs, and the result."""
_KNOWN: dict[object, Known] = {}
_TRIED: dict[object, set[tuple[int, ...]]] = {}


class RuleQuestion(Protocol):
    """A function of sizes, with what is known of their symbols."""

    operands: tuple[object, ...]
    facts: list[Fact]
    symbols: dict[str, Symbol]

    @property
    def table(self) -> SymbolTable:
        """The table of the trace."""

    @property
    def function(self) -> Callable[..., object]:
        """The function that asked."""


def known_for(key: object) -> Known | None:
    """What was found for this key; None if nothing was."""
    return _KNOWN.get(key)


def keep_known(key: object, question: RuleQuestion, facts: Sequence[Fact], result: object) -> None:
    """Keeps what was found for this key, unless it needs more where nothing is known."""
    part = SizePart(question, ())
    try:
        moved = [moved_fact(fact, part.names) for fact in facts]
        result = part.put(result)
    except (Open, ZeroDivisionError):
        return
    if len(_KNOWN) >= MOST:
        _KNOWN.clear()
    needed = [fact for fact in moved if not isinstance(fact, bool)]
    if len(needed) == len(moved):
        _KNOWN[key] = tuple(question.symbols), needed, result


def tried_before(value: object, names: Sequence[str]) -> set[tuple[int, ...]]:
    """The sizes of these symbols, in this order, for which some trace found a claim to hold; who
    tries more adds them."""
    if len(_TRIED) >= MOST:
        _TRIED.clear()
    return _TRIED.setdefault(_form(value, {name: place for place, name in enumerate(names)}), set())


def forget_results() -> None:
    """Forgets all: after a change of code."""
    _KNOWN.clear()
    _TRIED.clear()


def key_of(question: RuleQuestion) -> object:
    """What questions have in common that differ in the names of symbols only."""
    symbols = question.symbols.values()
    places = {symbol.name: place for place, symbol in enumerate(symbols)}
    rooms = tuple([(each.hint, each.lower, each.upper) for each in symbols])
    facts = tuple([_form(fact, places) for fact in question.facts])
    return question.function, _form(question.operands, places), facts, rooms


def _form(value: object, places: Mapping[str, int]) -> object:
    """The value with places for symbols; numbers with their types, as 1 equals True and 1.0."""
    kind = type(value)
    if isinstance(value, tuple):
        return tuple([_form(each, places) for each in value])
    if kind is SymInt:
        return _polynomial(value.terms, places)  # type: ignore[attr-defined]
    if kind is SymBool:
        return _form((value.left, value.relation, value.right), places)  # type: ignore[attr-defined]
    if kind is SizeFloat:
        return value.operation, _form(value.operands, places)  # type: ignore[attr-defined]
    if isinstance(value, Answer):
        return value.function, _form(value.operands, places), value.value
    parts = parts_of(value)
    if parts is None:
        return kind, value
    if getattr(value, "table", None) is None:
        return value
    return "meta", *[_form(each, places) for each in parts]


def _polynomial(terms: Terms, places: Mapping[str, int]) -> object:
    return frozenset([(tuple([_atom(a, places) for a in m]), c) for m, c in terms.items()])


def _atom(atom: Atom, places: Mapping[str, int]) -> object:
    if isinstance(atom, Computed):
        return atom.operation, _form(atom.operands, places)
    if isinstance(atom, Call):
        return atom.function, _form(atom.left, places), _form(atom.right, places)
    return places[str(atom)]
