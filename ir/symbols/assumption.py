"""`Assumption`: a comparison of symbolic sizes that the hints decided while a graph was traced.

Ground floor. The graph is valid for all sizes for which its assumptions hold, so they become
guards. Spec: `specs/symbols.md`.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any, Final, Protocol

import attrs

from aotlite.ir.provenance.location import Location, place_of
from aotlite.ir.symbols.polynomial import subtract
from aotlite.ir.symbols.symint import RELATIONS, SymBool, SymInt

__all__ = [
    "NO_VALUE",
    "Assumption",
    "Texts",
    "at_places",
    "concrete",
    "marked",
    "marked_strides",
    "planned_for",
    "printing",
    "unassuming",
    "unmarked",
    "with_hints",
]


NO_VALUE: Final = (ArithmeticError, ValueError)
"""What a fact or an expression raises where it has no value: a divisor is 0, a root of less."""


class TraceState(Protocol):
    """The fields of a `SymbolTable` that this module changes."""

    closed: bool
    events: Any
    atoms: list[Any]
    symbols: dict[str, Any]
    interned: dict[int, SymInt]
    namesakes: dict[Any, SymInt]


@attrs.frozen(repr=False)
class Assumption:
    """A fact about symbols, with the op and the user's line that needed it."""

    fact: SymBool | Answer
    op: str | None
    location: Location | None

    @property
    def text(self) -> str:
        """`s0 >= 4`; `not (s0 == 0 and s1 == 1)` of a fact that excludes a few sizes."""
        return str(self.fact) if isinstance(self.fact, Answer) else _said(self.fact)

    @property
    def specializes(self) -> bool:
        """Whether it fixes an expression to one value: `s0 == 4`."""
        fact = self.fact
        return isinstance(fact, SymBool) and fact.relation == "==" and isinstance(fact.right, int)

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether it is true where the symbols have these values, by name."""
        try:
            if isinstance(self.fact, Answer):
                return self.fact.holds(values)
            left, right = concrete((self.fact.left, self.fact.right), values)
            if type(left) is float or type(right) is float:
                return False  # an earlier assumption, that no exponent is negative, fails then
            return RELATIONS[self.fact.relation](left, right)
        except NO_VALUE:  # an earlier assumption fails then: a divisor is 0
            return False

    def __repr__(self) -> str:
        """`s0 >= 4 (slice, model.py:12 in loss: y = x[3:])`."""
        place = None if self.location is None else str(place_of(self.location))
        asked = ", ".join(word for word in (self.op, place) if word)
        return f"{self.text} ({asked})" if asked else self.text


@attrs.frozen(repr=False)
class Answer:
    """The fact that a function of plain ints returns `value` for these operands."""

    function: Callable[..., Any]
    operands: tuple[Any, ...]
    value: Any

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether the function returns it where the symbols have these values."""
        return bool(self.function(*concrete(self.operands, values)) == self.value)

    def __repr__(self) -> str:
        said = getattr(self.function, "said", None)
        if said is not None:
            return str(said(self.operands, self.value))
        operands = ", ".join(map(str, self.operands))
        return f"{self.function.__name__}({operands}) is {self.value}"


# Note [facts on several sizes at once]
#     not (s0 == 0 and s1 == 1)              # s0 + (s1 - 1)**2 != 0, and in the log:
#     s1*s1 + s0 - 2*s1 != -1
# A rule may hold for all sizes but a few (`cases`). One comparison says so: of a sum of sizes, each
# to be 0, and of squares, each 0 at one value. The sum is 0 where all of them are.
def _said(fact: SymBool) -> str:
    values = _joint_values(fact) if fact.relation in ("==", "!=") else {}
    if len(values) < 2:
        return str(fact)
    all_of = " and ".join([f"{name} == {value}" for name, value in values.items()])
    return all_of if fact.relation == "==" else f"not ({all_of})"


def _joint_values(fact: SymBool) -> dict[str, int]:
    """The values of the symbols at which alone both sides are equal, in the order of their numbers;
    empty where the fact does not say that."""
    table = fact.left.table
    rest = subtract(table.terms_of(fact.left), table.terms_of(fact.right))
    symbols = {atom: 0 for monomial in rest for atom in monomial}
    constant = rest.pop((), 0)
    for atom in symbols:
        squares, once = rest.pop((atom, atom), 0), rest.pop((atom,), 0)
        if squares == 1 and once <= 0 and once % 2 == 0:
            symbols[atom] = -once // 2
        elif (squares, once) != (0, 1) or atom.lower is None or atom.lower < 0:
            return {}
    is_sum = not rest and constant == sum([value**2 for value in symbols.values()])
    found = sorted(symbols.items(), key=lambda each: int(each[0].number)) if is_sum else []
    return {str(atom): value for atom, value in found}


def concrete(value: object, values: Mapping[str, int]) -> Any:
    """A size, a tuple or a meta, with its symbols replaced by these values.

    Anything else is returned itself.

    >>> from aotlite.ir.symbols.table import SymbolTable
    >>> s0 = SymbolTable().size(6, "x.shape[0]")
    >>> concrete((s0 // 2, 3), {"s0": 9})
    (4, 3)
    """
    kind = type(value)
    if kind is int or kind is type:
        return value
    if kind is SymInt:
        return value.table.evaluate(value, values)  # type: ignore[attr-defined]
    if kind is tuple:
        return tuple([each if type(each) is int else concrete(each, values) for each in value])  # type: ignore[attr-defined]
    put = getattr(value, "concrete", None)
    return value if put is None else put(values)


