"""Sums of floats at positions that are read, which no order of points changes: whole numbers.

The largest exponent at an address is a maximum of whole numbers. All values there, as multiples of
what that exponent leaves room for, are a sum of whole numbers. Both are atomic operations whose
order changes nothing, and hold more bits than a float that is rounded at each step: 62 less those
that the number of points takes, twice as many for float64. What is no number is counted.
Input: expressions of the loop IR; output: such. Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

import math

import attrs

from aotlite.backends.loops.expr import Scalar, bits, cast, const, make, where
from aotlite.ir.dtypes import DType, float64, int32, int64

NOTHING, NEGATIVE_ZERO, ZERO = 0, 1, 2
"""Codes below those of exponents: no value, none but -0.0, none but zeros. Sums know the sign."""
_FIRST = 2
_SPECIAL = 2047 + _FIRST
"""Of addresses where something is infinite, or not a number."""
_BIAS = 1023
MOST = (1 << 31) - 1
"""Points of a row, whose infinities of each sign are counted in 31 bits."""


@attrs.frozen
class ExactSum:
    """How values of a dtype are added up, of so many points at most."""

    dtype: DType
    points: int

    @property
    def room(self) -> int:
        """Bits of a value in a sum of 64, of which the points take some, and the sign one."""
        return 62 - (self.points - 1).bit_length()

    @property
    def parts(self) -> int:
        """Sums of whole numbers that a sum is made of."""
        return 2 if self.dtype is float64 else 1

    def code(self, value: Scalar) -> Scalar:
        """How large a value is, as an int32: its exponent."""
        wide = cast(value, float64)
        word = bits(wide, int64)
        field = make("bit_and", make("shr", word, 52), 2047)
        exponent = where(field < 1, 1, field) + _FIRST
        zero = where(word < 0, const(NEGATIVE_ZERO, int64), const(ZERO, int64))
        return cast(where(make("eq", wide, 0.0), zero, exponent), int32)

    def terms(self, value: Scalar, code: Scalar) -> list[Scalar]:
        """What a value adds to the sums of an address with this largest code. int64"""
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
        """What was there, and the sums of an address with this largest code."""
        total = cast(sums[0], float64)
        if self.parts == 2:
            total = total + cast(sums[1], float64) * math.ldexp(1.0, -self.room)
        first, second = self._scale(code, -1)
        total = total * first * second
        total = where(make("eq", code, NEGATIVE_ZERO), const(-0.0, float64), total)
        total = where(make("eq", code, _SPECIAL), _uncounted(sums[0]), total)
        return where(make("eq", code, NOTHING), old, cast(cast(old, float64) + total, self.dtype))

    def _scale(self, code: Scalar, sign: int) -> tuple[Scalar, Scalar]:
        """The power of two by which values are multiples of 1, or its inverse: two factors, since
        it may be no float64 itself."""
        exponent = where(code <= _FIRST, const(1, int32), code - _FIRST)
        power = cast(self.room + _BIAS - 1 - exponent, int64)
        half = make("shr", power, 1)
        return _power(half * sign), _power((power - half) * sign)


def _power(exponent: Scalar) -> Scalar:
    """Two to a power between -1022 and 1023."""
    return bits(make("shl", exponent + _BIAS, 52), float64)


def _counted(wide: Scalar) -> Scalar:
    """The number of positive infinities, and of negative ones times 2^31; a NaN is both."""
    above, below = const(1, int64), const(1 << 31, int64)
    found = where(make("eq", wide, math.inf), above, 0)
    found = where(make("eq", wide, -math.inf), below, found)
    return where(make("ne", wide, wide), const(1 | 1 << 31, int64), found)


def _uncounted(count: Scalar) -> Scalar:
    above = make("ne", make("bit_and", count, MOST), 0)
    below = make("ne", make("shr", count, 31), 0)
    one = where(above, const(math.inf, float64), const(-math.inf, float64))
    return where(make("and", above, below), const(math.nan, float64), one)
