"""Shifts and the bitwise complement of integers. All exact.

As in PyTorch a shift by a negative number of bits, or by the width or more, leaves only the sign.
`gcd` and `lcm` are not here: their loops depend on the values, and have no short tree.
"""

from __future__ import annotations

from aotlite.ir.scalar.expression import Scalar, const, make, where
from aotlite.ir.scalar.functions.function_registry import body, is_bool, is_integer


def _amount(a: Scalar, b: Scalar) -> tuple[Scalar, Scalar]:
    """Returns (whether 0 <= b < the width of a, b if so, else 0)."""
    width = 8 * a.dtype.itemsize
    inside = (b < width) if not b.dtype.is_signed else (b >= 0) & (b < width)
    return inside, where(inside, b, const(0, b.dtype))


@body(is_integer)
def left_shift(a: Scalar, b: Scalar) -> Scalar:
    inside, amount = _amount(a, b)
    return where(inside, a << amount, const(0, a.dtype))


@body(is_integer)
def right_shift(a: Scalar, b: Scalar) -> Scalar:
    inside, amount = _amount(a, b)
    nothing = const(0, a.dtype)
    left = where(a < 0, const(-1, a.dtype), nothing) if a.dtype.is_signed else nothing
    return where(inside, a >> amount, left)


@body(is_integer)
def invert(a: Scalar) -> Scalar:
    return make("bit_not", a)


@body(is_bool)
def invert_bool(a: Scalar) -> Scalar:
    return make("not", a)


@body(is_bool)
def and_of_bools(a: Scalar, b: Scalar) -> Scalar:
    return a & b


@body(is_bool)
def or_of_bools(a: Scalar, b: Scalar) -> Scalar:
    return a | b


@body(is_bool)
def xor_of_bools(a: Scalar, b: Scalar) -> Scalar:
    return a ^ b