# ------------------------------------------------------------------------------------ other hints
# A tape with symbols is kept for derivatives of a backward. They are recorded late, for the sizes
# of a call, which need not be those that were traced (DYN-10).
_STATE: Final = (
    *("log", "interned", "truths", "open", "cache", "facts", "namesakes", "_results", "_calls"),
    "atoms",
)
"""The fields of a table that a trace changes."""


@contextmanager
def with_hints(table: TraceState, values: Mapping[str, int]) -> Iterator[None]:
    """A block in which the hints are these values, by name of their symbols.

    The assumptions made so far must hold for them. What is assumed in the block holds for these
    values alone, so it is forgotten at the end: who uses a result of the block puts the numbers in.
    """
    kept = [(name, copy.copy(getattr(table, name))) for name in _STATE]
    rooms = [(atom, atom.lower, atom.upper) for atom in table.atoms]
    events = len(table.events)
    hints = [(symbol, symbol.hint) for symbol in table.symbols.values()]
    _set_hints(table, [(table.symbols[name], value) for name, value in values.items()])
    closed, table.closed = table.closed, False
    try:
        yield
    finally:
        table.closed = closed
        for name, value in kept:
            setattr(table, name, value)
        table.events.drop_from(events)
        for atom, lower, upper in rooms:
            atom.lower, atom.upper = lower, upper
        _set_hints(table, hints)


@contextmanager
def planned_for(table: TraceState, values: Mapping[str, int]) -> Iterator[None]:
    """A block in which the hints are these values, by name of their symbols: for code that assumes
    nothing, and takes hints for questions of speed."""
    hints = [(symbol, symbol.hint) for symbol in table.symbols.values()]
    _set_hints(table, [(table.symbols[name], value) for name, value in values.items()])
    try:
        yield
    finally:
        _set_hints(table, hints)


def _set_hints(table: TraceState, hints: Iterable[tuple[Any, int | None]]) -> None:
    for symbol, hint in hints:
        symbol.hint = hint
    for number in (*table.interned.values(), *table.namesakes.values()):
        number.forget_hint()


# ------------------------------------------------------------------------------------------ texts
# An error of eager's backward is recorded once, and raised for many sizes. While it is made, sizes
# are printed between two marks: the text can be read again with numbers in those places.
class Texts(Enum):
    """How symbolic sizes are printed."""

    SYMBOLS = "symbols"
    """As expressions: `s0 + 1`."""
    HINTS = "hints"
    """As numbers, those of the call that is traced: the errors of a captured function."""
    PLACES = "places"
    """As expressions between marks, for `at_places`."""


class Printer(Protocol):
    """The field of a `SymbolTable` that this module changes."""

    texts: Texts


@contextmanager
def printing(table: Printer, texts: Texts) -> Iterator[None]:
    """A block in which sizes are printed so."""
    outer, table.texts = table.texts, texts
    try:
        yield
    finally:
        table.texts = outer


class Looked(TraceState, Printer, Protocol):
    """The fields of a `SymbolTable` for `unassuming`."""

    @property
    def hints(self) -> Mapping[str, int]:
        """The hint of each symbol that has one."""


@contextmanager
def unassuming(table: Looked | None) -> Iterator[None]:
    """A block for who looks at a trace: hints answer what it asks, and nothing of it is kept.

    None: there are no symbols, and nothing changes.
    """
    if table is None:
        yield
        return
    with with_hints(table, table.hints), printing(table, Texts.SYMBOLS):
        yield


# Code points for private use, which no text of a library has.
_OPEN, _CLOSE = "\ue5f0", "\ue5f1"
_PLACE: Final = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]*){_CLOSE}")
_BEFORE, _BEHIND = "\ue5f2", "\ue5f3"
_STRIDES: Final = re.compile(f"{_BEFORE}(.*?){_BEHIND}")
_SHAPE_AND_STRIDES: Final = re.compile(rf"\[([^][]*)\]{_BEFORE}\[([^][]*)\]{_BEHIND}")
_FUNCTIONS = (max, min, abs, int, float, round)
_SCOPE: dict[str, object] = {"math": math, **{each.__name__: each for each in _FUNCTIONS}}


def marked(expression: str) -> str:
    """The expression between marks."""
    return f"{_OPEN}{expression}{_CLOSE}"


def marked_strides(text: str) -> str:
    """The strides that follow a shape in a text, between marks: numbers may leave them out."""
    return f"{_BEFORE}{text}{_BEHIND}"


def unmarked(text: str) -> str:
    """The text with the expressions that were between marks, for people."""
    return _STRIDES.sub(r"\1", _PLACE.sub(r"\1", text))


def at_places(text: str, values: Mapping[str, int]) -> str:
    """The text with numbers for the expressions between marks, at these values of symbols.

    >>> at_places(f"shape is ({marked('s0 // 2 + 1')}, 3)", {"s0": 6})
    'shape is (4, 3)'
    """
    if _OPEN not in text:
        return text
    scope = {"__builtins__": {}, **_SCOPE, **values}
    text = _PLACE.sub(lambda found: str(eval(found[1], scope)), text)
    return _SHAPE_AND_STRIDES.sub(_shown, text)


def _shown(found: re.Match[str]) -> str:
    """A shape in numbers, and its strides where they are not the contiguous ones."""
    shape, stride = [tuple(map(int, re.findall(r"-?\d+", each))) for each in found.groups()]
    step = 1
    for size, each in zip(reversed(shape), reversed(stride), strict=True):
        if size != 1 and each != step and 0 not in shape:
            return f"[{found[1]}][{found[2]}]"
        step *= size
    return f"[{found[1]}]"
