"""Powers of a positive constant in float64, such as 0.999 ** step of a bias correction.

The logarithm of the constant is known to twice the digits of a float64, and so is its product with
the exponent: a normal result is within 2 ulp.
"""

from __future__ import annotations

import math
from decimal import Context, Decimal
from functools import cache

from aotlite.ir.scalar.expression import Scalar, const, function, make, where
from aotlite.ir.scalar.functions.function_registry import body, is_f64
from aotlite.ir.scalar.functions.scalar_terms import halves

_DIGITS = Context(prec=60)
_BEYOND = 1100.0
"""Exponents of 2 beyond which the result is 0 or infinity."""
_LARGEST = 2.0**70
"""An exponent with which any base but 1 gives 0 or infinity."""


def power_of_number(base: float, y: Scalar) -> Scalar | None:
    """Returns `base` to the power y, a float64; None unless the base is positive and finite."""
    if not 0.0 < base < math.inf:
        return None
    if base == 1.0:
        return const(1.0, y.dtype)
    return function("exp2_times", y.dtype, y, *[const(part, y.dtype) for part in _log2(base)])


@cache
def _log2(base: float) -> tuple[float, float]:
    """Returns the base-2 logarithm as (high, low), whose sum has twice a float64's digits."""
    exact = _DIGITS.divide(Decimal(base).ln(_DIGITS), Decimal(2).ln(_DIGITS))
    high = float(exact)
    return high, float(_DIGITS.subtract(exact, Decimal(high)))


@body(is_f64, ulp=2.0, domain="results that are normal")
def exp2_times(y: Scalar, high: Scalar, low: Scalar) -> Scalar:
    """Returns 2^(y (high + low)) for a logarithm high + low of a float64."""
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
    """Returns x clamped to -most and most; NaN stays."""
    return where(x > most, most, where(x < -most, -most, x))
