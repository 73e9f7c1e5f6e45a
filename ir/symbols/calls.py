"""Functions of symbolic ints that are not polynomials: `//`, `%`, `**`, max and min.

Ground floor. A result that is a polynomial is returned as one: `(4*s0) // 2` is `2*s0`. Any other
result is a `Call`, an atom that keeps its operands: `s0 // 2`. The arithmetic is exactly Python's
(DYN-13): a quotient is rounded down, and a remainder has the divisor's sign.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

from aotlite.ir.errors import UnsupportedError
from aotlite.ir.symbols.assumption import concrete
from aotlite.ir.symbols.floats.operations import Operation
from aotlite.ir.symbols.polynomial import (
    Atom,
    Monomial,
    Range,
    Symbol,
    Terms,
    add,
    common_monomial,
    divide,
    multiply,
    scaled,
)
from aotlite.ir.symbols.symint import SymInt, Table

__all__ = ["FUNCTIONS", "Call", "Computed", "call", "evaluated", "text_of", "without_quotient"]

Value: TypeAlias = "int | SymInt"

FUNCTIONS: Final[dict[str, Callable[[int, int], int]]] = {
    "//": operator.floordiv,
    "%": operator.mod,
    "**": operator.pow,
    "max": max,
    "min": min,
}


class Call(Atom):
    """An atom that is a function of two integers: `s0 // 2`."""

    __slots__ = ("function", "left", "right")

    def __init__(self, number: int, function: str, left: Value, right: Value, room: Range) -> None:
        super().__init__(number, *room)
        self.function = function
        self.left = left
        self.right = right

    def __str__(self) -> str:
        if self.function in ("max", "min"):
            operands = sorted((self.left, self.right), key=_reading_place)
            return f"{self.function}({operands[0]}, {operands[1]})"
        return f"{_inner(self.left)}{_SIGNS[self.function]}{_inner(self.right)}"


def _reading_place(value: Value) -> tuple[bool, str]:
    """Where an operand stands in `max(1, s0)`: the same in every trace and file."""
    return not isinstance(value, int), str(value)


class Computed(Atom):
    """An atom that Python computes of sizes and floats: `math.ceil(s0 * 0.3)`.

    Nothing is known of its value, but that it is not negative where no operation in it gives other
    numbers: what code assumes about it is a guard, which computes it.
    """

    __slots__ = ("_value_of", "depth", "limit", "operands", "operation", "room")

    def __init__(
        self,
        number: int,
        operation: Operation,
        operands: tuple[object, ...],
        shape: tuple[int, float],
        least: int | None,
        value_of: Callable[..., int],
    ) -> None:
        self.room: Range = least, None
        super().__init__(number, *self.room)
        self.operation = operation
        self.operands = operands
        self.depth, self.limit = shape
        """How many operations on floats there are; no absolute value is greater."""
        self._value_of = value_of

    def value(self, values: Mapping[str, int]) -> int:
        """The value where symbols have these values; an expression where these are sizes of another
        table. Raises what Python raises."""
        operands = [concrete(each, values) for each in self.operands]
        return self._value_of(self.operation, operands, self.limit)

    def __str__(self) -> str:
        return self.operation.text([_operand_text(each) for each in self.operands])


def _operand_text(value: object) -> str:
    if isinstance(value, SymInt):
        return text_of(value.terms)
    return str(getattr(value, "text", None) or repr(value))


_SIGNS = {"//": "//", "%": " % ", "**": "**"}


def _inner(value: Value) -> str:
    text = str(value)
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def call(table: Table, function: str, left: Value, right: Value) -> Value:
    """The value of `function(left, right)`, where an operand is symbolic."""
    if function in ("max", "min"):
        return _extreme(table, function, left, right)
    if function == "**":
        return _power(table, left, right)
    return _divided(table, function, left, right)


def _extreme(table: Table, function: str, left: Value, right: Value) -> Value:
    greater = table.known_truth(left, ">=", right)
    if greater is None:
        smaller = table.known_truth(left, "<=", right)
        greater = None if smaller is None else not smaller
    if greater is not None:
        return left if greater == (function == "max") else right
    left, right = sorted((left, right), key=lambda value: getattr(value, "key", value))
    (low_a, high_a), (low_b, high_b) = table.range(left), table.range(right)
    best = max if function == "max" else min
    low, high = _best(best, low_a, low_b), _best(best, high_a, high_b)
    if function == "max":
        low, total = _either(low, low_a, low_b), left + right
        if type(total) is int:  # abs(s0 - 2) is max(s0 - 2, -s0 + 2)
            low = _either(_best(max, low, -(-total // 2)), low, -(-total // 2))
        room = low, high
    else:
        room = low, _either(high, high_a, high_b)
    return table.atom(function, left, right, room)


def _best(best: Callable[[int, int], int], a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else best(a, b)


def _either(both: int | None, a: int | None, b: int | None) -> int | None:
    return both if both is not None else a if b is None else b


def _power(table: Table, left: Value, right: Value) -> Value:
    if not right >= 0:  # Python gives a float: needs the values
        return int(left) ** int(right)
    low, _ = table.range(left)
    room = (1, None) if low is not None and low >= 1 else (None, None)
    return table.atom("**", left, right, room)


def evaluated(terms: Terms, values: Mapping[str, int]) -> int:
    """The value of a polynomial where symbols have these values, by name: ints, or sizes of another
    table."""
    total = 0
    for monomial, c in terms.items():
        for atom in monomial:
            if isinstance(atom, Call):
                c *= _applied(atom, values)
            elif isinstance(atom, Computed):
                c *= atom.value(values)
            elif isinstance(atom, Symbol) and atom.name in values:
                c *= values[atom.name]
            else:
                raise UnsupportedError(
                    f"symbols: the value of {atom} is asked for, expected a size that is known "
                    "before the graph runs"
                )
        total += c
    return total


def _applied(atom: Call, values: Mapping[str, int]) -> int:
    left, right = (
        evaluated(v.terms, values) if isinstance(v, SymInt) else v for v in (atom.left, atom.right)
    )
    for operand in (left, right):
        if isinstance(operand, SymInt):
            found: int = operand.table.call(atom.function, left, right)
            return found
    return FUNCTIONS[atom.function](left, right)


# ------------------------------------------------------------------------------------- division
def _divided(table: Table, function: str, left: Value, right: Value) -> Value:
    if not right != 0:
        return FUNCTIONS[function](1, 0)  # raises Python's error
    if isinstance(right, int) and right < 0:  # a // -n == -a // n, and a % -n == -(-a % n)
        turned = call(table, function, -left, -right)
        return turned if function == "//" else -turned
    quotient, rest = _split(table, table.terms_of(left), table.terms_of(right))
    whole, remainder = table.of(quotient), table.of(rest)
    inner, outer, factor, spare = _reduced(table, remainder, right)
    if function == "//":
        return whole + _quotient(table, inner, outer)
    return _remainder(table, inner, outer) * factor + spare


def _split(table: Table, dividend: Terms, divisor: Terms) -> tuple[Terms, Terms]:
    """(q, r) with dividend = q * divisor + r; r is 0 where the divisor divides the dividend."""
    if len(divisor) == 1:
        return _split_by_term(dividend, *next(iter(divisor.items())))
    ratio = _ratio(dividend, divisor)
    if ratio is not None:
        return {(): ratio}, {}
    if len(dividend) >= len(divisor):
        return table.sympy_quotient(dividend, divisor) or ({}, dividend)
    return {}, dividend


def _split_by_term(
    dividend: Terms, divisor: Monomial, coefficient: int
) -> tuple[dict[Monomial, int], dict[Monomial, int]]:
    quotient: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, c in dividend.items():
        left = divide(monomial, divisor)
        times, over = (0, c) if left is None else _quotient_of_term(c, coefficient, monomial)
        if times and left is not None:
            quotient[left] = times
        if over:
            rest[monomial] = over
    return quotient, rest


def _quotient_of_term(c: int, divisor: int, monomial: Monomial) -> tuple[int, int]:
    """(quotient, rest) of a coefficient: rounded towards zero, so that the rest keeps the sign.

    The constant term is rounded down, as Python does.
    """
    if not monomial:
        return divmod(c, divisor)
    times = abs(c) // abs(divisor) * (1 if (c < 0) == (divisor < 0) else -1)
    return times, c - times * divisor


def _ratio(dividend: Terms, divisor: Terms) -> int | None:
    """The integer n with dividend = n * divisor, if there is one."""
    if dividend.keys() != divisor.keys():
        return None
    found = {divmod(c, divisor[monomial]) for monomial, c in dividend.items()}
    times, over = next(iter(found))
    return times if len(found) == 1 and not over else None


def _reduced(table: Table, dividend: Value, divisor: Value) -> tuple[Value, Value, Value, int]:
    """(a, b, g, c) with dividend = g*a + c, divisor = g*b, g > 0 and 0 <= c < g.

    Then dividend // divisor = a // b and dividend % divisor = g * (a % b) + c.
    """
    above, below = dict(table.terms_of(dividend)), table.terms_of(divisor)
    constant = above.pop((), 0) if isinstance(divisor, int) else 0
    number = math.gcd(*above.values(), *below.values())
    times, over = divmod(constant, number)
    shared = () if times or over else _positive(common_monomial({**above, **below}))
    inner, outer = (
        table.of({divide(monomial, shared) or (): c // number for monomial, c in terms.items()})
        for terms in (above, below)
    )
    return inner + times, outer, table.of({shared: number}), over


def _positive(monomial: Monomial) -> Monomial:
    """The monomial of those atoms that are known to be positive."""
    return tuple(atom for atom in monomial if atom.lower is not None and atom.lower >= 1)


def _quotient(table: Table, a: Value, b: Value) -> Value:
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    within = _within(table, a, b)
    if within is not None:
        return within
    nested = _nested(table, a, b) if isinstance(b, int) and b > 0 else None
    if nested is not None:
        return call(table, "//", *nested)
    return table.atom("//", a, b, _quotient_range(table.range(a), table.range(b)))


def _nested(table: Table, a: Value, b: int) -> tuple[Value, Value] | None:
    """(x, y) with a // b = x // y where a = u // v + c: joins two nested divisions."""
    terms = dict(table.terms_of(a))
    constant = terms.pop((), 0)
    if len(terms) != 1:
        return None
    ((monomial, c),) = terms.items()
    if c != 1 or len(monomial) != 1:
        return None
    inner = monomial[0]
    if not isinstance(inner, Call) or inner.function != "//":
        return None
    divisor = inner.right
    if not isinstance(divisor, int) or divisor < 1:
        return None
    return inner.left + constant * divisor, divisor * b


