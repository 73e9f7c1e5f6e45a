"""Formulas that are both the body of a function and, on arrays, the kernel of an op: erf of
float64, erfc, erfinv, lgamma, digamma.

Such a formula is arithmetic and calls of functions `f` that are its argument. A kernel passes those
of an array library; a body passes `ON_SCALARS`, which have the same names. So there is one formula,
and one set of coefficients, for both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.scalar.expression import Operand, Scalar, cast, const, make, where
from aotlite.ir.scalar.functions.bodies.trigonometry import near_sin, near_tan
from aotlite.ir.scalar.functions.scalar_terms import INF, call, eq, rint, size, wide


class ScalarFormulas:
    """The array functions that formulas call, on scalars."""

    @staticmethod
    def astype(x: Scalar, dtype: Any) -> Scalar:
        """Returns the value in another dtype."""
        return cast(x, dtypes.from_numpy(dtype))

    @staticmethod
    def ones_like(x: Scalar) -> Scalar:
        """Returns 1 in the dtype of x."""
        return const(1, x.dtype)

    @staticmethod
    def zeros_like(x: Scalar) -> Scalar:
        """Returns 0 in the dtype of x."""
        return const(0, x.dtype)

    @staticmethod
    def clip(x: Scalar, low: float, high: float) -> Scalar:
        """Returns x clamped to two numbers; NaN stays."""
        return _called("minimum", _called("maximum", x, low), high)

    @staticmethod
    def isinf(x: Scalar) -> Scalar:
        """Returns whether x is infinite."""
        return eq(size(x), INF)

    equal = staticmethod(eq)
    where = staticmethod(where)
    minimum = staticmethod(lambda a, b: _called("minimum", a, b))
    maximum = staticmethod(lambda a, b: _called("maximum", a, b))
    copysign = staticmethod(lambda a, b: _called("copysign", a, b))
    abs = staticmethod(size)
    round = staticmethod(rint)
    sqrt = staticmethod(lambda x: make("sqrt", x))
    floor = staticmethod(lambda x: make("floor", x))
    exp = staticmethod(lambda x: call("exp", x))
    log = staticmethod(lambda x: call("log", x))
    log1p = staticmethod(lambda x: call("log1p", x))
    # The arguments of both are at most pi / 2 in these formulas.
    sin = staticmethod(near_sin)
    tan = staticmethod(near_tan)


ON_SCALARS = ScalarFormulas()


def _called(op: str, *operands: Operand) -> Scalar:
    """Returns the call of a function; numbers take the first scalar's dtype."""
    dtype = next(each.dtype for each in operands if type(each) is Scalar)
    return call(op, *[a if type(a) is Scalar else const(a, dtype) for a in operands])


def formula_body(formula: Callable[[Any, Any], Any]) -> Callable[[Scalar], Scalar]:
    """Returns the builder of the body that computes a formula in float64, and rounds once."""
    return lambda x: cast(formula(ON_SCALARS, wide(x)), x.dtype)
