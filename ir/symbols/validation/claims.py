"""`Claim`: an event of a trace, as a statement that is true or false where symbols have values.

Ground floor. What decides claims shares no code with what made them: here are values of
expressions, in Python's own integers (DYN-13); `expansion` and `solver` have proofs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from aotlite.ir.errors import AotliteError
from aotlite.ir.provenance.location import Location, place_of
from aotlite.ir.symbols.assumption import Assumption, concrete
from aotlite.ir.symbols.calls import Computed, text_of
from aotlite.ir.symbols.events import Claimed, Events
from aotlite.ir.symbols.polynomial import Symbol, Terms, add, multiply, subtract
from aotlite.ir.symbols.symint import SymBool, SymInt
from aotlite.ir.symbols.table import SymbolTable

__all__ = [
    "BY_CASES",
    "CLAIMED",
    "Claim",
    "Evaluation",
    "Operand",
    "Premises",
    "Values",
    "claims_of",
]

Values: TypeAlias = Mapping[str, int]
Operand: TypeAlias = "int | SymInt | Terms"
"""A number, or the terms of a polynomial."""


def _power(base: int, exponent: int) -> float:
    if abs(base) > 1 and exponent > _MOST_BITS:
        raise OverflowError(f"{base}**{exponent} is not computed, expected a smaller exponent")
    power: float = base**exponent
    return power


BY_CASES = "by cases"
"""The function of a claim that a function of sizes, such as a meta rule, has this result."""
_MOST_BITS = 4096
_NO_VALUE = (ZeroDivisionError, ValueError)
"""Raised where an expression has no value; ValueError by shifts and powers by less than 0."""

RELATIONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
CLAIMED: Final[Mapping[str, Callable[[int, int], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "**": _power,
    "max": max,
    "min": min,
    "abs": lambda a, _: abs(a),
    "<<": operator.lshift,
    ">>": operator.rshift,
    "&": operator.and_,
    **RELATIONS,
}
"""Python's meaning of every function of an event."""


class Evaluation:
    """The values of sizes where the symbols have these values, by name."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self._calls: dict[Any, int] = {}

    def of(self, operand: Operand) -> int:
        """The value. Raises ZeroDivisionError as Python does, ValueError for a power that is no
        integer, and OverflowError for a number that is too large."""
        if isinstance(operand, int):
            return operand
        terms = operand.terms if isinstance(operand, SymInt) else operand
        total = 0
        for monomial, c in terms.items():
            for atom in monomial:
                c *= self._of_atom(atom)
            total += c
        return total

    def _of_atom(self, atom: Any) -> int:
        if isinstance(atom, Symbol):
            return self.values[atom.name]
        found = self._calls.get(atom)
        if found is None:
            if isinstance(atom, Computed):
                value: float = atom.value(self.values)
            else:
                value = CLAIMED[atom.function](self.of(atom.left), self.of(atom.right))
            if not isinstance(value, int):
                raise ValueError(f"{atom} is {value}, expected an exponent of at least 0")
            found = self._calls[atom] = value
        return found

    def holds(self, fact: SymBool) -> bool:
        """Whether a comparison is true; where a side has no value it is not."""
        try:
            return RELATIONS[fact.relation](self.of(fact.left), self.of(fact.right))
        except _NO_VALUE:
            return False


@attrs.frozen(eq=False)
class Claim:
    """The statement that a function of two operands has this result."""

    function: str
    left: Any
    """An `Operand`; where the function is "assumed", an assumption; where it is "by cases", a
    function of sizes, and its operands."""
    right: Operand
    result: Any
    """A bool for a comparison; else a number, symbolic or not."""
    events: Events | None = None
    index: int = -1
    """Its event in `events`."""

    def holds(self, at: Evaluation) -> bool:
        """Whether it is true at these values; where a side has no value it is not.

        Raises OverflowError if that would take too large a number.
        """
        try:
            if self.function == "assumed":
                assumption: Assumption = self.left
                return assumption.holds(at.values)
            if self.function == BY_CASES:
                return self.gives(concrete(self.left[1], at.values), at.values)
            found = CLAIMED[self.function](at.of(self.left), at.of(self.right))
            result = self.result
            return bool(found == (at.of(result) if isinstance(result, SymInt) else result))
        except _NO_VALUE:
            return False

    def gives(self, operands: Iterable[object], values: Values) -> bool:
        """Whether its function gives for these operands the result at these values, and does not
        raise."""
        try:
            return bool(self.left[0](*operands) == concrete(self.result, values))
        except (AotliteError, OverflowError, *_NO_VALUE):
            return False

    def found(self, at: Evaluation) -> str:
        """What is so at these values, in words: `7 % 2 is 1, and 0 was claimed`."""
        if self.function == "assumed":
            return f"{self.left.text} is not so"
        if self.function == BY_CASES:
            return f"{self.text} is not so"
        try:
            left, right = at.of(self.left), at.of(self.right)
            is_so = CLAIMED[self.function](left, right)
            claimed = at.of(self.result) if isinstance(self.result, SymInt) else self.result
        except _NO_VALUE as error:
            return f"{self._source} raises {type(error).__name__}"
        return f"{_applied(self.function, left, right)} is {is_so}, and {claimed} was claimed"

    @property
    def text(self) -> str:
        """`s0 % 2 is 0`."""
        if self.function == "assumed":
            return str(self.left.text)
        if self.function == BY_CASES:
            name = getattr(self.left[0], "__name__", "a rule")
            return f"{name}({', '.join(map(str, self.left[1]))}) is {self.result}"
        if self.result is True:
            return self._source
        return f"{self._source} is {self.result}"

    @property
    def _source(self) -> str:
        left, right = _text(self.left), _text(self.right)
        if self.function not in RELATIONS:
            left, right = _inner(left), _inner(right)
        return _applied(self.function, left, right)

    @property
    def asker(self) -> tuple[str | None, Location | None]:
        """The op whose rule asked, and the user's line."""
        return (None, None) if self.events is None else self.events.asker(self.index)

    @property
    def asked(self) -> str:
        """The op and the line: `slice, model.py:12 in loss: y = x[3:]`."""
        op, location = self.asker
        place = None if location is None else str(place_of(location))
        return ", ".join(word for word in (op, place) if word)

    def __repr__(self) -> str:
        return f"{self.text} ({self.asked})" if self.asked else self.text


