"""sin, cos, tan: x is reduced by the nearest multiple of pi/2, the rest goes to a polynomial.

Usual numbers are reduced by n times pi/2 in parts (Cody and Waite), of which products with n are
exact: sin and cos of |x| < 6432 in float32, tan of |x| < 2^29 in float64. Beyond, x is multiplied
by 1 / (2 pi) in parts whose products are exact, and whole turns are dropped from each product
(Payne and Hanek's idea, without a table). Of float64 there is none: exact reduction of its largest
numbers takes a thousand bits of pi.
"""

from __future__ import annotations

import math

from aotlite.ir import dtypes
from aotlite.ir.scalar.expression import Scalar, bits, cast, const, where
from aotlite.ir.scalar.functions.coefficients import (
    ATAN_64_SHORT,
    COS_32,
    COS_64,
    COS_64_SHORT,
    SIN_32,
    SIN_64,
    SIN_64_SHORT,
)
from aotlite.ir.scalar.functions.function_registry import body, is_f32
from aotlite.ir.scalar.functions.scalar_terms import (
    F32,
    F64,
    INF,
    eq,
    flipped,
    horner,
    narrow,
    rint,
    root,
    signed_as,
    size,
    whole,
    wide,
    with_sign,
)

# pi / 2: 22 bits, 20 bits, and the rest.
_FIRST = float.fromhex("0x1.921fb4p+0")
_SECOND = float.fromhex("0x1.4442dp-24")
_THIRD = float.fromhex("0x1.8469898cc5170p-48")
_PER_QUARTER = 2 / math.pi
_NEAR = 2.0**29

_PARTS_32 = tuple(map(float.fromhex, ("0x1.92p+0", "0x1.fb4p-12", "0x1.444p-24", "0x1.68c234p-39")))
"""pi / 2: three parts of at most 12 bits, and the rest."""
_NEAR_32 = 6432.0
"""2^12 quarter turns: as many bits of n."""

_PER_TURN = tuple(
    map(
        float.fromhex,
        (
            "0x1.45f306cp-3",
            "0x1.c9c882ap-31",
            "0x1.4fe13a8p-61",
            "0x1.f47d4d3p-88",
            "0x1.dc0db62p-118",
        ),
    )
)
_LAST = float.fromhex("0x1.2b32788720840p-147")
"""1 / (2 pi): 145 bits, in parts of 29, of which products with 24 bits are exact; the rest, whose
product is small."""
_COARSE = 1.5 * 2.0**26
"""Added to a number below 2^25, it rounds that to a multiple of 2^-26."""


def near_quarters(x: Scalar) -> tuple[Scalar, Scalar]:
    """Returns (r, n) with x = n pi/2 + r, for a float64 |x| < 2^29."""
    n, k = whole(x * _PER_QUARTER)
    return (x - n * _FIRST) - n * _SECOND - n * _THIRD, k


def _far_quarters(x: Scalar) -> tuple[Scalar, Scalar]:
    """Returns (r, n) for any float64 with 24 significant bits. Turns are summed as exact multiples
    of 2^-26 and a rest, as Payne and Hanek do."""
    coarse, fine = const(_COARSE, F64), const(0.0, F64)
    for part in _PER_TURN:
        product = x * part
        turn = product - rint(product)
        total = coarse + turn
        fine = fine + (turn - (total - coarse))
        coarse = total
    coarse = (coarse - _COARSE) * 4.0
    fine = (fine + x * _LAST) * 4.0
    n, k = whole(coarse)
    return ((coarse - n) + fine) * (math.pi / 2), k


