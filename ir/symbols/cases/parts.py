"""`SizePart`: a table of its own in which the symbols have a part of their values.

Ground floor. `fewest` runs a function in it to see what the function gives there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Protocol, TypeAlias, TypeVar, cast

from aotlite.ir.symbols.assumption import NO_VALUE, Answer, concrete
from aotlite.ir.symbols.calls import Call, Computed
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.polynomial import Atom, Symbol
from aotlite.ir.symbols.symint import RELATIONS, SymBool, SymInt
from aotlite.ir.symbols.table import SymbolTable

__all__ = [
    "Fact",
    "Open",
    "Room",
    "SizePart",
    "has_calls",
    "moved_fact",
    "named",
    "names_in",
    "no_matter",
    "parts_of",
    "raise_open",
]

T = TypeVar("T")
Fact: TypeAlias = "SymBool | Answer"
Room: TypeAlias = "int | tuple[int | None, int | None]"
"""A value, or bounds."""

_ALL: Mapping[str, Room] = MappingProxyType({})


class Asking(Protocol):
    """Whose symbols a part has."""

    @property
    def table(self) -> SymbolTable:
        """The table of the call."""

    @property
    def symbols(self) -> Mapping[str, Symbol]:
        """Those of the operands, and of what is assumed of these."""


class Open(BaseException):
    """A question has no answer for all values: no `Exception`, which rules might catch."""

    def __init__(self, fact: Fact) -> None:
        self.fact = fact


def raise_open(fact: Fact) -> None:
    raise Open(fact)


def no_matter(fact: Fact) -> None:
    pass


class SizePart:
    """A table of its own, in which symbols have a part of their values, and some facts hold."""

    def __init__(
        self,
        run: Asking,
        facts: Iterable[Fact],
        rooms: Mapping[str, Room] = _ALL,
        *,
        cases: Iterable[Fact] = (),
        asked: Callable[[Fact], object] = raise_open,
    ) -> None:
        self.table = SymbolTable(locate=_nowhere)
        self.table.shown_as_ints = run.table.shown_as_ints
        self.table.asked = asked
        self.names = named({n: self._symbol(s, rooms.get(n)) for n, s in run.symbols.items()})
        # A fact with a division by 0 is false as an assumption, and says nothing as a case.
        self.possible = all(self.learn(fact, defined=False) for fact in facts)
        self.possible &= all(self.learn(fact, defined=True) for fact in cases)

    def _symbol(self, symbol: Symbol, room: Room | None) -> int | SymInt:
        if isinstance(room, int):
            return room
        room = (symbol.lower, symbol.upper) if room is None else room
        return self.table.named_symbol(symbol.name, symbol.hint, room)

    def put(self, value: T) -> T:
        """The value, in the symbols of this table."""
        moved: T = concrete(value, self.names)
        return moved

    def learn(self, fact: Fact, *, defined: bool = False) -> bool:
        """Makes a fact known; returns False if it cannot be, and `defined` if it has no value."""
        try:
            moved = moved_fact(fact, self.names)
        except NO_VALUE:
            return defined
        if isinstance(moved, bool):
            return moved
        known = self.table.known(moved) if isinstance(moved, SymBool) else None
        if known is None:
            self.table.learn(moved)
        return known is not False

    def settled(self) -> dict[str, int]:
        """The value of each symbol that facts leave one."""
        sizes = {name: size for name, size in self.names.items() if isinstance(size, SymInt)}
        ranges = {name: self.table.range(size) for name, size in sizes.items()}
        return {n: low for n, (low, high) in ranges.items() if low == high and low is not None}

    def knows(self, fact: Fact) -> bool:
        """Whether a fact follows from those that are known."""
        try:
            moved = moved_fact(fact, self.names)
        except NO_VALUE:
            return False
        return isinstance(moved, SymBool) and self.table.known(moved) is True or moved is True


def _nowhere() -> None:
    """No line: nobody reads the events of a part."""


def named(sizes: Mapping[str, int | SymInt]) -> Mapping[str, int]:
    """Sizes by name; symbols are int to type checkers."""
    return cast("Mapping[str, int]", sizes)


def moved_fact(fact: Fact, names: Mapping[str, int]) -> Fact | bool:
    """The fact about the symbols of another table; a bool where it is decided there."""
    if isinstance(fact, Answer):
        return Answer(fact.function, concrete(fact.operands, names), fact.value)
    left, right = concrete(fact.left, names), concrete(fact.right, names)
    if isinstance(left, SymInt):
        return SymBool(left, fact.relation, right)
    if isinstance(right, SymInt):
        return SymBool(right, _TURNED[fact.relation], left)
    return RELATIONS[fact.relation](left, right)


_TURNED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def names_in(value: object) -> set[str]:
    """The symbols in a fact, a size or a meta, or in a tuple of them."""
    found: set[str] = set()
    waiting = [value]
    for each in waiting:
        kind = type(each)
        if kind is SymInt:
            found |= _names_of(each)  # type: ignore[arg-type]
        elif kind is tuple:
            waiting += each  # type: ignore[arg-type]
        elif kind is SymBool:
            waiting += (each.left, each.right)  # type: ignore[attr-defined]
        elif kind is SizeFloat or kind is Answer:
            waiting += each.operands  # type: ignore[attr-defined]
        elif kind is not int and getattr(each, "table", None) is not None:
            waiting += parts_of(each) or ()
    return found


def _names_of(size: SymInt) -> frozenset[str]:
    """The symbols in a size, which keeps them."""
    if size.names is None:
        atoms = [atom for monomial in size.terms for atom in monomial]
        size.names = frozenset().union(*map(_names_in_atom, atoms))
    return size.names


def _names_in_atom(atom: Atom) -> set[str]:
    if isinstance(atom, Call):
        return names_in((atom.left, atom.right))
    return names_in(atom.operands) if isinstance(atom, Computed) else {str(atom)}


def has_calls(value: object) -> bool:
    """Whether a size, a meta, or one in a tuple of them, has a part that is no polynomial."""
    if type(value) is tuple:
        return any(map(has_calls, value))
    if type(value) is SymInt:
        atoms = [atom for monomial in value.terms for atom in monomial]
        return any(isinstance(atom, (Call, Computed)) for atom in atoms)
    parts = parts_of(value)
    return parts is not None and has_calls(parts)


class _Meta(Protocol):
    """What is read of a `TensorMeta`, a class of a higher floor."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: object
    device: object


def parts_of(value: object) -> tuple[object, ...] | None:
    """All that a meta is compared by; None for anything else."""
    if not hasattr(value, "stride"):
        return None
    meta = cast("_Meta", value)
    return meta.shape, meta.stride, meta.dtype, meta.device