def _text(operand: Operand) -> str:
    return str(operand) if isinstance(operand, (int, SymInt)) else text_of(operand)


def _inner(text: str) -> str:
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _applied(function: str, left: object, right: object) -> str:
    if function in ("max", "min"):
        return f"{function}({left}, {right})"
    return f"abs({left})" if function == "abs" else f"{left} {function} {right}"


def claims_of(table: SymbolTable) -> list[Claim]:
    """What the trace claimed so far, in order, each once."""
    found: dict[object, Claim] = {}
    events = table.events
    for index, event in enumerate(list(events)):
        said = _said_by(event) if isinstance(event, SymInt) else (event,)
        for function, left, right, result in said:
            key = function, _key(left), _key(right), _key(result)
            if key not in found:
                found[key] = Claim(function, left, right, result, events, index)
    return list(found.values())


def _said_by(number: SymInt) -> tuple[Claimed, ...]:
    made = _SIGNS[number.function], number.left, number.right, number
    return (made,) if number.least is None else (made, (">=", number, number.least, True))


def _key(operand: object) -> object:
    if type(operand) is SymInt:
        return SymInt, id(operand)  # the table keeps it; its hash would ask whose code it is for
    return frozenset(operand.items()) if isinstance(operand, dict) else operand


_SIGNS: Final[Mapping[object, str]] = {add: "+", subtract: "-", multiply: "*"}


@attrs.frozen(eq=False)
class Premises:
    """What claims may rest on: the guards, and the ranges that the symbols were declared with."""

    table: SymbolTable
    guards: Sequence[Assumption]

    @property
    def symbols(self) -> Mapping[str, Symbol]:
        """The symbols by name."""
        return self.table.symbols

    def admit(self, values: Values) -> bool:
        """Whether the ranges have these values, and all guards hold."""
        return self.in_range(values) and not self.failed(Evaluation(values), 1)

    def in_range(self, values: Values) -> bool:
        """Whether each value is within the range of its symbol."""
        for name, value in values.items():
            low, high = self.symbols[name].room
            if low is not None and value < low or high is not None and value > high:
                return False
        return True

    def failed(self, at: Evaluation, most: int) -> list[Assumption]:
        """The first guards that do not hold at these values, at most so many."""
        found: list[Assumption] = []
        for guard in self.guards:
            fact = guard.fact
            if not (at.holds(fact) if isinstance(fact, SymBool) else guard.holds(at.values)):
                found.append(guard)
                if len(found) == most:
                    break
        return found
