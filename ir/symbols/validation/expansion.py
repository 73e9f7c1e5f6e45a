"""Proofs by expanding polynomials: what is the same for all values, or positive term by term.

Ground floor. It decides most claims in microseconds, without a solver, and shares no code with
`polynomial` and `proofs`, whose answers it checks. A polynomial is a dict from the sorted numbers
of its atoms to coefficients. Two polynomials are equal for all values exactly if their difference
expands to nothing. One is at least 0 if no coefficient is negative once each atom is written as its
lower bound and a rest: s0*s1 - s1 with sizes of at least 2 is (2 + a)*(2 + b) - (2 + b).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from aotlite.ir.symbols.calls import Call
from aotlite.ir.symbols.polynomial import Terms
from aotlite.ir.symbols.symint import SymBool, SymInt
from aotlite.ir.symbols.validation.claims import RELATIONS, Claim, Operand, Premises

__all__ = ["Expansion"]

Expanded: TypeAlias = dict[tuple[int, ...], int]

_ONE: Expanded = {(): 1}


def _sum(a: Expanded, b: Expanded, times: int = 1) -> Expanded:
    """a + times * b."""
    found = dict(a)
    for key, c in b.items():
        found[key] = found.get(key, 0) + times * c
        if not found[key]:
            del found[key]
    return found


def _product(a: Expanded, b: Expanded) -> Expanded:
    found: Expanded = {}
    for x, c in a.items():
        for y, d in b.items():
            key = tuple(sorted(x + y))
            found[key] = found.get(key, 0) + c * d
    return {key: c for key, c in found.items() if c}


class Expansion:
    """What follows from the premises by expansion."""

    def __init__(self, premises: Premises) -> None:
        self._guards = set(map(id, premises.guards))
        self._known: dict[int, tuple[SymInt, Expanded]] = {}
        """By the id of a number, which is kept: the number, expanded."""
        self._atoms: dict[int, Any] = {}
        self._least: dict[int, int | None] = {}
        self._most: dict[int, int | None] = {}
        self._defined: dict[int, bool] = {}
        self._values: dict[int, Expanded] = {}
        """Atom -> the polynomial that it equals by a guard."""
        self._facts: list[Expanded] = []
        """Polynomials that are at least 0 by a guard."""
        self._nonzero: list[Expanded] = []
        self._zeros: list[Expanded] = []
        """Polynomials that are 0 by a guard, with both signs."""
        for guard in premises.guards:
            if isinstance(guard.fact, SymBool):
                self._learn(guard.fact)
        self._narrow_all()
        for terms in self._zeros:  # a product of which the other factors are not 0
            self._solve(self._without_factors(self._put(terms)))
        self._narrow_all()
        simple = [self._without_factors(self._put(terms)) for terms in self._zeros]
        self._known_zeros = {frozenset(terms.items()) for terms in simple}
        self._nonzero = list(map(self._simplified, self._nonzero))
        self._narrow_all()

    def _narrow_all(self) -> None:
        facts = [self._put(fact) for fact in self._facts]
        self._facts = [*{frozenset(fact.items()): fact for fact in facts if any(fact)}.values()]
        self._nonzero = [self._put(terms) for terms in self._nonzero]
        for fact in self._facts:
            self._narrow(fact)
        for terms in self._nonzero:
            self._exclude(terms)

    # ------------------------------------------------------------------------------- the premises
    def _learn(self, fact: SymBool) -> None:
        difference = _sum(self._of(fact.left), self._of(fact.right), -1)
        self._learn_values(fact.left)
        self._learn_values(fact.right)
        if fact.relation == "!=":
            self._nonzero.append(difference)
        elif fact.relation == "==":
            both = [difference, _sum({}, difference, -1)]
            self._facts += both
            self._zeros += both
            self._solve(self._put(difference))
        else:
            self._facts.append(_nonnegative(fact.relation, difference))

    def _learn_values(self, operand: Operand) -> None:
        """A guard holds only where its sides have values: no call in them divides by 0."""
        for key in self._of(operand):
            for atom in map(self._atoms.__getitem__, key):
                if isinstance(atom, Call):
                    self._learn_values(atom.left)
                    self._learn_values(atom.right)
                    if atom.function in ("//", "%"):
                        self._nonzero.append(self._of(atom.right))

    def _solve(self, zero: Expanded) -> None:
        """Solves an equation for a symbol, the youngest that stands alone; else for a call."""
        alone = [(key, c) for key, c in sorted(zero.items(), reverse=True) if len(key) == 1]
        alone.sort(key=lambda term: isinstance(self._atoms[term[0][0]], Call))
        for key, c in alone:
            if abs(c) == 1 and not any(key[0] in other for other in zero if other != key):
                rest = {other: -c * k for other, k in zero.items() if other != key}
                put = {key[0]: rest}
                self._values = {n: _put(value, put) for n, value in self._values.items()} | put
                return

    def _narrow(self, fact: Expanded) -> None:
        """A bound from c * atom + constant >= 0."""
        rest = {key: c for key, c in fact.items() if key}
        if len(rest) != 1:
            return
        ((key, c),) = rest.items()
        if len(key) == 1 and c > 0:
            bound = -(fact.get((), 0) // c)
            known = self._lower(key[0])
            self._least[key[0]] = bound if known is None else max(known, bound)
        elif len(key) == 1:
            bound = fact.get((), 0) // -c
            known = self._upper(key[0])
            self._most[key[0]] = bound if known is None else min(known, bound)

    def _exclude(self, nonzero: Expanded) -> None:
        """Lower bounds from a product that is not 0, or a number that is not its lower bound."""
        rest = {key: c for key, c in nonzero.items() if key}
        if len(rest) != 1:
            return
        ((key, c),) = rest.items()
        constant = nonzero.get((), 0)
        for number in key:
            low = self._lower(number)
            if low is not None and c * low + constant == 0 and (len(key) == 1 or not constant):
                self._least[number] = low + 1

    # ------------------------------------------------------------------------------ the questions
    def proves(self, claim: Claim) -> bool:
        """Whether the claim is seen to hold wherever the premises do."""
        if claim.function == "assumed":
            return id(claim.left) in self._guards
        left, right = self._of(claim.left), self._of(claim.right)
        if not self._has_value(left) or not self._has_value(right):
            return False
        if claim.function in RELATIONS:
            return self._relation(claim.function, _sum(left, right, -1), claim.result)
        if not isinstance(claim.result, (int, SymInt)):
            return False
        return self._function(claim.function, left, right, self._of(claim.result))

    def _has_value(self, terms: Expanded) -> bool:
        """Whether no call in it divides by 0, or has an exponent below 0."""
        defined = self._defined
        for key in terms:
            for number in key:
                if number not in defined:
                    atom = self._atoms[number]
                    defined[number] = not isinstance(atom, Call) or self._is_defined(atom)
                if not defined[number]:
                    return False
        return True

    def _is_defined(self, atom: Call) -> bool:
        left, right = self._of(atom.left), self._of(atom.right)
        if not self._has_value(left) or not self._has_value(right):
            return False
        if atom.function in ("//", "%"):
            return self._is_nonzero(self._put(right))
        return atom.function != "**" or self._is_nonnegative(self._put(right))

    def _relation(self, relation: str, difference: Expanded, truth: bool) -> bool:
        if not truth:
            relation = _NEGATED[relation]
        difference = self._put(difference)
        low = self._low_at_bounds(difference) if relation == ">=" else None
        if low is not None and low >= 0:
            return True
        difference = self._without_factors(difference)
        if self._compares(relation, difference):
            return True
        simpler = self._without_extremes(difference)
        return simpler is not difference and self._compares(relation, simpler)

    def _simplified(self, terms: Expanded) -> Expanded:
        """`s0 - 1` for `s0*max(1, s1) - s1`, where s1 is at least 1."""
        return self._without_factors(self._without_extremes(self._without_factors(terms)))

    def _without_factors(self, terms: Expanded) -> Expanded:
        """The polynomial without factors that are at least 1."""
        if not terms or () in terms and 1 in terms.values():
            return terms
        shared: list[int] = []
        first, *others = terms
        for number in set(first):
            count = min([first.count(number), *[key.count(number) for key in others]])
            least = self._lower(number) if count else None
            shared += [number] * count if least is not None and least >= 1 else []
        divisor = math.gcd(*terms.values())
        if not shared and divisor == 1:
            return terms
        return {_divided(key, shared): c // divisor for key, c in terms.items()}

    def _compares(self, relation: str, difference: Expanded) -> bool:
        if relation in ("==", "<=", ">="):
            if not difference or frozenset(difference.items()) in self._known_zeros:
                return True
            if relation == "==":
                return False
        if relation == "!=":
            return self._is_nonzero(difference)
        return self._is_nonnegative(_nonnegative(relation, difference))

    def _without_extremes(self, terms: Expanded) -> Expanded:
        """The polynomial with `max(1, s0)` replaced by s0, where s0 is at least 1; and so on."""
        values: dict[int, Expanded] = {}
        for number in {number for key in terms for number in key}:
            atom = self._atoms[number]
            if isinstance(atom, Call) and atom.function in ("max", "min"):
                left, right = self._put(self._of(atom.left)), self._put(self._of(atom.right))
                excess = _sum(left, right, -1)
                if self._is_nonnegative(excess):
                    values[number] = left if atom.function == "max" else right
                elif self._is_nonnegative(_sum({}, excess, -1)):
                    values[number] = right if atom.function == "max" else left
        return self._put(_put(terms, values)) if values else terms

    def _function(self, function: str, left: Expanded, right: Expanded, result: Expanded) -> bool:
        operands = left, right, result
        if function in ("max", "min"):
            return self._extreme(function, *operands)
        if function == "abs":
            return self._extreme("max", left, _sum({}, left, -1), result)
        if function in ("<<", ">>"):
            power = _power({(): 2}, right)
            return power is not None and self._function(_SHIFTS[function], left, power, result)
        if function == "&":  # the lowest bits
            return self._is_call("%", left, _sum(right, _ONE), result)
        if function in ("+", "-", "*", "**"):
            found = _COMBINED[function](left, right)
            if found == result or found is not None and not self._put(_sum(found, result, -1)):
                return True
        if function == "//" and self._quotient(left, right, result):
            return True
        return self._is_call(function, *operands)

    def _quotient(self, left: Expanded, right: Expanded, result: Expanded) -> bool:
        rest = self._put(_sum(left, _product(right, result), -1))
        if not rest:
            return self._is_nonzero(self._put(right))
        beyond = self._put(_sum(_sum(right, rest, -1), _ONE, -1))
        return self._is_nonnegative(rest) and self._is_nonnegative(beyond)

    def _extreme(self, function: str, left: Expanded, right: Expanded, result: Expanded) -> bool:
        excess = self._put(_sum(left, right, -1))
        if function == "min":
            excess = _sum({}, excess, -1)
        if not self._put(_sum(result, left, -1)) and self._is_nonnegative(excess):
            return True
        if not self._put(_sum(result, right, -1)) and self._is_nonnegative(_sum({}, excess, -1)):
            return True
        return any(
            self._is_call(function, *operands, result)
            for operands in ((left, right), (right, left))
        )

    def _is_call(self, function: str, left: Expanded, right: Expanded, result: Expanded) -> bool:
        """Whether the result is the call itself, kept as an atom, where it is defined."""
        if len(result) != 1 or [*result.values()] != [1] or len(next(iter(result))) != 1:
            return False
        atom = self._atoms[next(iter(result))[0]]
        if not isinstance(atom, Call) or atom.function != function:
            return False
        same = self._of(atom.left) == left and self._of(atom.right) == right
        return same and self._has_value(result)

    # ----------------------------------------------------------------------------------- the signs
    def _is_nonzero(self, terms: Expanded) -> bool:
        terms = self._without_factors(terms)
        if any(terms == sign for fact in self._nonzero for sign in (fact, _sum({}, fact, -1))):
            return True
        above = self._is_nonnegative(_sum(terms, _ONE, -1))
        return above or self._is_nonnegative(_sum(_sum({}, terms, -1), _ONE, -1))

    def _is_nonnegative(self, terms: Expanded) -> bool:
        return self._is_positive_by_terms(terms) or any(
            self._is_positive_by_terms(_sum(terms, fact, -1)) for fact in self._facts
        )

    def _is_positive_by_terms(self, terms: Expanded) -> bool:
        low = self._low(terms)
        if low is None and any(c < 0 and len(key) == 1 for key, c in terms.items()):
            low = self._low(self._at_most(terms))
        return low is not None and low >= 0

    def _at_most(self, terms: Expanded) -> Expanded:
        """The polynomial, or less, with upper bounds for what is subtracted: 3 for s0 % 4."""
        found = dict(terms)
        for key, c in terms.items():
            most = self._upper(key[0]) if c < 0 and len(key) == 1 else None
            if most is not None:
                del found[key]
                found = _sum(found, {(): c * most} if most else {})
        return found

    def _upper(self, number: int) -> int | None:
        """An upper bound of an atom, by its declared range or by what it is."""
        if number not in self._most:
            atom, self._most[number] = self._atoms[number], None  # it may be asked within itself
            self._most[number] = self._call_upper(atom) if isinstance(atom, Call) else atom.room[1]
        return self._most[number]

    def _call_upper(self, atom: Call) -> int | None:
        left, right = self._of(atom.left), self._of(atom.right)
        if atom.function == "%":
            least = self._low_of(right)
            high = self._high(right)
            return None if least is None or high is None or least < 1 else high - 1
        bounds = [self._high(left), self._high(right)]
        known = [high for high in bounds if high is not None]
        if atom.function == "max":
            return max(known) if len(known) == 2 else None
        if atom.function == "min":
            known += self._half_of_sum(left, right)
            return min(known) if known else None
        return None

    def _high(self, terms: Expanded) -> int | None:
        """An upper bound of a polynomial."""
        low = self._low(_sum({}, self._put(terms), -1))
        if low is None:
            low = self._low(self._at_most(_sum({}, terms, -1)))
        return None if low is None else -low

    @staticmethod
    def _half_of_sum(left: Expanded, right: Expanded) -> list[int]:
        """The most that the smaller of two can be, if their sum is a number: `min(s0, 2 - s0)`."""
        total = _sum(left, right)
        return [total.get((), 0) // 2] if total.keys() <= {()} else []

    def _low(self, terms: Expanded) -> int | None:
        """A lower bound of a polynomial: the constant, where no other coefficient is negative."""
        low = self._low_at_bounds(terms)
        if low is not None:
            return low
        degree = max(map(len, terms), default=0)
        if any(c < 0 and len(key) == degree > 0 for key, c in terms.items()):
            return None  # no other term has multiples of it
        shifts: dict[int, Expanded] = {}
        for key in terms:
            for number in key:
                low = self._lower(number)
                if low is None:
                    return None
                shifts[number] = _sum({(number,): 1}, {(): low})
        counted = _put(terms, shifts)
        return counted.get((), 0) if all(c >= 0 for key, c in counted.items() if key) else None

    def _low_at_bounds(self, terms: Expanded) -> int | None:
        """The value where each atom is at its lower bound, if no coefficient and no bound is
        negative: what `_low` finds then."""
        total = 0
        for key, c in terms.items():
            for number in key:
                low = self._lower(number)
                if low is None or low < 0 or c < 0:
                    return None
                c *= low
            total += c
        return total

    def _low_of(self, terms: Expanded) -> int | None:
        low = self._low(self._put(terms))  # which may contain what is asked for
        return self._low(terms) if low is None else low

    def _lower(self, number: int) -> int | None:
        """A lower bound of an atom, by its declared range or by what it is."""
        if number not in self._least:
            atom, self._least[number] = self._atoms[number], None  # it may be asked within itself
            self._least[number] = self._call_lower(atom) if isinstance(atom, Call) else atom.room[0]
        return self._least[number]

    def _call_lower(self, atom: Call) -> int | None:
        left, right = (self._low_of(self._of(v)) for v in (atom.left, atom.right))
        if atom.function == "max":
            known = [low for low in (left, right) if low is not None]
            total = _sum(self._of(atom.left), self._of(atom.right))
            if total.keys() <= {()}:  # of a number and what is left of a sum
                known.append(-(-total.get((), 0) // 2))
            return max(known) if known else None
        if right is None or left is None and atom.function != "%":
            return None
        if atom.function == "min":
            return min(left, right) if left is not None else None
        if atom.function == "**":
            return 1 if left is not None and left >= 1 and right >= 0 else None
        positive = right >= 1 and (left is None or left >= 0 or atom.function == "%")
        return 0 if positive else None

    # --------------------------------------------------------------------------------- polynomials
    def _of(self, operand: Operand) -> Expanded:
        if isinstance(operand, SymInt):
            known = self._known.get(id(operand))
            if known is None:
                known = self._known[id(operand)] = operand, self._expanded(operand.terms)
            return known[1]
        if isinstance(operand, int):
            return {(): int(operand)} if operand else {}
        return self._expanded(operand)

    def _expanded(self, terms: Terms) -> Expanded:
        found: Expanded = {}
        for monomial, c in terms.items():
            for atom in monomial:
                self._atoms[atom.number] = atom
            key = tuple(sorted(atom.number for atom in monomial))
            found[key] = found.get(key, 0) + c
        return {key: c for key, c in found.items() if c}

    def _put(self, terms: Expanded) -> Expanded:
        """The polynomial with atoms replaced by what they equal."""
        return _put(terms, self._values) if self._values else terms


def _divided(key: tuple[int, ...], by: list[int]) -> tuple[int, ...]:
    rest = list(key)
    for number in by:
        rest.remove(number)
    return tuple(rest)


def _power(base: Expanded, exponent: Expanded) -> Expanded | None:
    """The power where the exponent is a small number."""
    if not exponent.keys() <= {()} or not 0 <= exponent.get((), 0) <= 64:
        return None
    found = _ONE
    for _ in range(exponent.get((), 0)):
        found = _product(found, base)
    return found


_COMBINED: Mapping[str, Callable[[Expanded, Expanded], Expanded | None]] = {
    "+": _sum,
    "-": lambda a, b: _sum(a, b, -1),
    "*": _product,
    "**": _power,
}
_SHIFTS = {"<<": "*", ">>": "//"}
_NEGATED = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def _nonnegative(relation: str, difference: Expanded) -> Expanded:
    """What is at least 0 exactly where an integer `difference` has this relation to 0."""
    turned = _sum({}, difference, -1) if relation in ("<", "<=") else difference
    return turned if relation in ("<=", ">=") else _sum(turned, _ONE, -1)


def _put(terms: Expanded, values: dict[int, Expanded]) -> Expanded:
    if not any(number in values for key in terms for number in key):
        return terms
    found: Expanded = {}
    for key, c in terms.items():
        product: Expanded = {(): c}
        for number in key:
            product = _product(product, values.get(number, {(number,): 1}))
        found = _sum(found, product)
    return found
