"""Powers of a positive number in float64: what schedules and bias corrections are made of.

The logarithm of a number is known to twice the digits of a float64, so that the product with the
exponent is, too: the result is within 2 ulp of the power wherever it is normal.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal
from functools import cache

from aotlite.backends.loops.expr import Scalar, const, function, make, where
from aotlite.backends.loops.functions.function_registry import declare, is_f64
from aotlite.backends.loops.functions.scalar_terms import halves

_DIGITS = Context(prec=60)
_BEYOND = 1100.0
"""Powers of 2 below and above which nothing but 0 and infinity is left."""
_LARGEST = 2.0**70
"""An exponent that leaves nothing else of any number but 1."""


def power_of_number(base: float, y: Scalar) -> Scalar | None:
    """`base` to the power y, a float64; None for a base that is not positive and finite."""
    if not 0.0 < base < math.inf:
        return None
    if base == 1.0:
        return const(1.0, y.dtype)
    return function("exp2_times", y.dtype, y, *[const(part, y.dtype) for part in _log2(base)])


@cache
def _log2(base: float) -> tuple[float, float]:
    """The logarithm, as the sum of two numbers."""
    exact = _DIGITS.divide(Decimal(base).ln(_DIGITS), Decimal(2).ln(_DIGITS))
    high = float(exact)
    return high, float(_DIGITS.subtract(exact, Decimal(high)))


@declare("exp2_times", is_f64, 3, ulp=2.0, domain="results that are normal")
def _exp2_times(y: Scalar, high: Scalar, low: Scalar) -> Scalar:
    """2^(y (high + low)), where low is what is left of a logarithm of 2^-60 to 2^1024."""
    y = _clamped(y, _LARGEST)
    (y_high, y_low), (head, tail) = halves(y), halves(high)
    product = y_high * head  # exact, so that contraction with what follows changes nothing
    rest = (y_high * tail + y_low * high) + y * low
    far = _clamped(product, _BEYOND)
    whole = make("rint", far)
    part = where(make("eq", far, product), (product - whole) + rest, 0.0)
    half = make("trunc", whole * 0.5)  # 2^1024 is no number, though a little less may be
    return _two_to(part) * _two_to(half) * _two_to(whole - half)


def _two_to(x: Scalar) -> Scalar:
    return function("exp2", x.dtype, x)


def _clamped(x: Scalar, most: float) -> Scalar:
    """nan stays."""
    return where(x > most, most, where(x < -most, -most, x))
