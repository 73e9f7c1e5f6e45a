"""`Facts`: proves statements about symbolic ints from their ranges and from earlier assumptions.

Ground floor. It answers True or False only where that is the answer for all values that the symbols
may have, and None where it finds no proof. It never looks at a hint. Spec: `specs/symbols.md`.
"""

# Note [stored facts]
#     if len(x) + len(y) >= 9: ...        # assumed: s0 + s1 - 9 >= 0
#     cat([x, y])[6:]                     # asks: s0 + s1 - 6 >= 0?
# A fact `polynomial >= 0` is stored without its constant: s0 + s1 -> at least 9. So it answers for
# every constant: the question has the same polynomial, and 9 - 6 >= 0 proves it. Polynomials are
# stored and asked for in one form: known atoms are replaced by their values (`_settled`), and
# positive common factors are left out (`_positive_content`), so that 2*s0*s1 >= 2*s1 is asked as
# s0 - 1 >= 0. Both `p >= 0` and its negation `-p - 1 >= 0` are tried, as only one of them may have
# factors to leave out. Calls are then replaced by their operands, `_DEPTH` deep.

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from aotlite.ir.symbols.calls import Call, without_quotient
from aotlite.ir.symbols.polynomial import (
    Atom,
    Monomial,
    Range,
    Symbol,
    Terms,
    add,
    bounds,
    common_monomial,
    divide,
    multiply,
    scaled,
    substitute,
    subtract,
)
from aotlite.ir.symbols.symint import ABOVE, BELOW, SymBool, SymInt

__all__ = [
    "Facts",
    "answer_of_hints",
    "difference_of",
    "equation",
    "known_by_bounds",
    "least_of",
    "nonnegative_form",
    "said_simply",
]

Value: TypeAlias = "int | SymInt"
_Key: TypeAlias = frozenset[tuple[Monomial, int]]
Learned: TypeAlias = "tuple[str, Terms, int | Terms, bool]"

_DEPTH = 4
"""How many nested calls a question replaces by their operands."""


