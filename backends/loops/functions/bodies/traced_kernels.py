"""Functions whose body is traced from the op's own kernel: erf of float64, erfc,
erfinv, lgamma, digamma.

Such a kernel is arithmetic and `where` on arrays. Here it is given scalars in their place, and a
namespace that makes nodes. So there is one formula, and one set of coefficients, for both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from aotlite.backends.loops.expr import Scalar, cast, const, make, where
from aotlite.backends.loops.functions.bodies.trigonometry import near_sin, near_tan
from aotlite.backends.loops.functions.function_registry import declare, is_f32, is_f64
from aotlite.backends.loops.functions.scalar_terms import F64, INF, call, eq, rint, size
from aotlite.ir import dtypes
from aotlite.ir.ops.elementwise.error_functions import ERF, ERFC, ERFINV
from aotlite.ir.ops.elementwise.gamma import DIGAMMA, LGAMMA


def _operator(name: str, *, swapped: bool = False) -> Callable[..., Any]:
    def apply(self: Any, other: Any) -> Any:
        a, b = _scalars(self, other)
        return TracedArray(make(name, b, a) if swapped else make(name, a, b))

    return apply


@attrs.frozen(eq=False)
class TracedArray:
    """A scalar with an array's dtype and operators, so that a kernel runs on it as on an array."""

    scalar: Scalar

    @property
    def dtype(self) -> Any:
        """NumPy's dtype, as arrays have it."""
        return self.scalar.dtype.numpy

    __add__ = _operator("add")
    __radd__ = _operator("add", swapped=True)
    __sub__ = _operator("sub")
    __rsub__ = _operator("sub", swapped=True)
    __mul__ = _operator("mul")
    __rmul__ = _operator("mul", swapped=True)
    __truediv__ = _operator("div")
    __rtruediv__ = _operator("div", swapped=True)
    __lt__ = _operator("lt")
    __le__ = _operator("le")
    __gt__ = _operator("gt")
    __ge__ = _operator("ge")
    __eq__ = _operator("eq")
    __ne__ = _operator("ne")
    __and__ = _operator("and")
    __or__ = _operator("or")
    __hash__ = None  # type: ignore[assignment]

    def __neg__(self) -> TracedArray:
        return TracedArray(-self.scalar)

    def __invert__(self) -> TracedArray:
        return TracedArray(make("not", self.scalar))


def _scalars(*values: Any) -> list[Scalar]:
    """Returns the scalars of traced arrays and numbers; numbers take the first array's dtype."""
    dtype = next(v.scalar.dtype for v in values if isinstance(v, TracedArray))
    return [v.scalar if isinstance(v, TracedArray) else const(v, dtype) for v in values]


class TracedNamespace:
    """The array functions that kernels call, on traced arrays."""

    @staticmethod
    def where(condition: TracedArray, then: Any, other: Any) -> TracedArray:
        """Returns `then` where the condition holds, else `other`; two numbers become float64."""
        if not isinstance(then, TracedArray) and not isinstance(other, TracedArray):
            then = TracedArray(const(then, F64))
        return TracedArray(where(condition.scalar, *_scalars(then, other)))

    @staticmethod
    def astype(x: TracedArray, dtype: Any) -> TracedArray:
        """Returns the value in another dtype."""
        return TracedArray(cast(x.scalar, dtypes.from_numpy(dtype)))

    @staticmethod
    def ones_like(x: TracedArray) -> TracedArray:
        """Returns 1 in the dtype of x."""
        return TracedArray(const(1, x.scalar.dtype))

    @staticmethod
    def zeros_like(x: TracedArray) -> TracedArray:
        """Returns 0 in the dtype of x."""
        return TracedArray(const(0, x.scalar.dtype))

    @staticmethod
    def clip(x: TracedArray, low: float, high: float) -> TracedArray:
        """Returns x clamped to two numbers; NaN stays."""
        return TracedNamespace.minimum(TracedNamespace.maximum(x, low), high)

    @staticmethod
    def isinf(x: TracedArray) -> TracedArray:
        """Returns whether x is infinite."""
        return TracedArray(eq(size(x.scalar), INF))

    minimum = staticmethod(lambda a, b: TracedArray(call("minimum", *_scalars(a, b))))
    maximum = staticmethod(lambda a, b: TracedArray(call("maximum", *_scalars(a, b))))
    copysign = staticmethod(lambda a, b: TracedArray(call("copysign", *_scalars(a, b))))
    abs = staticmethod(lambda x: TracedArray(size(x.scalar)))
    round = staticmethod(lambda x: TracedArray(rint(x.scalar)))
    sqrt = staticmethod(lambda x: TracedArray(make("sqrt", x.scalar)))
    floor = staticmethod(lambda x: TracedArray(make("floor", x.scalar)))
    exp = staticmethod(lambda x: TracedArray(call("exp", x.scalar)))
    log = staticmethod(lambda x: TracedArray(call("log", x.scalar)))
    log1p = staticmethod(lambda x: TracedArray(call("log1p", x.scalar)))
    # The arguments of both are at most pi / 2 in these kernels.
    sin = staticmethod(lambda x: TracedArray(near_sin(x.scalar)))
    tan = staticmethod(lambda x: TracedArray(near_tan(x.scalar)))


def traced(op: Any, *operands: Scalar) -> Scalar:
    """Returns the scalar that the op's kernel computes of scalars."""
    return op.compute(TracedNamespace, *map(TracedArray, operands)).scalar


_AWAY = "all; near its zeros to 1e-15"
# Of float32 all but erf are computed in float64 and rounded once.
declare("erf", is_f64, ulp=3.0)(lambda x: traced(ERF, x))
declare("erfc", is_f32, ulp=0.6)(lambda x: traced(ERFC, x))
declare("erfc", is_f64, ulp=16.0)(lambda x: traced(ERFC, x))
declare("erfinv", is_f32, ulp=0.6)(lambda x: traced(ERFINV, x))
declare("erfinv", is_f64, ulp=8.0)(lambda x: traced(ERFINV, x))
declare("lgamma", is_f32, ulp=1.5)(lambda x: traced(LGAMMA, x))
declare("lgamma", is_f64, ulp=8.0, domain=_AWAY)(lambda x: traced(LGAMMA, x))
declare("digamma", is_f32, ulp=1.5)(lambda x: traced(DIGAMMA, x))
declare("digamma", is_f64, ulp=8.0, domain=_AWAY)(lambda x: traced(DIGAMMA, x))
