"""What follows about symbolic ints from their ranges and from what was assumed before.

Ground floor. A `Facts` answers True or False only where every value that the symbols may have gives
that answer; None where it cannot tell. It never looks at a hint. Spec: `specs/symbols.md`.
"""

from __future__ import annotations

import math
from typing import TypeAlias

from aotlite.ir.symbols.calls import Call, without_quotient
from aotlite.ir.symbols.polynomial import (
    Atom,
    Monomial,
    Range,
    Terms,
    add,
    bounds,
    common_monomial,
    divide,
    scaled,
    substitute,
)

__all__ = ["Facts", "equation"]

_Key: TypeAlias = frozenset[tuple[Monomial, int]]

_DEPTH = 4
"""So many calls are taken apart in one question."""


class Facts:
    """What is known beyond the atoms' own ranges. Facts are added, never taken back."""

    __slots__ = ("_least", "_nonzero", "_values")

    def __init__(self) -> None:
        self._values: dict[Atom, Terms] = {}
        """Atoms that equal a polynomial of others; no chain comes back to where it began."""
        self._least: dict[_Key, int] = {}
        """Polynomials without constant -> what they are not below."""
        self._nonzero: set[_Key] = set()

    # -------------------------------------------------------------------------------- questions
    def nonnegative(self, terms: Terms) -> bool | None:
        """Whether the polynomial is 0 or above.

        Which is that its negative is not 1 or above: one of both may have factors to leave out.
        """
        terms = self._settled(terms)
        low, high = bounds(terms)
        if low is not None and low >= 0:
            return True
        if high is not None and high < 0:
            return False
        found = self._sign(_positive_content(terms), _DEPTH)
        if found is not None:
            return found
        above = self._sign(_positive_content(add({(): -1}, terms, -1)), _DEPTH)
        return None if above is None else not above

    def zero(self, terms: Terms) -> bool | None:
        """Whether the polynomial is 0."""
        terms = self._settled(terms)
        low, high = bounds(terms)
        if low is not None and low > 0 or high is not None and high < 0:
            return False
        terms = _content(terms)
        if _constant(terms):
            return not terms
        if _key(terms) in self._nonzero:
            return False
        at_least, at_most = self._sign(terms, _DEPTH), self._sign(scaled(terms, -1), _DEPTH)
        if at_least is False or at_most is False:
            return False
        return True if at_least and at_most else None

    def range(self, terms: Terms) -> Range:
        """Bounds of the value."""
        return bounds(self._settled(terms))

    def constant(self, terms: Terms) -> int | None:
        """The one value that the polynomial can have, if it is known."""
        terms = self._settled(terms)
        return terms.get((), 0) if _constant(terms) else None

    def _settled(self, terms: Terms) -> Terms:
        """The polynomial without the atoms whose value is known."""
        while self._values:
            settled = substitute(terms, self._values)
            if settled is terms:
                break
            terms = settled
        return terms

    def _sign(self, terms: Terms, depth: int) -> bool | None:
        """Whether the polynomial is 0 or above, for settled terms."""
        low, high = bounds(terms)
        if low is not None and low >= 0:
            return True
        if high is not None and high < 0:
            return False
        rest, constant = _apart(terms)
        if self._least.get(_key(rest), -math.inf) + constant >= 0:
            return True
        # -rest >= n: the polynomial is at most constant - n.
        if constant - self._least.get(_key(scaled(rest, -1)), -math.inf) < 0:
            return False
        return self._sign_by_calls(terms, depth) if depth else None

    def _sign_by_calls(self, terms: Terms, depth: int) -> bool | None:
        for monomial in terms:
            if len(monomial) == 1 and isinstance(monomial[0], Call):
                found = self._sign_without(terms, monomial[0], depth - 1)
                if found is not None:
                    return found
        return None

    def _sign_without(self, terms: Terms, atom: Call, depth: int) -> bool | None:
        if any(atom in monomial for monomial in terms if len(monomial) > 1):
            return None
        if atom.function == "//":
            divisor, _ = self.range(_terms(atom.right))
            positive = divisor is not None and divisor >= 1
            changed = without_quotient(terms, atom) if positive else None
            return None if changed is None else self._sign(self._settled(changed), depth)
        if atom.function in ("max", "min"):
            return self._sign_without_extreme(terms, atom, depth)
        return None

    def _sign_without_extreme(self, terms: Terms, atom: Call, depth: int) -> bool | None:
        """An extreme is one of its operands, and bounds the other one."""
        both = [
            self._sign(self._settled(substitute(terms, {atom: _terms(operand)})), depth)
            for operand in (atom.left, atom.right)
        ]
        if both[0] == both[1]:
            return both[0]
        # max(a, b) is at least a and at least b, min at most: one operand can do for both.
        grows = (terms[(atom,)] > 0) == (atom.function == "max")
        return grows if grows in both else None

    # ------------------------------------------------------------------------------ assumptions
    def learn_nonnegative(self, terms: Terms) -> None:
        """From now on the polynomial is 0 or above: in both forms that a question may have."""
        terms = self._settled(terms)
        self._learn(_positive_content(terms))
        above = _without_factors(add(terms, {(): 1}))
        self._learn(_positive_content(add(above, {(): 1}, -1)))

    def _learn(self, terms: Terms) -> None:
        rest, constant = _apart(terms)
        key = _key(rest)
        self._least[key] = max(self._least.get(key, -constant), -constant)
        if len(rest) == 1:
            ((monomial, c),) = rest.items()
            if len(monomial) == 1:
                _tighten(monomial[0], c, constant)

    def learn_zero(self, terms: Terms) -> None:
        """From now on the polynomial is 0."""
        terms = _content(self._settled(terms))
        self._least.update({_key(rest): -c for rest, c in map(_apart, (terms, scaled(terms, -1)))})
        for atom in sorted(_singles(terms), key=lambda atom: -atom.number):
            c = terms[(atom,)]
            if abs(c) == 1 and not any(atom in m for m in terms if m != (atom,)):
                rest = {monomial: -c * k for monomial, k in terms.items() if monomial != (atom,)}
                if not any(_is_within(atom, other) for m in rest for other in m):
                    self._values[atom] = rest
                    self._say_again()
                    return

    def _say_again(self) -> None:
        """Puts what is now known about an atom into what was said before of it."""
        for key, least in list(self._least.items()):
            terms = add(dict(key), {(): least} if least else {}, -1)
            if not _constant(self._settled(terms)):
                self.learn_nonnegative(terms)
        for key in list(self._nonzero):
            if not _constant(self._settled(dict(key))):
                self.learn_nonzero(dict(key))

    def learn_nonzero(self, terms: Terms) -> None:
        """From now on the polynomial is not 0."""
        terms = _content(self._settled(terms))
        self._nonzero.add(_key(terms))
        self._nonzero.add(_key(scaled(terms, -1)))
        for sign in (1, -1):
            signed = scaled(terms, sign)
            if self._sign(signed, 0):
                self.learn_nonnegative(add(signed, {(): 1}, -1))