class Facts:
    """The facts that are known beyond the atoms' own ranges; added, and replaced by equal ones."""

    __slots__ = ("_extremes", "_least", "_nonzero", "_say", "_values")

    def __init__(self, say: Callable[[Learned], None]) -> None:
        self._say = say
        """Gets each fact that is learned, as an event (`ir/symbols/events.py`)."""
        self._values: dict[Atom, Terms] = {}
        """Atom -> the polynomial of other atoms that it equals, without cycles."""
        self._least: dict[_Key, int] = {}
        """Polynomial without constant -> its lower bound."""
        self._nonzero: set[_Key] = set()
        """Polynomials that are not 0."""
        self._extremes: list[Call] = []
        """Extremes of a symbol and a number, `max(s0, 1)`, until a fact decides them."""

    def watch(self, atom: Call) -> None:
        """Makes an extreme equal its operand once a fact says which, if it is as `max(s0, 1)`."""
        if atom.function in ("max", "min") and isinstance(atom.left, int):
            if len(_singles(_terms(atom.right))) == len(_terms(atom.right)) == 1:
                self._extremes.append(atom)

    def _decide_extremes(self) -> None:
        """Makes the extremes equal an operand that are decided by now; watches the rest."""
        waiting, self._extremes = self._extremes, []
        for atom in waiting:
            value = self._operand_of(atom)
            if value is None:
                self._extremes.append(atom)
            elif _mentions(self.settled(value), atom):  # s0 is s1 * min(1, s0): a mere fact
                self._say(("==", {(atom,): 1}, value, True))
                self.learn_zero(add({(atom,): 1}, value, -1))
            else:
                self._values[atom] = value
                self._say(("==", {(atom,): 1}, value, True))
        if len(waiting) > len(self._extremes):
            self._say_again()

    def _operand_of(self, atom: Call) -> Terms | None:
        """The operand that an extreme equals; None where that is open."""
        number, other = atom.left, _terms(atom.right)
        assert isinstance(number, int)
        low, high = self.range(other)
        if low is not None and low >= number:
            return other if atom.function == "max" else _terms(number)
        if high is not None and high <= number:
            return _terms(number) if atom.function == "max" else other
        return None

    def __copy__(self) -> Facts:
        made = Facts(self._say)
        made._values, made._least = dict(self._values), dict(self._least)
        made._nonzero, made._extremes = set(self._nonzero), list(self._extremes)
        return made

    # -------------------------------------------------------------------------------- questions
    def nonnegative(self, terms: Terms) -> bool | None:
        """Whether the polynomial is at least 0. Its negation, `-terms >= 1`, is tried as well."""
        terms = self.settled(terms)
        low, high = bounds(terms)
        if low is not None and low >= 0:
            return True
        if high is not None and high < 0:
            return False
        if _of_one_symbol(terms):
            return None
        content = _positive_content(terms)
        found = self._sign(content, _DEPTH, bounded=content is terms)
        if found is not None:
            return found
        negated = add({(): -1}, terms, -1)
        content = _positive_content(negated)
        above = self._sign(content, _DEPTH, bounded=content is negated)
        return None if above is None else not above

    def zero(self, terms: Terms) -> bool | None:
        """Whether the polynomial is 0."""
        terms = self.settled(terms)
        low, high = bounds(terms)
        if low is not None and low > 0 or high is not None and high < 0:
            return False
        content = _content(terms)
        bounded, terms = content is terms, content
        if _constant(terms):
            return not terms
        if self._nonzero and _key(terms) in self._nonzero:
            return False
        if _of_one_symbol(terms):
            return True if low == high == 0 else None
        at_least = self._sign(terms, _DEPTH, bounded=bounded and (low is None or low < 0))
        bounded &= high is None or high > 0
        at_most = self._sign(scaled(terms, -1), _DEPTH, bounded=bounded)
        if at_least is False or at_most is False:
            return False
        return True if at_least and at_most else None

    def range(self, terms: Terms) -> Range:
        """Bounds of the value."""
        return bounds(self.settled(terms))

    def constant(self, terms: Terms) -> int | None:
        """The value of the polynomial, if it is known; else None."""
        terms = self.settled(terms)
        return terms.get((), 0) if _constant(terms) else None

    @property
    def value_count(self) -> int:
        """How many atoms are known to equal others."""
        return len(self._values)

    def settled(self, terms: Terms) -> Terms:
        """The polynomial with known atoms replaced by their values."""
        while self._values:
            settled = substitute(terms, self._values)
            if settled is terms:
                break
            terms = settled
        return terms

    def _sign(self, terms: Terms, depth: int, *, bounded: bool = False) -> bool | None:
        """Whether a settled polynomial is at least 0. `bounded`: its bounds do not decide it."""
        low, high = (None, None) if bounded else bounds(terms)
        if low is not None and low >= 0:
            return True
        if high is not None and high < 0:
            return False
        if self._least:
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
            return None if changed is None else self._sign(self.settled(changed), depth)
        if atom.function in ("max", "min"):
            return self._sign_without_extreme(terms, atom, depth)
        return None

    def _sign_without_extreme(self, terms: Terms, atom: Call, depth: int) -> bool | None:
        """`_sign` with a max or min replaced by each of its operands in turn."""
        both = [
            self._sign(self.settled(substitute(terms, {atom: _terms(operand)})), depth)
            for operand in (atom.left, atom.right)
        ]
        if both[0] == both[1]:
            return both[0]
        # max(a, b) is at least a and at least b, min at most: the proof for one operand can do.
        grows = (terms[(atom,)] > 0) == (atom.function == "max")
        return grows if grows in both else None

    # ------------------------------------------------------------------------------ assumptions
    def learn_nonnegative(self, terms: Terms) -> None:
        """Adds the fact that the polynomial is at least 0, in both forms that are asked for."""
        terms = self.settled(terms)
        self._learn(_positive_content(terms))
        above = _without_factors(add(terms, {(): 1}))
        self._learn(_positive_content(add(above, {(): 1}, -1)))
        self._decide_extremes()

    def _learn(self, terms: Terms) -> None:
        rest, constant = _apart(terms)
        key = _key(rest)
        self._least[key] = max(self._least.get(key, -constant), -constant)
        self._say((">=", rest, -constant, True))
        if len(rest) == 1:
            ((monomial, c),) = rest.items()
            if len(monomial) == 1:
                self._say(_tightened(monomial[0], c, constant))

    def learn_zero(self, terms: Terms) -> None:
        """Adds the fact that the polynomial is 0; solves it for an atom where that is possible."""
        terms = _content(self.settled(terms))
        self._least.update({_key(rest): -c for rest, c in map(_apart, (terms, scaled(terms, -1)))})
        self._say(("==", terms, 0, True))
        for atom in sorted(_singles(terms), key=lambda atom: -atom.number):
            c = terms[(atom,)]
            if abs(c) == 1 and not any(atom in m for m in terms if m != (atom,)):
                rest = {monomial: -c * k for monomial, k in terms.items() if monomial != (atom,)}
                if not _mentions(rest, atom):
                    self._values[atom] = rest
                    self._say(("==", {(atom,): 1}, rest, True))
                    self._keep_bounds(atom, rest)
                    self._say_again()
                    break
        self._decide_extremes()

    def _keep_bounds(self, atom: Atom, value: Terms) -> None:
        """Says of the value that replaces an atom what the atom's bounds have said."""
        for bound, sign in ((atom.lower, 1), (atom.upper, -1)):
            beyond = None if bound is None else scaled(add(value, {(): bound}, -1), sign)
            if beyond is not None and self.nonnegative(beyond) is None:
                self.learn_nonnegative(beyond)

    def _say_again(self) -> None:
        """Replaces earlier facts by those with the newly known atom replaced by its value."""
        for key, least in list(self._least.items()):
            terms = dict(key)
            settled = self.settled(terms)
            if settled is not terms:
                self._least.pop(key, None)
                if not _constant(settled):
                    self.learn_nonnegative(add(settled, {(): least} if least else {}, -1))
        for key in list(self._nonzero):
            terms = dict(key)
            settled = self.settled(terms)
            if settled is not terms:
                self._nonzero.discard(key)
                if not _constant(settled):
                    self.learn_nonzero(settled)

    def learn_nonzero(self, terms: Terms) -> None:
        """Adds the fact that the polynomial is not 0."""
        terms = _content(self.settled(terms))
        self._nonzero.add(_key(terms))
        self._nonzero.add(_key(scaled(terms, -1)))
        self._say(("!=", terms, 0, True))
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