def _remainder(table: Table, a: Value, b: Value) -> Value:
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    within = _within(table, a, b)
    if within is not None:
        return a - within * b
    low, high = table.range(b)
    if low is not None and low >= 1:
        room: Range = (0, None if high is None else high - 1)
    elif high is not None and high <= -1:
        room = (None if low is None else low + 1, 0)
    else:
        room = (None, None)
    return table.atom("%", a, b, room)


def _within(table: Table, a: Value, b: Value) -> int | None:
    """The quotient a // b where ranges show that it is 0 or -1; None where they do not."""
    if table.known_truth(b, ">", 0) is not True:
        return None
    if table.known_truth(a, ">=", 0) is True:
        return 0 if table.known_truth(a, "<", b) is True else None
    if table.known_truth(a, "<", 0) is True and table.known_truth(a, ">=", -b) is True:
        return -1
    return None


def _quotient_range(a: Range, b: Range) -> Range:
    (low, high), (least, most) = a, b
    if least is None or least < 1:
        return None, None
    # By a positive divisor: a negative dividend is smallest by the least divisor, and so on.
    below = None if low is None else low // least if low < 0 else _or_zero(low, most)
    above = None if high is None else high // least if high >= 0 else _or_minus_one(high, most)
    return below, above


def _or_zero(value: int, divisor: int | None) -> int:
    return 0 if divisor is None else value // divisor


