"""pow: floats by logarithm and exponential, integers by squaring, small constant exponents by
products.

float32 is computed in float64 and rounded once. Special cases are those of C's pow.
"""

from __future__ import annotations

import math
from typing import Any

from aotlite.ir.scalar.expression import Scalar, bits, const, make, where
from aotlite.ir.scalar.functions.bodies.logarithms import parts, short_log
from aotlite.ir.scalar.functions.coefficients import EXP2_64_SHORT
from aotlite.ir.scalar.functions.function_registry import body, is_f32, is_signed, is_unsigned
from aotlite.ir.scalar.functions.scalar_terms import (
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
    """Returns log2(|x|) of a float32, in float64 with a relative error of 2^-37."""
    positive = size(wide(x))
    k, m = parts(positive)
    found = where(positive < INF, k + short_log(m) * _LOG2_E, positive)
    return where(eq(positive, 0.0), -INF, found)


def _short_exp2(x: Scalar) -> Scalar:
    """Returns 2^x in float64 with a relative error of 2^-33, clamped to the range of float32."""
    x = below(above(x, -200.0), 200.0)
    n, k = whole(x, BIAS[x.dtype])
    r = x - n
    return (r * horner(r, EXP2_64_SHORT) + 1.0) * power_of_two(k, x.dtype)


def _is_odd(y: Scalar) -> Scalar:
    """Returns whether a float is an odd integer."""
    half = y * 0.5
    return eq(trunc(y), y) & ne(trunc(half), half)


def _signed_power(x: Scalar, y: Scalar, power: Scalar) -> Scalar:
    """Returns the power of |x| corrected for a negative x, exponents of 0, bases of 1 and NaN."""
    power = where(eq(size(x), 1.0), 1.0, power)
    power = where(is_nan(x) | is_nan(y), NAN, power)
    refused = (x < 0.0) & ne(trunc(y), y) & (x > -INF)
    power = where(refused, NAN, power)
    sign = where(_is_odd(y), unsigned(x) & sign_mask(x.dtype), 0)
    power = bits(unsigned(power) ^ sign, x.dtype)
    return where(eq(y, 0.0) | eq(x, 1.0), 1.0, power)


@body(is_f32, ulp=0.6)
def pow32(x: Scalar, y: Scalar) -> Scalar:
    return _signed_power(x, y, narrow(_short_exp2(wide(y) * _log2_of_size(x))))


# ---------------------------------------------------------------------------------------- integers
def _by_squaring(base: Scalar, exponent: Scalar, steps: int) -> Scalar:
    """Returns the power with an exponent of `steps` bits; it wraps.

    From the highest bit on. From the lowest it would square the base again and again, of which gcc
    12 makes a closed formula when the base is loop-invariant: 2^31 terms, until memory is gone.
    """
    total = const(1, base.dtype)
    for step in reversed(range(steps)):
        taken = ne(exponent & (1 << step), 0)
        total = where(taken, total * total * base, total * total)
    return total


@body(is_unsigned)
def pow_unsigned(a: Scalar, b: Scalar) -> Scalar:
    return _by_squaring(a, b, 8 * a.dtype.itemsize)


@body(is_signed)
def pow_signed(a: Scalar, b: Scalar) -> Scalar:
    """pow of integers. A negative exponent gives 1 / a^-b, rounded towards 0."""
    odd = where(eq(b & 1, 0), 1, const(-1, a.dtype))
    inverse = where(eq(a, 1), a, where(eq(a, -1), odd, const(0, a.dtype)))
    return where(b < 0, inverse, _by_squaring(a, b, 8 * a.dtype.itemsize - 1))


# ------------------------------------------------------------------------------ constant exponents
_MOST = 8


def power_of_constant(base: Scalar, exponent: Any) -> Scalar | None:
    """Returns base^exponent as products, a root or a quotient; None if the exponent needs `pow`.

    Floats are within 1.5 ulp up to the fourth power; integers are exact.
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
    """Returns base^exponent by squaring."""
    total: Scalar | None = None
    while exponent:
        if exponent & 1:
            total = base if total is None else total * base
        exponent >>= 1
        base = base * base if exponent else base
    return const(1, base.dtype) if total is None else total