def _mentions(terms: Terms, atom: Atom) -> bool:
    """Whether a polynomial has an atom, or a call of it."""
    return any(other == atom or _is_within(atom, other) for m in terms for other in m)


def _of_one_symbol(terms: Terms) -> bool:
    """Whether it is `c * symbol`, plus a number: what is known of its sign is in its bounds."""
    if len(terms) > 2:
        return False
    alone = [m for m in terms if m]
    return len(alone) == 1 and len(alone[0]) == 1 and type(alone[0][0]) is Symbol


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


def known_by_bounds(left: SymInt, relation: str, right: int | SymInt) -> bool | None:
    """The truth of a comparison where lower bounds show it, without expanding polynomials."""
    for greater, less, where in ((left, right, ABOVE), (right, left, BELOW)):
        excess = _excess(greater, less)
        if excess is not None and excess > 0:
            return relation in where
    return None


def _excess(a: int | SymInt, b: int | SymInt) -> int | None:
    """A lower bound of a - b, if one is seen at once: a stride is a multiple of the next one."""
    if type(a) is not SymInt:
        return None
    if type(b) is not SymInt:
        return None if a.least is None else a.least - b
    if a.function is not multiply or b.least is None or b.least < 0:
        return None
    factor = a.right if a.left is b else a.left if a.right is b else None
    times = factor.least if type(factor) is SymInt else factor
    return None if times is None or times < 1 else (times - 1) * b.least


def equation(terms: Terms) -> tuple[Terms, int]:
    """(left, right) such that the polynomial is 0 exactly where left == right, an int.

    The polynomial must be one that can be 0 or not, so that the left side has a symbol.
    """
    rest, constant = _apart(_content(terms))
    negative = next(iter(rest.values())) < 0
    return scaled(rest, -1 if negative else 1), constant if negative else -constant