def _near_quarters_32(x: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """Returns (r, the error of r, n) with x = n pi/2 + r, for a float32 |x| < 6432.

    x minus the first two products is exact, and so is the rest of the third: all are multiples of
    2^-34 with at most 24 bits, or the third is the smaller one.
    """
    first, second, third, rest = _PARTS_32
    n, k = whole(x * _PER_QUARTER)
    left = x - n * first - n * second
    high = left - n * third
    low = (left - high) - n * third - n * rest
    r = high + low
    return r, (high - r) + low, k


def _in_two(r: Scalar) -> tuple[Scalar, Scalar]:
    """A float64 as a float32 and what that lacks."""
    high = narrow(r)
    return high, narrow(r - wide(high))


def _waves(r: Scalar) -> tuple[Scalar, Scalar]:
    """sin(r) and cos(r) for |r| <= pi / 4, in float64."""
    squares = r * r
    sine = squares * r * horner(squares, SIN_64_SHORT) + r
    cosine = squares * squares * horner(squares, COS_64_SHORT) + (1.0 - squares * 0.5)
    return sine, cosine


def _waves32(high: Scalar, low: Scalar) -> tuple[Scalar, Scalar]:
    """The same in float32, of r in two parts."""
    squares = high * high
    sine = (squares * high * horner(squares, SIN_32) + low) + high
    rest = squares * squares * horner(squares, COS_32) - high * low
    return sine, rest + (1.0 - squares * 0.5)


def _near_waves64(x: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """(sin(r), cos(r), n) with x = n pi/2 + r, of a float64 |x| < 2^29."""
    r, k = near_quarters(x)
    squares = r * r
    sine = squares * r * horner(squares, SIN_64) + r
    cosine = squares * squares * horner(squares, COS_64) + (1.0 - squares * 0.5)
    return sine, cosine, k


def near_sin(x: Scalar) -> Scalar:
    """The sine of a float64 |x| < 2^29: a part of other functions, not one itself."""
    sine, cosine, k = _near_waves64(x)
    found = where(eq(k & 1, 0), sine, cosine)
    return bits(bits(found, dtypes.int64) ^ ((k & 2) << 62), F64)


def near_tan(x: Scalar) -> Scalar:
    """The tangent of a float64 |x| < 2^29: a part of other functions, not one itself."""
    sine, cosine, k = _near_waves64(x)
    straight = eq(k & 1, 0)
    return where(straight, sine, -cosine) / where(straight, cosine, sine)


def _turned(r: tuple[Scalar, Scalar], k: Scalar, sign: Scalar | None = None) -> Scalar:
    """The sine k quarter turns further, with another sign where `sign` has its first bit set."""
    sine, cosine = _waves32(*r)
    found = where(eq(k & 1, 0), sine, cosine)
    turn = (k & 2) << 30
    if sign is not None:
        turn = turn ^ (bits(sign, dtypes.int32) & -(2**31))
    return bits(bits(found, dtypes.int32) ^ turn, F32)


def _is_near_32(x: Scalar) -> Scalar:
    return size(x) < _NEAR_32


def _near_sin32(x: Scalar) -> Scalar:
    """Of |x|, so that zeros keep their sign."""
    high, low, k = _near_quarters_32(size(x))
    return _turned((high, low), k, x)


@body(is_f32, ulp=1.5, usual=(_is_near_32, _near_sin32))
def sin32(x: Scalar) -> Scalar:
    r, k = _far_quarters(wide(size(x)))
    far = _turned(_in_two(r), cast(k, dtypes.int32), x)
    return where(_is_near_32(x), _near_sin32(x), far)


def _near_cos32(x: Scalar) -> Scalar:
    high, low, k = _near_quarters_32(x)
    return _turned((high, low), k + 1)


@body(is_f32, ulp=1.5, usual=(_is_near_32, _near_cos32))
def cos32(x: Scalar) -> Scalar:
    r, k = _far_quarters(wide(x))
    far = _turned(_in_two(r), cast(k, dtypes.int32) + 1)
    return where(_is_near_32(x), _near_cos32(x), far)


def _is_near_64(x: Scalar) -> Scalar:
    return size(x) < _NEAR


def _tangent(r: Scalar, k: Scalar, sign: Scalar) -> Scalar:
    sine, cosine = _waves(r)
    straight = eq(k & 1, 0)
    tangent = where(straight, sine, -cosine) / where(straight, cosine, sine)
    return flipped(narrow(tangent), sign)


def _near_tan32(x: Scalar) -> Scalar:
    r, k = near_quarters(wide(size(x)))
    return _tangent(r, cast(k, dtypes.int32), x)


@body(is_f32, ulp=0.6, usual=(_is_near_64, _near_tan32))
def tan32(x: Scalar) -> Scalar:
    y = wide(size(x))
    near, (r, k), (far_r, far_k) = _is_near_64(x), near_quarters(y), _far_quarters(y)
    return _tangent(where(near, r, far_r), cast(where(near, k, far_k), dtypes.int32), x)


# ---------------------------------------------------------------------------------------- inverses
def _angle(y: Scalar, x: Scalar) -> Scalar:
    """The angle of (x, y) for float64 y >= 0, to 2^-33: of the smaller through the larger."""
    across = size(x)
    steep = y > across
    quotient = where(steep, across, y) / where(steep, y, across)
    squares = quotient * quotient
    angle = squares * quotient * horner(squares, ATAN_64_SHORT) + quotient
    angle = where(steep, math.pi / 2 - angle, angle)
    return where(x < 0.0, math.pi - angle, angle)


@body(is_f32, ulp=0.6)
def atan32(x: Scalar) -> Scalar:
    found = narrow(_angle(size(wide(x)), const(1.0, F64)))
    return with_sign(found, x)


@body(is_f32, ulp=0.6)
def atan2_32(y: Scalar, x: Scalar) -> Scalar:
    """Of two infinities the diagonal; of two zeros 0, or pi where x is -0."""
    across, up = wide(x), size(wide(y))
    diagonal = eq(size(across), INF) & eq(up, INF)
    nothing = eq(across, 0.0) & eq(up, 0.0)
    across = where(diagonal | nothing, signed_as(const(1.0, F64), across), across)
    up = where(diagonal, 1.0, up)
    return with_sign(narrow(_angle(up, across)), y)


def _leg(x: Scalar) -> Scalar:
    """sqrt(1 - x^2); nan beyond 1."""
    return root((1.0 - x) * (x + 1.0))


@body(is_f32, ulp=0.6)
def asin32(x: Scalar) -> Scalar:
    positive = size(wide(x))
    return with_sign(narrow(_angle(positive, _leg(positive))), x)


@body(is_f32, ulp=0.6)
def acos32(x: Scalar) -> Scalar:
    value = wide(x)
    return narrow(_angle(_leg(value), value))
