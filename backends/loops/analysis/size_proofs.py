"""Questions about the ints of loop programs that may be symbolic sizes, answered for all sizes.

An extent, a coefficient or a start is an int, or a `SymInt` where a kernel serves several sizes
(`specs/sized_kernels.md`). Of ints these functions are Python's operators. Of symbols they answer
by proof, and else say that nothing is known. An axis counts as one of at least one point: without
points, whatever is said of each of them holds.
"""

from __future__ import annotations

from collections.abc import Iterable

from aotlite.ir.geometry.sizes import Size, maximum, minimum
from aotlite.ir.symbols.polynomial import divide
from aotlite.ir.symbols.proving import is_proved
from aotlite.ir.symbols.symint import SymInt

__all__ = [
    "exact_quotient",
    "floor_quotient",
    "has_points",
    "is_axis",
    "is_repeated",
    "maximum",
    "minimum",
    "reached",
]


def is_axis(extent: Size) -> bool:
    """Whether an axis may have more than one point."""
    return extent > 1 if type(extent) is int else True


def is_repeated(size: Size, to: Size) -> bool:
    """Whether an operand of this size has one element for all of an axis with `to` points, along
    which it broadcasts. x[:1] has min(1, s0) for s0: that is asked where they are no one number."""
    return size == 1 if type(size) is int else size is not to and bool(size < 2)


def has_points(extents: Iterable[Size]) -> bool:
    """Whether no extent is known to be 0."""
    return not any(type(extent) is int and extent == 0 for extent in extents)


def reached(coefficient: Size, first: Size, last: Size) -> tuple[Size, Size]:
    """Returns the least and the greatest value of coefficient * i for first <= i <= last.

    Raises Unproved for a coefficient of unknown sign.
    """
    one, other = coefficient * first, coefficient * last
    if is_proved(coefficient >= 0):
        return one, other
    if type(coefficient) is int or coefficient <= 0:
        return other, one
    return minimum(one, other), maximum(one, other)


def exact_quotient(number: Size, divisor: Size) -> Size | None:
    """Returns number / divisor where that is an int for all sizes, else None."""
    if type(number) is int and type(divisor) is int:
        return None if divisor == 0 or number % divisor else number // divisor
    if type(number) is int:
        return 0 if number == 0 else None
    if type(divisor) is int or number is divisor:
        found = number // divisor if number is not divisor else 1
        return found if found * divisor is number else None
    dividend, factor = _symbolic(number), _symbolic(divisor).terms
    if len(factor) != 1:
        return None
    ((factors, scale),) = factor.items()
    terms = {}
    for monomial, c in dividend.terms.items():
        rest = divide(monomial, factors)
        if rest is None or c % scale:
            return None
        terms[rest] = c // scale
    quotient: Size = dividend.table.of(terms)
    return quotient


def _symbolic(size: object) -> SymInt:
    assert isinstance(size, SymInt)
    return size


def floor_quotient(number: Size, divisor: Size) -> Size | None:
    """Returns number // divisor; None where no expression for it is known. The divisor is positive
    wherever there are points."""
    if type(number) is int and type(divisor) is int:
        return number // divisor
    exact = exact_quotient(number, divisor)
    if exact is not None:
        return exact
    if is_proved(number >= 0) and is_proved(number < divisor):
        return 0
    return number // divisor if type(divisor) is int else None