def _or_minus_one(value: int, divisor: int | None) -> int:
    return -1 if divisor is None else value // divisor


# ------------------------------------------------------------------------------ bounds of a call
def without_quotient(terms: Terms, atom: Call) -> Terms | None:
    """A polynomial with the sign of `terms`, without the quotient `atom` of a positive divisor.

    With q = (a - r) / b, where r = a % b: b * (c*q + rest) = c*(a - r) + b*rest. None where the
    polynomial has q in other terms than c*q.
    """
    rest = dict(terms)
    c = rest.pop((atom,))
    if any(atom in monomial for monomial in rest):
        return None
    table = next(v.table for v in (atom.left, atom.right) if isinstance(v, SymInt))
    numerator = table.terms_of(atom.left - table.call("%", atom.left, atom.right))
    return add(multiply(rest, table.terms_of(atom.right)), scaled(numerator, c))


# ---------------------------------------------------------------------------------------- text
def text_of(terms: Terms) -> str:
    """`s0*s1 - 2*s0 + 3`."""
    words: list[str] = []
    for monomial, c in sorted(terms.items(), key=_reading_order):
        words += ["-" if c < 0 else "+", _product(monomial, c)]
    if not words:
        return "0"
    return " ".join(words[1:]) if words[0] == "+" else f"-{' '.join(words[1:])}"


