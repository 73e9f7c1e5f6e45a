"""exp, exp2, expm1 and exp_nonpositive: 2^k times a polynomial of the rest.

Cody and Waite: x = k log(2) + r with an integer k, where log(2) is a sum of two numbers such that k
times the first is exact. Denormal results are rounded once (`scaled`).
"""

from __future__ import annotations

import math

from aotlite.ir.scalar.expression import Scalar, where
from aotlite.ir.scalar.functions.coefficients import (
    EXP2_32,
    EXP2_64,
    EXP_32,
    EXP_64,
    EXPM1_32,
    EXPM1_64,
)
from aotlite.ir.scalar.functions.function_registry import body, is_f32, is_f64, is_float
from aotlite.ir.scalar.functions.scalar_terms import (
    BIAS,
    F32,
    F64,
    above,
    below,
    horner,
    power_of_two,
    scaled,
    size,
    whole,
)

LOG2_E = math.log2(math.e)
# log(2): its first 15 (32) bits, of which a product with k is exact; the rest.
LOG_2 = {
    F32: (float.fromhex("0x1.62e4p-1"), float.fromhex("0x1.7f7d1cf79abcap-20")),
    F64: (float.fromhex("0x1.62e42fee00000p-1"), float.fromhex("0x1.a39ef35793c76p-33")),
}
_EXP = {F32: EXP_32, F64: EXP_64}
_LIFTED = {F32: 100, F64: 600}  # makes the least result and 1 normal numbers
_DENORMAL = {F32: -104.0, F64: -746.0}  # exp rounds to 0
_OVERFLOWS = {F32: 89.0, F64: 710.0}
_MOST = {F32: 129, F64: 1025}
"""A power of two whose product with any value of the polynomial is infinite."""


def reduced(x: Scalar, more: int, most: int | None = None) -> tuple[Scalar, Scalar]:
    """Returns (r, k + more) with x = k log(2) + r and |r| <= log(2) / 2, up to rounding.

    k is at most `most`; r is larger where x would need a larger k.
    """
    n, k = whole(x * LOG2_E, more, most)
    high, low = LOG_2[x.dtype]
    return x - n * high - n * low, k


def _near_one(r: Scalar) -> Scalar:
    """Returns exp(r) for |r| <= log(2) / 2; for larger r > 0 something larger, or infinity."""
    return horner(r, (*_EXP[r.dtype], 1.0, 1.0))


def _exp(x: Scalar) -> Scalar:
    """exp. It does not clamp x, for which gcc 12 needs seven instructions, since NaN must stay.

    An x that is too large gets the largest k and a large r, and overflows by itself.
    """
    r, k = reduced(x, 2 * BIAS[x.dtype], _MOST[x.dtype])
    return where(x < _DENORMAL[x.dtype], 0.0, scaled(_near_one(r), k))


def bounded_exp(x: Scalar) -> Scalar:
    """exp of a float32 with |x| <= 86: no clamping, and one multiplication by a power of two."""
    r, k = reduced(x, BIAS[x.dtype])
    return _near_one(r) * power_of_two(k, x.dtype)


exp = body(is_float, ulp=1.5)(_exp)


@body(is_float, ulp=1.5, domain="x <= 0, nan")
def exp_nonpositive(x: Scalar) -> Scalar:
    """exp of x <= 0, with the same bits as `exp`. 2^k is computed larger by a fixed power of two,
    so that it is normal, and the result multiplied by the inverse of that power."""
    lifted = _LIFTED[x.dtype]
    r, k = reduced(x, BIAS[x.dtype] + lifted)
    found = _near_one(r) * power_of_two(k, x.dtype) * 2.0**-lifted
    return where(x < _DENORMAL[x.dtype], 0.0, found)


def _exp2(x: Scalar, coefficients: tuple[float, ...], low: float) -> Scalar:
    n, k = whole(x, 2 * BIAS[x.dtype], _MOST[x.dtype])
    found = scaled(horner(x - n, (*coefficients, 1.0)), k)
    return where(x < low, 0.0, found)


@body(is_f32, ulp=1.5)
def exp2_32(x: Scalar) -> Scalar:
    return _exp2(x, EXP2_32, -151.0)


@body(is_f64, ulp=1.5)
def exp2_64(x: Scalar) -> Scalar:
    return _exp2(x, EXP2_64, -1076.0)


_NEAR = 0.52
_LINEAR = {F32: 1e-8, F64: 1e-17}  # expm1(x) rounds to x


def _expm1(x: Scalar, coefficients: tuple[float, ...], minus_one: float) -> Scalar:
    """expm1 as 2^k (exp(r) - 1) + (2^k - 1); only the polynomial of the first part is rounded.

    It computes half of it, and doubles that: 2^k itself may overflow where the result does not.
    """
    small = above(below(x, _OVERFLOWS[x.dtype]), minus_one)
    # Near 1/2 the two parts would cancel: the polynomial reaches further than exp's.
    near = size(small) < _NEAR
    r, k = reduced(small, BIAS[x.dtype] - 1)
    r, k = where(near, small, r), where(near, BIAS[x.dtype] - 1, k)
    rest = r * r * horner(r, coefficients) + r
    half = power_of_two(k, x.dtype)
    found = (half * rest + (half - 0.5)) * 2.0
    return where(size(x) < _LINEAR[x.dtype], x, found)


@body(is_f32, ulp=1.5)
def expm1_32(x: Scalar) -> Scalar:
    return _expm1(x, EXPM1_32, -18.0)


@body(is_f64, ulp=2.0)
def expm1_64(x: Scalar) -> Scalar:
    return _expm1(x, EXPM1_64, -38.0)
