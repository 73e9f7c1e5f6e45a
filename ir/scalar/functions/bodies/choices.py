"""Functions that compare or look at bits: maximum, sign, isinf, nextafter and their like.

All are exact, and follow NumPy: NaN wins a maximum, of equal operands the second is taken (0.0 and
-0.0 are equal), and an integer is never NaN.
"""

from __future__ import annotations

from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.scalar.expression import Scalar, bits, cast, const, where
from aotlite.ir.scalar.functions.function_registry import (
    body,
    is_bool,
    is_float,
    is_integer,
    is_ordered,
    is_signed,
    is_unsigned,
)
from aotlite.ir.scalar.functions.scalar_terms import (
    INF,
    MANTISSA,
    NAN,
    SIGNED,
    eq,
    is_nan,
    ne,
    negated,
    rint,
    sign_mask,
    signed,
    signed_as,
    size,
    unsigned,
)


def is_exact(dtype: DType) -> bool:
    """Whether a dtype is bool or an integer."""
    return is_bool(dtype) or is_integer(dtype)


def has_bits(dtype: DType) -> bool:
    """Whether a dtype is a float whose neighbors can be found by counting its bits."""
    return dtype in MANTISSA


# ---------------------------------------------------------------------------------------- extremes
@body(is_float)
def maximum(a: Scalar, b: Scalar) -> Scalar:
    return where(is_nan(a), a, where(a > b, a, b))


@body(is_float)
def minimum(a: Scalar, b: Scalar) -> Scalar:
    return where(is_nan(a), a, where(a < b, a, b))


@body(is_bool)
def maximum_of_bools(a: Scalar, b: Scalar) -> Scalar:
    return a | b


@body(is_bool)
def minimum_of_bools(a: Scalar, b: Scalar) -> Scalar:
    return a & b


@body(is_integer)
def maximum_of_integers(a: Scalar, b: Scalar) -> Scalar:
    return where(a > b, a, b)


@body(is_integer)
def minimum_of_integers(a: Scalar, b: Scalar) -> Scalar:
    return where(a < b, a, b)


# ------------------------------------------------------------------------------------------- signs
@body(is_float)
def sign(x: Scalar) -> Scalar:
    """The sign of a float; 0 for NaN, as in PyTorch."""
    return where(x > 0.0, const(1.0, x.dtype), where(x < 0.0, const(-1.0, x.dtype), 0.0))


@body(is_signed)
def sign_of_signed(x: Scalar) -> Scalar:
    one, nothing = const(1, x.dtype), const(0, x.dtype)
    return where(x > 0, one, where(x < 0, const(-1, x.dtype), nothing))


@body(is_unsigned)
def sign_of_unsigned(x: Scalar) -> Scalar:
    return where(eq(x, 0), x, const(1, x.dtype))


@body(is_bool)
def sign_of_bool(x: Scalar) -> Scalar:
    return x


@body(is_float)
def signbit(x: Scalar) -> Scalar:
    return signed(x) < 0


@body(is_integer)
def signbit_of_integer(x: Scalar) -> Scalar:
    return x < 0


@body(is_bool)
def signbit_of_bool(x: Scalar) -> Scalar:
    return const(False, x.dtype)


@body(is_float)
def copysign(a: Scalar, b: Scalar) -> Scalar:
    return signed_as(a, b)


# --------------------------------------------------------------------------------------- questions
@body(is_float)
def isnan(x: Scalar) -> Scalar:
    return is_nan(x)


@body(is_float)
def isinf(x: Scalar) -> Scalar:
    return eq(size(x), INF)


@body(is_exact)
def never(x: Scalar) -> Scalar:
    return const(False, dtypes.bool_)


def truth(x: Scalar) -> Scalar:
    """Returns whether a value is not 0; NaN is true."""
    return x if is_bool(x.dtype) else ne(x, 0)


@body(is_ordered)
def logical_not(x: Scalar) -> Scalar:
    return negated(truth(x))


@body(is_ordered)
def logical_and(a: Scalar, b: Scalar) -> Scalar:
    return truth(a) & truth(b)


@body(is_ordered)
def logical_or(a: Scalar, b: Scalar) -> Scalar:
    return truth(a) | truth(b)


@body(is_ordered)
def logical_xor(a: Scalar, b: Scalar) -> Scalar:
    return truth(a) ^ truth(b)


# ---------------------------------------------------------------------------------------- rounding
@body(is_float)
def round_(x: Scalar) -> Scalar:
    return rint(x)


@body(is_ordered)
def itself_ordered(x: Scalar) -> Scalar:
    return x


@body(is_exact)
def itself(x: Scalar) -> Scalar:
    return x


# -------------------------------------------------------------------------------------- neighbors
@body(has_bits)
def nextafter(a: Scalar, b: Scalar) -> Scalar:
    """The next float after a towards b. The bits of floats of one sign are integers in the floats'
    order: one more is the neighbor away from 0, one less the one towards it."""
    ints = SIGNED[a.dtype.itemsize]
    wide_a, wide_b = comparable(a), comparable(b)
    outwards = eq(wide_a < wide_b, wide_a > 0.0)
    step = where(outwards, const(1, ints), const(-1, ints))
    moved = bits(bits(a, ints) + step, a.dtype)
    least = bits((unsigned(b) & sign_mask(a.dtype)) | 1, a.dtype)
    found = where(eq(wide_a, 0.0), least, moved)
    same = (
        a if a.dtype is dtypes.float16 else b
    )  # which zero it is, NumPy says one way or the other
    found = where(eq(wide_a, wide_b), same, found)
    return where(is_nan(wide_a) | is_nan(wide_b), const(NAN, a.dtype), found)


def comparable(x: Scalar) -> Scalar:
    """Returns the value in a dtype that has arithmetic."""
    return x if is_float(x.dtype) else cast(x, dtypes.float32)
