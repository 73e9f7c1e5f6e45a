"""tanh, sinh, cosh, their inverses and hypot, by exponentials, logarithms and roots.

tanh in float32 is a polynomial up to 1, where 1 - 2 / (exp(2x) + 1) would cancel. The rest of
float32 is computed in float64 and rounded once.
"""

from __future__ import annotations

from aotlite.ir.scalar.expression import Scalar, where
from aotlite.ir.scalar.functions.bodies.exponentials import bounded_exp
from aotlite.ir.scalar.functions.coefficients import TANH_32
from aotlite.ir.scalar.functions.function_registry import body, is_f32, is_f64
from aotlite.ir.scalar.functions.scalar_terms import (
    INF,
    NAN,
    at_most,
    below,
    call,
    eq,
    horner,
    narrow,
    root,
    size,
    wide,
    with_sign,
)


@body(is_f32, ulp=1.5)
def tanh32(x: Scalar) -> Scalar:
    """tanh of float32, computed of |x| so that zeros keep their sign. NaN takes the near branch."""
    positive = size(x)
    squares = positive * positive
    near = squares * positive * horner(squares, TANH_32) + positive
    far = 1.0 - 2.0 / (bounded_exp(at_most(positive, 20.0) * 2.0) + 1.0)
    return with_sign(where(positive >= 1.0, far, near), x)


@body(is_f64, ulp=2.5)
def tanh64(x: Scalar) -> Scalar:
    """tanh of float64 by t = expm1(2|x|): t / (t + 2), or 1 - 2 / (t + 2) where t is large."""
    t = call("expm1", below(size(x) * 2.0, 80.0))
    quotient = where(t < 2.0, t, -2.0) / (t + 2.0)
    return with_sign(where(t < 2.0, quotient, quotient + 1.0), x)


# ---------------------------------------------------------------------------------- float32, wide
_LARGE = 200.0  # from there on float32 has no sinh or cosh


@body(is_f32, ulp=0.6)
def sinh32(x: Scalar) -> Scalar:
    less = call("expm1", below(size(wide(x)), _LARGE))
    return with_sign(narrow((less + less / (less + 1.0)) * 0.5), x)


@body(is_f32, ulp=0.6)
def cosh32(x: Scalar) -> Scalar:
    raised = call("exp", below(size(wide(x)), _LARGE))
    return narrow((raised + 1.0 / raised) * 0.5)


@body(is_f32, ulp=0.6)
def asinh32(x: Scalar) -> Scalar:
    positive = size(wide(x))
    squares = positive * positive
    more = where(positive < INF, squares / (root(squares + 1.0) + 1.0), positive)
    return with_sign(narrow(call("log1p", positive + more)), x)


@body(is_f32, ulp=0.6)
def acosh32(x: Scalar) -> Scalar:
    off = where(x < 1.0, NAN, wide(x) - 1.0)
    return narrow(call("log1p", off + root(off * (off + 2.0))))


@body(is_f32, ulp=0.6)
def atanh32(x: Scalar) -> Scalar:
    positive = size(wide(x))
    return with_sign(narrow(call("log1p", positive * 2.0 / (1.0 - positive)) * 0.5), x)


@body(is_f32, ulp=0.6)
def hypot32(x: Scalar, y: Scalar) -> Scalar:
    """hypot of float32: float64 holds the squares without overflow. Infinity wins over NaN."""
    endless = eq(size(x), INF) | eq(size(y), INF)
    a, b = wide(x), wide(y)
    return where(endless, INF, narrow(root(a * a + b * b)))
