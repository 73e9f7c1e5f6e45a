"""fmod, remainder and floor_divide of float32 and integers, bit for bit as NumPy's.

An integer divided by 0 gives 0 here, as in NumPy. Eager ops refuse it, so that lowering adds a
check of the divisor. fmod of float32 is a long division in float64, 28 bits of the quotient a step.
"""

from __future__ import annotations

from aotlite.ir.scalar.expression import Scalar, const, make, where
from aotlite.ir.scalar.functions.function_registry import body, is_f32, is_integer
from aotlite.ir.scalar.functions.scalar_terms import (
    INF,
    NAN,
    call,
    eq,
    floor,
    narrow,
    ne,
    signed,
    size,
    trunc,
    wide,
    with_sign,
)

_STEP = 28
_STEPS = 10
"""Quotients of float32 are below 2^277: ten steps."""


@body(is_f32)
def fmod32(a: Scalar, b: Scalar) -> Scalar:
    rest, divisor = size(wide(a)), size(wide(b))
    for step in reversed(range(_STEPS)):
        multiple = divisor * 2.0 ** (_STEP * step)
        rest = rest - trunc(rest / multiple) * multiple
        rest = where(rest < 0.0, rest + multiple, rest)
    found = with_sign(narrow(rest), a)
    found = where(eq(size(b), INF) & (size(a) < INF), a, found)
    return where(eq(b, 0.0), NAN, found)


def _divisor(b: Scalar) -> Scalar:
    """Returns the divisor with 1 in the place of 0."""
    return where(eq(b, 0), const(1, b.dtype), b)


@body(is_integer)
def fmod_of_integers(a: Scalar, b: Scalar) -> Scalar:
    if not a.dtype.is_signed:
        return where(eq(b, 0), const(0, b.dtype), make("irem", a, _divisor(b)))
    # By -1 the remainder is 0; the quotient of the least number would not fit.
    plain = eq(b, 0) | eq(b, -1)
    return where(plain, const(0, b.dtype), make("irem", a, where(plain, const(1, b.dtype), b)))


def _differ(a: Scalar, b: Scalar) -> Scalar:
    """Returns whether signs differ, by the sign bits: gcc does not vectorize (a < 0) != (b < 0)."""
    if a.dtype.is_floating_point:
        a, b = signed(a), signed(b)
    return (a ^ b) < 0


@body(lambda dtype: is_f32(dtype) or is_integer(dtype))
def remainder(a: Scalar, b: Scalar) -> Scalar:
    """The remainder with the divisor's sign; a remainder of 0 keeps the sign that fmod gives it."""
    rest = call("fmod", a, b)
    if not a.dtype.is_signed:
        return rest
    # Two selections: of a conjunction gcc makes no vectors here.
    return where(_differ(rest, b), where(eq(rest, 0), rest, rest + b), rest)


@body(is_f32)
def floor_divide32(a: Scalar, b: Scalar) -> Scalar:
    """The quotient of a minus its remainder, rounded to the nearest integer, as NumPy's
    npy_divmod."""
    rest = call("fmod", a, b)
    quotient = (a - rest) / b
    less = where(eq(rest, 0.0), quotient, quotient - 1.0)
    quotient = where(_differ(rest, b), less, quotient)
    low = floor(quotient)
    nearest = where(quotient - low > 0.5, low + 1.0, low)
    nearest = where(ne(quotient, 0.0), nearest, call("copysign", const(0.0, a.dtype), a / b))
    return where(eq(b, 0.0), a / b, nearest)


@body(is_integer)
def floor_divide_of_integers(a: Scalar, b: Scalar) -> Scalar:
    nothing, one = const(0, b.dtype), const(1, b.dtype)
    if not a.dtype.is_signed:
        return where(eq(b, 0), nothing, make("idiv", a, _divisor(b)))
    plain = eq(b, 0) | eq(b, -1)
    divisor = where(plain, one, b)
    quotient, rest = make("idiv", a, divisor), make("irem", a, divisor)
    down = ne(rest, 0) & _differ(rest, b)
    found = where(down, quotient - 1, quotient)
    return where(eq(b, 0), nothing, where(eq(b, -1), -a, found))
