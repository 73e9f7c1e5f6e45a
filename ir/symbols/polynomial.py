"""Integer polynomials over atoms: the fast layer beneath symbolic sizes.

Ground floor, imports nothing of aotlite. A polynomial is a dict from monomials to nonzero
coefficients. A monomial is a tuple of atoms in ascending order, with an atom once for each power:

    3*s0*s0 - s1 + 2        {(s0, s0): 3, (s1,): -1, (): 2}

An atom is a `Symbol` or a `Call`; of that this module knows the range only. Every function returns
new dicts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TypeAlias

__all__ = [
    "Atom",
    "Monomial",
    "Range",
    "Symbol",
    "Terms",
    "add",
    "bounds",
    "common_monomial",
    "divide",
    "evaluate",
    "multiply",
    "scaled",
    "substitute",
    "subtract",
]


class Atom:
    """An unknown integer: `lower <= value <= upper`, None for no bound.

    Atoms are compared by identity. Bounds only become tighter.
    """

    __slots__ = ("lower", "number", "point", "upper")

    def __init__(self, number: int, lower: int | None, upper: int | None) -> None:
        self.number = number
        self.lower = lower
        self.upper = upper
        self.point = point(number)
        """The value of this atom in `SymInt.key`, by which polynomials are found."""


@functools.cache
def point(number: int) -> int:
    """A large pseudorandom integer for atom `number`, ascending with it."""
    return (number << 61) + pow(0x2545F4914F6CDD1D, number + 1, (1 << 61) - 1)


class Symbol(Atom):
    """An unknown size: its name, its hint (the value in the traced call), and its source.

    `hint` is None where no value is known before the graph runs (DYN-5).
    """

    __slots__ = ("hint", "name", "role", "room", "sources")

    def __init__(self, number: int, name: str, hint: int | None, room: Range) -> None:
        super().__init__(number, *room)
        self.name = name
        self.hint = hint
        self.room = room
        """The range that was declared; what is assumed later narrows only the atom's bounds."""
        self.sources: list[str] = []
        """The inputs with this size, such as `x.shape[0]`; several with `duck_shape`."""
        self.role: object = None
        """The role of the symbol where it is a parameter of a graph (GRA-16); None without one."""

    def __str__(self) -> str:
        return self.name


Monomial: TypeAlias = tuple[Atom, ...]
Terms: TypeAlias = Mapping[Monomial, int]
Range: TypeAlias = tuple[int | None, int | None]

_BY_NUMBER = attrgetter("number")


def add(a: Terms, b: Terms, factor: int = 1) -> dict[Monomial, int]:
    """a + factor * b."""
    result = dict(a)
    for monomial, coefficient in b.items():
        total = result.get(monomial, 0) + factor * coefficient
        if total:
            result[monomial] = total
        else:
            result.pop(monomial, None)
    return result


def subtract(a: Terms, b: Terms) -> dict[Monomial, int]:
    """a - b."""
    return add(a, b, -1)


def scaled(a: Terms, factor: int) -> dict[Monomial, int]:
    """factor * a."""
    return {monomial: factor * c for monomial, c in a.items()} if factor else {}


def multiply(a: Terms, b: Terms) -> dict[Monomial, int]:
    """a * b."""
    result: dict[Monomial, int] = {}
    for left, c in a.items():
        for right, d in b.items():
            # Most products are by constants, or of single symbols.
            both = tuple(sorted(left + right, key=_BY_NUMBER)) if left and right else left or right
            total = result.get(both, 0) + c * d
            if total:
                result[both] = total
            else:
                result.pop(both, None)
    return result


def evaluate(terms: Terms, value: Callable[[object], int]) -> int:
    """The value where each atom has `value(atom)`."""
    total = 0
    for monomial, c in terms.items():
        for atom in monomial:
            c *= value(atom)
        total += c
    return total


def substitute(terms: Terms, values: Mapping[Atom, Terms]) -> Terms:
    """The polynomial with atoms replaced by polynomials."""
    if not any(atom in values for monomial in terms for atom in monomial):
        return terms
    result: dict[Monomial, int] = {}
    for monomial, c in terms.items():
        product: Terms = {(): c}
        for atom in monomial:
            product = multiply(product, values.get(atom, {(atom,): 1}))
        result = add(result, product)
    return result


def bounds(terms: Terms) -> Range:
    """(lower, upper) bounds of the polynomial; None for a side where none is found.

    Each atom is replaced by its distance from one of its bounds, which is not negative. For sizes
    this finds tighter bounds than interval arithmetic: `s0*s1 - s1` is at least 2 for sizes of at
    least 2.
    """
    low: int | None = 0
    high: int | None = 0
    for monomial, c in terms.items():  # of a sum the extremes are where each atom is at a bound
        if not monomial:
            low = None if low is None else low + c
            high = None if high is None else high + c
            continue
        if len(monomial) > 1:
            return _bounds_of_products(terms)
        least, most = monomial[0].lower, monomial[0].upper
        if c < 0:
            least, most = most, least
        low = None if low is None or least is None else low + c * least
        high = None if high is None or most is None else high + c * most
    return low, high


def _bounds_of_products(terms: Terms) -> Range:
    """`bounds` of a polynomial that is not linear."""
    counted: dict[Atom, Terms] = {}
    room: dict[Atom, int | None] = {}
    for monomial in terms:
        for atom in monomial:
            if atom in counted:
                continue
            if atom.lower is not None:
                counted[atom] = {(): atom.lower, (atom,): 1} if atom.lower else {(atom,): 1}
                room[atom] = None if atom.upper is None else atom.upper - atom.lower
            elif atom.upper is not None:
                counted[atom] = {(): atom.upper, (atom,): -1}
                room[atom] = None
            else:
                return None, None
    return _bounds_of_counts(substitute(terms, counted), room)


def _bounds_of_counts(terms: Terms, room: Mapping[Atom, int | None]) -> Range:
    """`bounds` where each atom lies between 0 and `room[atom]`; None for no limit."""
    low: int | None = terms.get((), 0)
    high = low
    for monomial, c in terms.items():
        if not monomial:
            continue
        most: int | None = 1
        for atom in monomial:
            limit = room[atom]
            most = None if most is None or limit is None else most * limit
        if c > 0:
            high = None if high is None or most is None else high + c * most
        else:
            low = None if low is None or most is None else low + c * most
    return low, high


def common_monomial(terms: Terms) -> Monomial:
    """The largest monomial that divides every term."""
    monomials = iter(terms)
    common = list(next(monomials))
    for monomial in monomials:
        rest = list(monomial)
        kept = []
        for atom in common:
            if atom in rest:
                rest.remove(atom)
                kept.append(atom)
        common = kept
    return tuple(common)


def divide(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """The monomial without the atoms of `divisor`; None if it lacks one of them."""
    rest = list(monomial)
    for atom in divisor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)
