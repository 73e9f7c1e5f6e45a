"""Reproducible sums of floats in a scatter: fixed-point numbers, whose order does not matter.

Atomic additions of floats round in the order in which threads come. Here one pass finds the largest
exponent at each address by an atomic maximum of integers. A second pass adds all values there as
64-bit integers scaled by that exponent. Both are exact in any order, and keep more bits than a
float that is rounded at each step: 62 minus log2 of the number of points, twice that for float64.
Infinities and NaNs are counted. Input and output: expressions of the loop IR. Spec:
`specs/cuda_printer.md`.
"""

from __future__ import annotations

import math

import attrs

from aotlite.ir.dtypes import DType, float64, int32, int64
from aotlite.ir.scalar.expression import Scalar, bits, cast, const, make, where

NOTHING, NEGATIVE_ZERO, ZERO = 0, 1, 2
"""Codes below those of exponents: no value; only -0.0; only zeros of both signs."""
_FIRST = 2
_SPECIAL = 2047 + _FIRST
"""The code of addresses with an infinity or NaN."""
_BIAS = 1023
MOST = (1 << 31) - 1
"""The most points of a row: infinities of each sign are counted in 31 bits."""


@attrs.frozen
class ExactSum:
    """The exact sum of values of a dtype, of at most `points` values."""

    dtype: DType
    points: int

    @property
    def room(self) -> int:
        """The bits of a value in a 64-bit sum: carries of the points and the sign take the rest."""
        return 62 - (self.points - 1).bit_length()

    @property
    def parts(self) -> int:
        """The number of integer sums that make up one sum."""
        return 2 if self.dtype is float64 else 1

    def code(self, value: Scalar) -> Scalar:
        """Returns the magnitude of a value as an int32: its exponent, or a code below."""
        wide = cast(value, float64)
        word = bits(wide, int64)
        field = make("bit_and", make("shr", word, 52), 2047)
        exponent = where(field < 1, 1, field) + _FIRST
        zero = where(word < 0, const(NEGATIVE_ZERO, int64), const(ZERO, int64))
        return cast(where(make("eq", wide, 0.0), zero, exponent), int32)

    def terms(self, value: Scalar, code: Scalar) -> list[Scalar]:
        """Returns the int64 terms that a value adds to the sums of an address with this code."""
        wide, special = cast(value, float64), make("eq", code, _SPECIAL)
        first, second = self._scale(code, 1)
        scaled = where(special, const(0.0, float64), wide) * first * second
        whole = make("rint", scaled)
        found = [where(special, _counted(wide), cast(whole, int64))]
        if self.parts == 2:
            rest = (scaled - whole) * math.ldexp(1.0, self.room)
            found.append(cast(make("rint", rest), int64))
        return found

    def added(self, old: Scalar, sums: list[Scalar], code: Scalar) -> Scalar:
        """Returns the old value plus the sums of an address with this code."""
        total = cast(sums[0], float64)
        if self.parts == 2:
            total = total + cast(sums[1], float64) * math.ldexp(1.0, -self.room)
        first, second = self._scale(code, -1)
        total = total * first * second
        total = where(make("eq", code, NEGATIVE_ZERO), const(-0.0, float64), total)
        total = where(make("eq", code, _SPECIAL), _uncounted(sums[0]), total)
        return where(make("eq", code, NOTHING), old, cast(cast(old, float64) + total, self.dtype))

    def _scale(self, code: Scalar, sign: int) -> tuple[Scalar, Scalar]:
        """Returns two factors whose product is the power of two that scales values to integers, or
        its inverse: a single float64 might not hold it."""
        exponent = where(code <= _FIRST, const(1, int32), code - _FIRST)
        power = cast(self.room + _BIAS - 1 - exponent, int64)
        half = make("shr", power, 1)
        return _power(half * sign), _power((power - half) * sign)


def _power(exponent: Scalar) -> Scalar:
    """Returns 2 to a power between -1022 and 1023."""
    return bits(make("shl", exponent + _BIAS, 52), float64)


def _counted(wide: Scalar) -> Scalar:
    """Returns 1 for inf and 2^31 for -inf; their sum for NaN."""
    above, below = const(1, int64), const(1 << 31, int64)
    found = where(make("eq", wide, math.inf), above, 0)
    found = where(make("eq", wide, -math.inf), below, found)
    return where(make("ne", wide, wide), const(1 | 1 << 31, int64), found)


def _uncounted(count: Scalar) -> Scalar:
    above = make("ne", make("bit_and", count, MOST), 0)
    below = make("ne", make("shr", count, 31), 0)
    one = where(above, const(math.inf, float64), const(-math.inf, float64))
    return where(make("and", above, below), const(math.nan, float64), one)