def _content(terms: Terms) -> Terms:
    """A polynomial that is 0 exactly where this one is, without common nonzero factors."""
    if _constant(terms):
        return _NEVER if terms else terms
    terms = _without_factors(terms)
    rest, constant = _apart(terms)
    factor = math.gcd(*rest.values())
    if constant % factor:
        return _NEVER
    return {monomial: c // factor for monomial, c in terms.items()} if factor > 1 else terms


def _positive_content(terms: Terms) -> Terms:
    """A polynomial that is at least 0 exactly where this one is, without positive factors."""
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
    """The polynomial divided by the positive atoms that divide every term."""
    if () in terms:
        return terms
    common = tuple(a for a in common_monomial(terms) if a.lower is not None and a.lower >= 1)
    # A single term is kept: divided by itself it would be 1.
    if not common or common in terms:
        return terms
    return {divide(monomial, common) or (): c for monomial, c in terms.items()}


def _tightened(atom: Atom, c: int, constant: int) -> Learned:
    """Narrows the bounds of `atom` by c * atom + constant >= 0; returns the event."""
    if c > 0:
        least = -(constant // c)
        atom.lower = least if atom.lower is None else max(atom.lower, least)
        return ">=", {(atom,): 1}, atom.lower, True
    most = constant // -c
    atom.upper = most if atom.upper is None else min(atom.upper, most)
    return "<=", {(atom,): 1}, atom.upper, True


def _is_within(atom: Atom, other: Atom) -> bool:
    """Whether `other` is a call that contains `atom`: solving for `atom` would be circular."""
    if not isinstance(other, Call):
        return False
    operands = [_terms(operand) for operand in (other.left, other.right)]
    atoms = {a for terms in operands for monomial in terms for a in monomial}
    return atom in atoms or any(_is_within(atom, a) for a in atoms)


# ----------------------------------------------------------------------- comparisons in other forms
def said_simply(fact: SymBool) -> SymBool:
    """An equivalent (in)equality, without common factors and constants on the left."""
    if fact.relation not in ("==", "!=") or isinstance(fact.right, SymInt):
        return fact
    table = fact.left.table
    left, right = equation(difference_of(fact))
    return _of_operand(SymBool(table.of(left), fact.relation, right))


def _of_operand(fact: SymBool) -> SymBool:
    """`s0 > 1` for `max(1, s0) != 1`, `s0 == 4` for `max(1, s0) == 4`; any other fact as it is."""
    (monomial, c), *others = fact.left.terms.items()
    atom = monomial[0]
    if others or c != 1 or monomial[1:] or not isinstance(atom, Call) or atom.function != "max":
        return fact
    if isinstance(atom.right, int) or not isinstance(atom.left, int) or atom.left > fact.right:
        return fact
    if atom.left < fact.right:
        return said_simply(SymBool(atom.right, fact.relation, fact.right))
    return SymBool(atom.right, "<=" if fact.relation == "==" else ">", fact.right)


def difference_of(fact: SymBool) -> Terms:
    """What the comparison compares with 0; it becomes no number of the table."""
    table = fact.left.table
    return subtract(fact.left.terms, table.terms_of(fact.right))


def nonnegative_form(relation: str, difference: Terms) -> Terms:
    """The polynomial that is at least 0 exactly where `difference` has this relation to 0."""
    signed = scaled(difference, -1) if relation in ("<", "<=") else difference
    return signed if relation in ("<=", ">=") else add(signed, {(): 1}, -1)


def answer_of_hints(fact: SymBool) -> bool:
    """The answer of the hints. Of a product that is compared with 0 the factors are asked."""
    parts = _factors(fact)
    if not parts:
        return fact.hint
    zero = next((part for part in parts if part.hint == 0), None)
    nonzero = all(parts) if zero is None else bool(zero)
    return nonzero == (fact.relation == "!=")


def _factors(fact: SymBool) -> list[SymInt]:
    """The factors of a product that is compared with 0; none of anything else."""
    table = fact.left.table
    difference = difference_of(fact)
    if fact.relation not in ("==", "!=") or len(difference) != 1:
        return []
    (monomial,) = difference
    return [table.of({(atom,): 1}) for atom in dict.fromkeys(monomial)] if monomial[1:] else []


def least_of(terms: Terms) -> int | None:
    """A lower bound, where the terms are a single atom."""
    (monomial, c), *others = terms.items()
    return monomial[0].lower if len(monomial) == 1 and c == 1 and not others else None
