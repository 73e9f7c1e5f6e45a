"""log, log1p, log2, log10: k times a constant plus a polynomial, for x = 2^k m.

m lies between sqrt(1/2) and sqrt(2), so that k is 0 near 1 and nothing cancels. The polynomial is
one of m - 1 in float32, of (m - 1) / (m + 1) in float64. Denormals are scaled up first.
"""

from __future__ import annotations

import math

from aotlite.ir import dtypes
from aotlite.ir.scalar.expression import Scalar, bits, cast, where
from aotlite.ir.scalar.functions.bodies.exponentials import LOG_2
from aotlite.ir.scalar.functions.coefficients import LOG_32, LOG_64, LOG_64_SHORT
from aotlite.ir.scalar.functions.function_registry import body, is_f32, is_f64
from aotlite.ir.scalar.functions.scalar_terms import (
    F32,
    F64,
    INF,
    MANTISSA,
    NAN,
    eq,
    halves,
    horner,
    narrow,
    size,
    unsigned,
    wide,
)

_ONE = {F32: 0x3F800000, F64: 0x3FF0000000000000}
_ROOT = {F32: 0x3F3504F3, F64: 0x3FE6A09E667F3BCD}
"""The bits of 1, and of the square root of 1/2."""
_LEAST_NORMAL = {F32: 2.0**-126, F64: 2.0**-1022}
_LIFT = {F32: 25, F64: 54}


def parts(x: Scalar) -> tuple[Scalar, Scalar]:
    """Returns (k, m) with x = 2^k m and m from sqrt(1/2) to sqrt(2), for a normal x > 0. Both are
    floats."""
    dtype = x.dtype
    places = MANTISSA[dtype]
    turned = unsigned(x) + (_ONE[dtype] - _ROOT[dtype])
    exponent = turned >> places
    m = bits((turned & ((1 << places) - 1)) + _ROOT[dtype], dtype)
    if dtype is F32:
        return cast(bits(exponent, dtypes.int32) - 127, F32), m
    # 64-bit integers have no conversion in vector units: the exponent is put into 2^52's last bits.
    return bits(exponent | 0x4330000000000000, F64) - (2.0**52 + 1023), m


def _lifted(x: Scalar) -> tuple[Scalar, Scalar]:
    """Returns `parts` of any x > 0, denormals too."""
    small = x < _LEAST_NORMAL[x.dtype]
    k, m = parts(where(small, x * 2.0 ** _LIFT[x.dtype], x))
    return where(small, k - float(_LIFT[x.dtype]), k), m


def _guarded(x: Scalar, found: Scalar) -> Scalar:
    """Returns the logarithm `found`, corrected for 0, negative numbers, infinity and NaN."""
    found = where(x < INF, found, x)
    found = where(x < 0.0, NAN, found)
    return where(eq(x, 0.0), -INF, found)


def _log32_of(f: Scalar, k: Scalar, rest: Scalar | None = None) -> Scalar:
    """Returns k log(2) + log(1 + f) + rest in float32; small parts are added first."""
    high, low = LOG_2[F32]
    squares = f * f
    small = squares * f * horner(f, LOG_32) + k * low
    small = small if rest is None else small + rest
    return k * high + (f + (small - squares * 0.5))


def _log64_of(f: Scalar, k: Scalar, rest: Scalar | None = None) -> Scalar:
    """Returns k log(2) + log(1 + f) + rest in float64, by s = f / (2 + f)."""
    high, low = LOG_2[F64]
    half = f * f * 0.5
    s = f / (f + 2.0)
    z = s * s
    series = s * (half + z * horner(z, LOG_64)) + k * low
    series = series if rest is None else series + rest
    return k * high - ((half - series) - f)


@body(is_f32, ulp=1.5)
def log32(x: Scalar) -> Scalar:
    k, m = _lifted(x)
    return _guarded(x, _log32_of(m - 1.0, k))


