"""What bodies of functions are written with: comparisons, polynomials, bits of floats.

All of it vectorises: no tables, no conversions between 64-bit integers and floats (the CPU's vector
units before AVX-512 have none), shifts to the right of unsigned numbers only.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

from aotlite.backends.loops.expr import Scalar, bits, cast, const, function, make, where
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType

INF = math.inf
NAN = math.nan
F32, F64 = dtypes.float32, dtypes.float64

SIGNED = {4: dtypes.int32, 8: dtypes.int64, 2: dtypes.int16}
UNSIGNED = {4: dtypes.uint32, 8: dtypes.uint64, 2: dtypes.uint16}
MANTISSA = {dtypes.float16: 10, dtypes.bfloat16: 7, F32: 23, F64: 52}
BIAS = {dtypes.float16: 15, dtypes.bfloat16: 127, F32: 127, F64: 1023}
MAGIC = {F32: 1.5 * 2.0**23, F64: 1.5 * 2.0**52}
"""Added to a number below a quarter of it, it leaves the nearest whole one in the last bits."""


def eq(a: Any, b: Any) -> Scalar:
    """a == b."""
    return make("eq", a, b)


def ne(a: Any, b: Any) -> Scalar:
    """a != b."""
    return make("ne", a, b)


def negated(a: Scalar) -> Scalar:
    """not a."""
    return make("not", a)


def is_nan(x: Scalar) -> Scalar:
    """Whether a float is nan."""
    return ne(x, x)


def size(x: Scalar) -> Scalar:
    """The absolute value."""
    return make("abs", x)


def root(x: Scalar) -> Scalar:
    """The square root."""
    return make("sqrt", x)


def rint(x: Scalar) -> Scalar:
    """The nearest whole number, halves to even ones."""
    return make("rint", x)


def trunc(x: Scalar) -> Scalar:
    """The whole part."""
    return make("trunc", x)


def floor(x: Scalar) -> Scalar:
    """The whole number below."""
    return make("floor", x)


def call(op: str, *operands: Scalar) -> Scalar:
    """A function of the library that gives what its operands are."""
    return function(op, operands[0].dtype, *operands)


def wide(x: Scalar) -> Scalar:
    """The value in float64."""
    return cast(x, F64)


def narrow(x: Scalar) -> Scalar:
    """The value rounded to float32."""
    return cast(x, F32)


def horner(x: Scalar, coefficients: Sequence[float]) -> Scalar:
    """The polynomial with these coefficients, highest power first."""
    total = const(coefficients[0], x.dtype)
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total


def above(x: Scalar, limit: float) -> Scalar:
    """x, or the limit where x is less; nan stays."""
    return where(x < limit, limit, x)


def below(x: Scalar, limit: float) -> Scalar:
    """x, or the limit where x is more; nan stays."""
    return where(x > limit, limit, x)


def at_most(x: Scalar, limit: float) -> Scalar:
    """x, or the limit where x is more; x is at least 0, and nan becomes the limit.

    As integers, whose order is the same: gcc 12 makes a comparison and a choice of `below`, since
    nan is to stay, and of this one instruction.
    """
    return bits(_lesser(signed(x), bits_of(limit, x.dtype)), x.dtype)


def _lesser(x: Scalar, limit: int) -> Scalar:
    return where(x < limit, x, limit)


def bits_of(number: float, dtype: DType) -> int:
    """The bits of a float32 or float64, as a signed integer."""
    kinds = ("<d", "<q") if dtype is F64 else ("<f", "<i")
    return int(struct.unpack(kinds[1], struct.pack(kinds[0], number))[0])


# -------------------------------------------------------------------------------------------- bits
def signed(x: Scalar) -> Scalar:
    """The bits of a float as a signed integer."""
    return bits(x, SIGNED[x.dtype.itemsize])


def unsigned(x: Scalar) -> Scalar:
    """The bits of a float as an unsigned integer."""
    return bits(x, UNSIGNED[x.dtype.itemsize])


def sign_mask(dtype: DType) -> int:
    """The sign's bit, as an unsigned integer."""
    return int(1 << (8 * dtype.itemsize - 1))


def signed_as(value: Scalar, sign: Scalar) -> Scalar:
    """|value| with the sign of another, of nan and zeros too."""
    mask = sign_mask(value.dtype)
    joined = (unsigned(value) & (mask - 1)) | (unsigned(sign) & mask)
    return bits(joined, value.dtype)


def with_sign(value: Scalar, sign: Scalar) -> Scalar:
    """A value at least 0 with the sign of another: one operation less than `signed_as`."""
    return bits(unsigned(value) | (unsigned(sign) & sign_mask(value.dtype)), value.dtype)


def flipped(value: Scalar, sign: Scalar) -> Scalar:
    """The value, its sign turned where the other's is set."""
    return bits(unsigned(value) ^ (unsigned(sign) & sign_mask(value.dtype)), value.dtype)


def halves(x: Scalar) -> tuple[Scalar, Scalar]:
    """A float64 as a part of 21 bits, products of which are exact, and the rest.

    By a mask: a split by products (Dekker's) is none where they are contracted.
    """
    high = bits(unsigned(x) & 0xFFFFFFFF00000000, F64)
    return high, x - high


def whole(x: Scalar, more: int = 0, most: int | None = None) -> tuple[Scalar, Scalar]:
    """The nearest whole number, as a float and, plus `more`, in an integer's last bits.

    |x| < 2^22 (2^51). The integer is 2^9 (2^12) times something too large. Of nan and of larger x
    it is arbitrary; but of those above `most`, which includes infinity, both are of `most`.
    """
    magic = MAGIC[x.dtype] + more
    shifted = x + magic
    k = signed(shifted)
    if most is not None:
        k = _lesser(k, bits_of(magic + most, x.dtype))
        shifted = bits(k, x.dtype)
    return shifted - magic, k


def power_of_two(k: Scalar, dtype: DType) -> Scalar:
    """2^(k - BIAS) of an integer's last bits: 1 <= k <= 254 (2046 in float64)."""
    return bits(k << MANTISSA[dtype], dtype)


def scaled(value: Scalar, k: Scalar) -> Scalar:
    """value * 2^(k - 2 BIAS) in two steps: a result which is not normal is rounded once.

    `k` is of `whole`: positive by what it has too much, and half of that is too much alike.
    """
    half = bits(bits(k, UNSIGNED[k.dtype.itemsize]) >> 1, k.dtype)
    return value * power_of_two(half, value.dtype) * power_of_two(k - half, value.dtype)
