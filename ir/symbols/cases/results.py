"""What rules by cases were found to need, kept for later traces.

Ground floor. What a rule gives, and which assumptions that needs, is found by the rule, its
operands, and what is known of their symbols. A trace that asks the same of other symbols gets the
same answer: as a rule's results for numbers are kept for all functions. What is kept is in symbols
of no trace, so that no trace stays alive.
"""

# Note [results found with other hints]
#     x.amax(1) of f32[s0, s1], first with hints 3 and 4, and for a later region with 5 and 2
# A result is right wherever the facts hold that it needs. So a trace with other hints, which
# fulfil these facts, may take it: nothing is searched again. But its own search might find other
# facts for another result. What a function's guards are must not depend on what the process did
# before, so only traces of one function take such results (`RuleResults`), and these first.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import attrs

from aotlite.ir.symbols.assumption import NO_VALUE, Answer, Assumption
from aotlite.ir.symbols.calls import Call, Computed
from aotlite.ir.symbols.cases.parts import Fact, Open, SizePart, moved_fact, parts_of
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.polynomial import Atom, Symbol, Terms
from aotlite.ir.symbols.symint import SymBool, SymInt
from aotlite.ir.symbols.table import SymbolTable

__all__ = [
    "Known",
    "RuleResults",
    "Tried",
    "TriedSizes",
    "forget_results",
    "keep_known",
    "key_of",
    "known_for",
    "rules_of",
    "share_rules",
    "tried_before",
]

MOST = 4096
"""How many results are kept; then all are forgotten."""

Tried = dict[object, set[tuple[int, ...]]]
"""By the form of a result: the sizes for which some trace found it to hold."""
Known = tuple[tuple[str, ...], "Sequence[Fact]", object, Tried]
"""The names of symbols in the order of the key, and in these symbols the facts that a result
needs, and the result."""
Key = tuple[object, tuple["int | None", ...]]
"""What is asked, and the hints."""
_KNOWN: dict[Key, Known] = {}
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


RuleResults = dict[object, list[Known]]
"""By a question: what was found for it, by traces of one function."""
_OF_FUNCTION = ("rules of the function",)


def share_rules(table: SymbolTable, rules: RuleResults) -> SymbolTable:
    """The table itself, whose trace takes these results, and adds its own."""
    table.cache[_OF_FUNCTION] = rules
    return table


def rules_of(table: SymbolTable) -> RuleResults:
    """The results that the traces of the table's function share."""
    found: RuleResults = table.cache.setdefault(_OF_FUNCTION, {})
    return found


def known_for(key: Key, question: RuleQuestion) -> Known | None:
    """What was found for this question: by a trace of the same function with whatever hints, or by
    any trace with the same hints. None if nothing was. Note [results found with other hints]."""
    of_function = rules_of(question.table).setdefault(key[0], [])
    found = next((each for each in of_function if _is_fulfilled(each, question)), None)
    if found is None:
        found = _KNOWN.get(key)
        if found is not None:
            of_function.append(found)
    return found


def _is_fulfilled(known: Known, question: RuleQuestion) -> bool:
    """Whether the hints fulfil the facts that the result needs."""
    names, facts, *_ = known
    at = {}
    for name, symbol in zip(names, question.symbols.values(), strict=True):
        if symbol.hint is None:
            return False
        at[name] = symbol.hint
    return all(Assumption(fact, None, None).holds(at) for fact in facts)


@attrs.frozen(eq=False)
class TriedSizes:
    """For which sizes of these symbols results of a question were found to hold, by any trace."""

    names: tuple[str, ...]
    tried: Tried

    def of(self, result: object) -> set[tuple[int, ...]]:
        """The sizes for which this one was."""
        places = {name: place for place, name in enumerate(self.names)}
        return self.tried.setdefault(_form(result, places), set())


def keep_known(
    key: Key, question: RuleQuestion, facts: Sequence[Fact], result: object
) -> Tried | None:
    """Keeps what was found for this key, unless it needs more where nothing is known."""
    part = SizePart(question, ())
    try:
        moved = [moved_fact(fact, part.names) for fact in facts]
        result = part.put(result)
    except (Open, *NO_VALUE):
        return None
    if len(_KNOWN) >= MOST:
        _KNOWN.clear()
    needed = [fact for fact in moved if not isinstance(fact, bool)]
    if len(needed) != len(moved):
        return None
    tried: Tried = {}
    found = _KNOWN[key] = tuple(question.symbols), needed, result, tried
    rules_of(question.table).setdefault(key[0], []).append(found)
    return tried


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


def key_of(question: RuleQuestion) -> Key:
    """What questions have in common that differ in the names of symbols only, and their hints."""
    symbols = question.symbols.values()
    places = {symbol.name: place for place, symbol in enumerate(symbols)}
    rooms = tuple([(each.lower, each.upper) for each in symbols])
    facts = tuple([_form(fact, places) for fact in question.facts])
    asked = question.function, _form(question.operands, places), facts, rooms
    return asked, tuple([each.hint for each in symbols])


def _form(value: object, places: Mapping[str, int]) -> object:
    """The value with places for symbols; but for ints with their types, as 1 equals True, 1.0."""
    kind = type(value)
    if kind is int:
        return value
    if isinstance(value, tuple):
        return tuple([x if type(x) is int else _form(x, places) for x in value])
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
