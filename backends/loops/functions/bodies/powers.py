"""pow: of floats by logarithm and exponential, of integers by squaring, and of a constant exponent
by a few products.

float32 is computed in float64 and rounded once. The special cases are those of C's pow.
"""

from __future__ import annotations

import math
from typing import Any

from aotlite.backends.loops.expr import Scalar, bits, const, make, where
from aotlite.backends.loops.functions.bodies.logarithms import parts, short_log
from aotlite.backends.loops.functions.coefficients import EXP2_64_SHORT
from aotlite.backends.loops.functions.function_registry import (
    declare,
    is_f32,
    is_signed,
    is_unsigned,
)
from aotlite.backends.loops.functions.scalar_terms import (
    BIAS,
    INF,
    NAN,
    above,
    below,
    eq,
    horner,
    is_nan,
    narrow,
    ne,
    power_of_two,
    root,
    sign_mask,
    size,
    trunc,
    unsigned,
    whole,
    wide,
)

_LOG2_E = math.log2(math.e)


def _log2_of_size(x: Scalar) -> Scalar:
    """log2(|x|) in float64 to 2^-37 of itself, of a float32."""
    positive = size(wide(x))
    k, m = parts(positive)
    found = where(positive < INF, k + short_log(m) * _LOG2_E, positive)
    return where(eq(positive, 0.0), -INF, found)


def _short_exp2(x: Scalar) -> Scalar:
    """2^x in float64 to 2^-33, for results that float32 has."""
    x = below(above(x, -200.0), 200.0)
    n, k = whole(x, BIAS[x.dtype])
    r = x - n
    return (r * horner(r, EXP2_64_SHORT) + 1.0) * power_of_two(k, x.dtype)


def _is_odd(y: Scalar) -> Scalar:
    """Whether a float is an odd whole number."""
    half = y * 0.5
    return eq(trunc(y), y) & ne(trunc(half), half)


def _signed_power(x: Scalar, y: Scalar, power: Scalar) -> Scalar:
    """The power of |x| with what the sign of x, exponents 0 and bases 1 ask for."""
    power = where(eq(size(x), 1.0), 1.0, power)
    power = where(is_nan(x) | is_nan(y), NAN, power)
    refused = (x < 0.0) & ne(trunc(y), y) & (x > -INF)
    power = where(refused, NAN, power)
    sign = where(_is_odd(y), unsigned(x) & sign_mask(x.dtype), 0)
    power = bits(unsigned(power) ^ sign, x.dtype)
    return where(eq(y, 0.0) | eq(x, 1.0), 1.0, power)


@declare("pow", is_f32, 2, ulp=0.6)
def _pow32(x: Scalar, y: Scalar) -> Scalar:
    return _signed_power(x, y, narrow(_short_exp2(wide(y) * _log2_of_size(x))))


# ---------------------------------------------------------------------------------------- integers
def _by_squaring(base: Scalar, exponent: Scalar, steps: int) -> Scalar:
    """The power of an exponent of so many bits, wrapped.

    From the first bit: squares of squares of the base itself, where it does not change in a loop,
    are a formula to gcc 12, which it doubles with each (2^31 terms, until memory is gone).
    """
    total = const(1, base.dtype)
    for step in reversed(range(steps)):
        taken = ne(exponent & (1 << step), 0)
        total = where(taken, total * total * base, total * total)
    return total


@declare("pow", is_unsigned, 2)
def _pow_unsigned(a: Scalar, b: Scalar) -> Scalar:
    return _by_squaring(a, b, 8 * a.dtype.itemsize)


@declare("pow", is_signed, 2)
def _pow_signed(a: Scalar, b: Scalar) -> Scalar:
    """Of negative exponents 1 / a^-b, rounded towards 0."""
    odd = where(eq(b & 1, 0), 1, const(-1, a.dtype))
    inverse = where(eq(a, 1), a, where(eq(a, -1), odd, const(0, a.dtype)))
    return where(b < 0, inverse, _by_squaring(a, b, 8 * a.dtype.itemsize - 1))


# ------------------------------------------------------------------------------ constant exponents
_MOST = 8


def power_of_constant(base: Scalar, exponent: Any) -> Scalar | None:
    """base^exponent as products, a root or a quotient; None for exponents that need `pow`.

    Of floats it is within 1.5 ulp up to the fourth power; of integers exact.
    """
    if not base.dtype.is_floating_point:
        whole_number = isinstance(exponent, int) and 0 <= exponent <= _MOST
        return _product(base, int(exponent)) if whole_number else None
    if abs(exponent) == 0.5:
        return make("sqrt", base) if exponent > 0 else 1.0 / root(base)
    if exponent in (0, 1, 2, 3, 4):
        return _product(base, int(exponent))
    return 1.0 / base if exponent == -1 else None


def _product(base: Scalar, exponent: int) -> Scalar:
    """base^exponent by squaring."""
    total: Scalar | None = None
    while exponent:
        if exponent & 1:
            total = base if total is None else total * base
        exponent >>= 1
        base = base * base if exponent else base
    return const(1, base.dtype) if total is None else total