_NEVER: Terms = {(): 1}
"""Stands for a polynomial that is never 0."""


def _apart(terms: Terms) -> tuple[dict[Monomial, int], int]:
    rest = dict(terms)
    constant = rest.pop((), 0)
    return rest, constant


def _key(terms: Terms) -> _Key:
    return frozenset(terms.items())


def _constant(terms: Terms) -> bool:
    return not terms or len(terms) == 1 and () in terms


def _singles(terms: Terms) -> list[Atom]:
    return [monomial[0] for monomial in terms if len(monomial) == 1]


def _terms(value: object) -> Terms:
    terms: Terms | None = getattr(value, "terms", None)
    if terms is None:
        assert isinstance(value, int)
        return {(): value} if value else {}
    return terms


def equation(terms: Terms) -> tuple[Terms, int]:
    """(left, right) such that the polynomial is 0 exactly where left == right.

    It is one that can be 0: the left side has a symbol in it.
    """
    rest, constant = _apart(_content(terms))
    negative = next(iter(rest.values())) < 0
    return scaled(rest, -1 if negative else 1), constant if negative else -constant


def _content(terms: Terms) -> Terms:
    """A polynomial that is 0 exactly where this one is: without common factors that never are."""
    if _constant(terms):
        return _NEVER if terms else terms
    terms = _without_factors(terms)
    rest, constant = _apart(terms)
    factor = math.gcd(*rest.values())
    if constant % factor:
        return _NEVER
    return {monomial: c // factor for monomial, c in terms.items()} if factor > 1 else terms


def _positive_content(terms: Terms) -> Terms:
    """A polynomial that is 0 or above exactly where this one is."""
    if _constant(terms):
        return terms
    terms = _without_factors(terms)
    rest, constant = _apart(terms)
    factor = math.gcd(*rest.values())
    if factor == 1:
        return terms
    whole = {monomial: c // factor for monomial, c in rest.items()}
    return add(whole, {(): constant // factor} if constant // factor else {})


def _without_factors(terms: Terms) -> Terms:
    """Without the atoms that divide every term and are positive."""
    common = tuple(a for a in common_monomial(terms) if a.lower is not None and a.lower >= 1)
    # Of a single term something has to stay.
    if not common or common in terms:
        return terms
    return {divide(monomial, common) or (): c for monomial, c in terms.items()}


def _tighten(atom: Atom, c: int, constant: int) -> None:
    """Of c * atom + constant >= 0."""
    if c > 0:
        least = -(constant // c)
        atom.lower = least if atom.lower is None else max(atom.lower, least)
    else:
        most = constant // -c
        atom.upper = most if atom.upper is None else min(atom.upper, most)


def _is_within(atom: Atom, other: Atom) -> bool:
    """Whether `other` is made of `atom`, which would then be said to equal something of itself."""
    if not isinstance(other, Call):
        return False
    operands = [_terms(operand) for operand in (other.left, other.right)]
    atoms = {a for terms in operands for monomial in terms for a in monomial}
    return atom in atoms or any(_is_within(atom, a) for a in atoms)