def _reading_order(term: tuple[Monomial, int]) -> tuple[int, list[tuple[bool, int]]]:
    return -len(term[0]), sorted(map(_place, term[0]))


def _place(atom: Atom) -> tuple[bool, int]:
    """Symbols before calls: when a call was made, and its symbols, does not change a text."""
    return not isinstance(atom, Symbol), atom.number


def _product(monomial: Monomial, c: int) -> str:
    """The term without its sign."""
    alone = len(monomial) == 1 and c == 1
    factors = [_factor(atom, alone=alone) for atom in sorted(monomial, key=_place)]
    number = [str(abs(c))] if abs(c) != 1 or not monomial else []
    return "*".join(number + factors)


def _factor(atom: Atom, *, alone: bool) -> str:
    text = str(atom)
    if isinstance(atom, Computed):
        return f"({text})" if atom.operation.is_sign else text
    plain = alone or not isinstance(atom, Call) or atom.function in ("max", "min")
    return text if plain else f"({text})"


# --------------------------------------------------------------------------------------- settling
def settled(table: Settling, value: Value) -> Value:
    """The number with what is known of its atoms in their place: `s0*s1` is `4*s1` where s0 is 4,
    and all symbols that are equal are one. Nothing is assumed."""
    if not isinstance(value, SymInt):
        return value
    found: Value = 0
    for monomial, c in table.facts.settled(value.terms).items():
        product: Value = c
        for atom in monomial:
            product = product * _settled_atom(table, atom)
        found = found + product
    return found


def _settled_atom(table: Settling, atom: Atom) -> Value:
    if not isinstance(atom, Call):
        return table.of({(atom,): 1})
    operands = [settled(table, each) for each in (atom.left, atom.right)]
    if atom.function in ("//", "%") and (operands[1] != 0) is not True:
        return table.of({(atom,): 1})
    if any(isinstance(each, SymInt) for each in operands):
        return table.call(atom.function, *operands)
    return FUNCTIONS[atom.function](*[int(each) for each in operands])


class Settling(Table, Protocol):
    """A table, with the facts on its atoms."""

    @property
    def facts(self) -> KnownTerms: ...


class KnownTerms(Protocol):
    """What is known of atoms (`proofs.Facts`)."""

    def settled(self, terms: Terms) -> Terms:
        """The polynomial with known atoms replaced by their values."""