@body(is_f64, ulp=1.5)
def log64(x: Scalar) -> Scalar:
    k, m = _lifted(x)
    return _guarded(x, _log64_of(m - 1.0, k))


# ------------------------------------------------------------------------------------------- log1p
def _log1p(x: Scalar) -> Scalar:
    u = x + 1.0
    k, m = parts(u)
    near = eq(k, 0.0)
    f = where(near, x, m - 1.0)
    # What rounding lost of 1 + x: from the larger of both.
    lost = where(k > 1.0, 1.0 - (u - x), x - (u - 1.0))
    rest = where(near, 0.0, lost / u)
    found = (_log32_of if x.dtype is F32 else _log64_of)(f, k, rest)
    found = where(x < INF, found, x)
    found = where(x < -1.0, NAN, found)
    found = where(eq(x, -1.0), -INF, found)
    return where(_is_linear(x), x, found)


def _is_linear(x: Scalar) -> Scalar:
    """Returns whether log1p(x) rounds to x; so do zeros, whose sign stays."""
    limit = 2.0**-25 if x.dtype is F32 else 2.0**-54
    return size(x) < limit


@body(is_f32, ulp=1.5)
def log1p_32(x: Scalar) -> Scalar:
    return _log1p(x)


@body(is_f64, ulp=1.5)
def log1p_64(x: Scalar) -> Scalar:
    return _log1p(x)


# ------------------------------------------------------------------------------------- other bases
def short_log(m: Scalar) -> Scalar:
    """Returns log(m) for m from sqrt(1/2) to sqrt(2), in float64 to 2^-37: enough for float32."""
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    return s * (z * horner(z, LOG_64_SHORT) + 2.0)


def _of_base32(x: Scalar, base: float) -> Scalar:
    """Returns a logarithm of a float32 to another base: computed in float64, where its denormals
    are normal, and rounded once."""
    k, m = parts(wide(x))
    log_base = math.log(base)
    scale = math.log(2) / log_base
    return _guarded(x, narrow(k * scale + short_log(m) * (1 / log_base)))


@body(is_f32, ulp=0.6)
def log2_32(x: Scalar) -> Scalar:
    return _of_base32(x, 2.0)


@body(is_f32, ulp=0.6)
def log10_32(x: Scalar) -> Scalar:
    return _of_base32(x, 10.0)


def _of_base64(x: Scalar, inverse: tuple[float, float], of_two: tuple[float, float]) -> Scalar:
    """Returns a logarithm of a float64 to another base: log(m) in two parts times 1 / log(base) in
    two parts, as FreeBSD's e_log10.c."""
    k, m = _lifted(x)
    f = m - 1.0
    half = f * f * 0.5
    s = f / (f + 2.0)
    z = s * s
    high, _ = halves(f - half)
    low = (f - high) - half + s * (half + z * horner(z, LOG_64))
    exact = high * inverse[0]
    rest = k * of_two[1] + (low + high) * inverse[1] + low * inverse[0]
    start = k * of_two[0]
    total = start + exact
    lost = (start - total) + exact
    return _guarded(x, rest + lost + total)


# 1 / log(2), 1 / log(10): 20 bits and the rest. log10(2): 42 bits and the rest.
_PER_LOG_2 = (float.fromhex("0x1.71547652p+0"), float.fromhex("0x1.705fc2eefa200p-33"))
_PER_LOG_10 = (float.fromhex("0x1.bcb7b15p-2"), float.fromhex("0x1.37287195355bbp-33"))
_LOG10_2 = (float.fromhex("0x1.34413509f6p-2"), float.fromhex("0x1.9fef311f12b36p-42"))


@body(is_f64, ulp=1.5)
def log2_64(x: Scalar) -> Scalar:
    return _of_base64(x, _PER_LOG_2, (1.0, 0.0))


@body(is_f64, ulp=1.5)
def log10_64(x: Scalar) -> Scalar:
    return _of_base64(x, _PER_LOG_10, _LOG10_2)
