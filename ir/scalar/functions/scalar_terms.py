"""The vocabulary of function bodies: comparisons, polynomials, bits of floats.

All of it vectorizes on any CPU: no tables, no conversions between 64-bit integers and floats (the
vector units before AVX-512 have none), and right shifts of unsigned integers only.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.scalar.expression import Operand, Scalar, bits, cast, const, function, make, where

INF = math.inf
NAN = math.nan
F32, F64 = dtypes.float32, dtypes.float64

SIGNED = {4: dtypes.int32, 8: dtypes.int64, 2: dtypes.int16}
UNSIGNED = {4: dtypes.uint32, 8: dtypes.uint64, 2: dtypes.uint16}
MANTISSA = {dtypes.float16: 10, dtypes.bfloat16: 7, F32: 23, F64: 52}
BIAS = {dtypes.float16: 15, dtypes.bfloat16: 127, F32: 127, F64: 1023}
MAGIC = {F32: 1.5 * 2.0**23, F64: 1.5 * 2.0**52}
"""Added to a small number, it rounds that to an integer, which then stands in the last bits of the
sum: the usual trick for rounding without a conversion."""


def eq(a: Operand, b: Operand) -> Scalar:
    """Returns a == b."""
    return make("eq", a, b)


def ne(a: Operand, b: Operand) -> Scalar:
    """Returns a != b."""
    return make("ne", a, b)


def negated(a: Scalar) -> Scalar:
    """Returns not a."""
    return make("not", a)


def is_nan(x: Scalar) -> Scalar:
    """Returns whether a float is NaN."""
    return ne(x, x)


def size(x: Scalar) -> Scalar:
    """Returns the absolute value."""
    return make("abs", x)


def root(x: Scalar) -> Scalar:
    """Returns the square root."""
    return make("sqrt", x)


def rint(x: Scalar) -> Scalar:
    """Returns the nearest integer as a float, halves to even."""
    return make("rint", x)


def trunc(x: Scalar) -> Scalar:
    """Returns the float rounded towards 0."""
    return make("trunc", x)


def floor(x: Scalar) -> Scalar:
    """Returns the float rounded down."""
    return make("floor", x)


def call(op: str, *operands: Scalar) -> Scalar:
    """Returns the call of a library function whose result has its operands' dtype."""
    return function(op, operands[0].dtype, *operands)


def wide(x: Scalar) -> Scalar:
    """Returns the value in float64."""
    return cast(x, F64)


def narrow(x: Scalar) -> Scalar:
    """Returns the value rounded to float32."""
    return cast(x, F32)


def horner(x: Scalar, coefficients: Sequence[float]) -> Scalar:
    """Returns the polynomial with these coefficients, highest power first, by Horner's rule."""
    total = const(coefficients[0], x.dtype)
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total


def polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    """Returns the polynomial with these coefficients, highest power first, of an
    array or scalar."""
    total = x * coefficients[0] + coefficients[1]
    for coefficient in coefficients[2:]:
        total *= x
        total += coefficient
    return total


def above(x: Scalar, limit: float) -> Scalar:
    """Returns the larger of x and the limit; NaN stays."""
    return where(x < limit, limit, x)


def below(x: Scalar, limit: float) -> Scalar:
    """Returns the smaller of x and the limit; NaN stays."""
    return where(x > limit, limit, x)


def at_most(x: Scalar, limit: float) -> Scalar:
    """Returns the smaller of x >= 0 and the limit; NaN becomes the limit.

    It compares the bits as integers, whose order is the same. gcc 12 makes one instruction of that,
    and two of `below`, which has to keep NaN.
    """
    return bits(_lesser(signed(x), bits_of(limit, x.dtype)), x.dtype)


def _lesser(x: Scalar, limit: int) -> Scalar:
    return where(x < limit, x, limit)


def bits_of(number: float, dtype: DType) -> int:
    """Returns the bits of a number in float32 or float64, as a signed Python int."""
    kinds = ("<d", "<q") if dtype is F64 else ("<f", "<i")
    return int(struct.unpack(kinds[1], struct.pack(kinds[0], number))[0])


# -------------------------------------------------------------------------------------------- bits
def signed(x: Scalar) -> Scalar:
    """Returns the bits of a float as a signed integer."""
    return bits(x, SIGNED[x.dtype.itemsize])


def unsigned(x: Scalar) -> Scalar:
    """Returns the bits of a float as an unsigned integer."""
    return bits(x, UNSIGNED[x.dtype.itemsize])


def sign_mask(dtype: DType) -> int:
    """Returns the mask of the sign bit."""
    return int(1 << (8 * dtype.itemsize - 1))


def signed_as(value: Scalar, sign: Scalar) -> Scalar:
    """Returns |value| with the sign bit of another float, as copysign: also of NaN and zeros."""
    mask = sign_mask(value.dtype)
    joined = (unsigned(value) & (mask - 1)) | (unsigned(sign) & mask)
    return bits(joined, value.dtype)


def with_sign(value: Scalar, sign: Scalar) -> Scalar:
    """Returns a value that is at least 0 with the sign bit of another: cheaper than `signed_as`."""
    return bits(unsigned(value) | (unsigned(sign) & sign_mask(value.dtype)), value.dtype)


def flipped(value: Scalar, sign: Scalar) -> Scalar:
    """Returns the value, negated where the sign bit of the other is set."""
    return bits(unsigned(value) ^ (unsigned(sign) & sign_mask(value.dtype)), value.dtype)


def halves(x: Scalar) -> tuple[Scalar, Scalar]:
    """Returns a float64 as (high, low): high has 21 bits, so that products of two are exact.

    By a mask. Dekker's split by products would be wrong under contraction to fma.
    """
    high = bits(unsigned(x) & 0xFFFFFFFF00000000, F64)
    return high, x - high


def whole(x: Scalar, more: int = 0, most: int | None = None) -> tuple[Scalar, Scalar]:
    """Returns (n, k): the integer nearest to x as a float, and n + `more` in the last bits of k.

    For |x| < 2^22 in float32, 2^51 in float64. The upper bits of k are those of `MAGIC`: a shift to
    the left by the mantissa's width removes them. For NaN and larger |x| both are arbitrary; but if
    `most` is given, larger x, and infinity, give the results of `most`.
    """
    magic = MAGIC[x.dtype] + more
    shifted = x + magic
    k = signed(shifted)
    if most is not None:
        k = _lesser(k, bits_of(magic + most, x.dtype))
        shifted = bits(k, x.dtype)
    return shifted - magic, k


def power_of_two(k: Scalar, dtype: DType) -> Scalar:
    """Returns 2^(k - BIAS), for 1 <= k <= 254 (2046 in float64) in the last bits of an integer."""
    return bits(k << MANTISSA[dtype], dtype)


def scaled(value: Scalar, k: Scalar) -> Scalar:
    """Returns value * 2^(k - 2 BIAS), by two powers of two: a denormal result is rounded once.

    `k` comes from `whole`. Its upper bits make it positive; halving and subtracting keeps them
    harmless for `power_of_two`.
    """
    half = bits(bits(k, UNSIGNED[k.dtype.itemsize]) >> 1, k.dtype)
    return value * power_of_two(half, value.dtype) * power_of_two(k - half, value.dtype)
