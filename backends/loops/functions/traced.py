"""Functions whose body is the op's own kernel, run on symbols: erf of float64, erfc,
erfinv, lgamma, digamma.

Such a kernel is arithmetic and `where` on arrays. Here it is given scalars in their place, and a
namespace that makes nodes. So there is one formula, and one set of coefficients, for both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from aotlite.backends.loops.expr import Scalar, cast, const, make, where
from aotlite.backends.loops.functions.registry import declare, is_f32, is_f64
from aotlite.backends.loops.functions.terms import F64, INF, call, eq, rint, size
from aotlite.backends.loops.functions.trigonometry import near_sin, near_tan
from aotlite.ir import dtypes
from aotlite.ir.ops.elementwise.error_functions import ERF, ERFC, ERFINV
from aotlite.ir.ops.elementwise.gamma import DIGAMMA, LGAMMA


def _operator(name: str, *, swapped: bool = False) -> Callable[..., Any]:
    def apply(self: Any, other: Any) -> Any:
        a, b = _scalars(self, other)
        return Symbol(make(name, b, a) if swapped else make(name, a, b))

    return apply


@attrs.frozen(eq=False)
class Symbol:
    """A scalar that kernels take for an array: it has a NumPy dtype and an array's operators."""

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

    def __neg__(self) -> Symbol:
        return Symbol(-self.scalar)

    def __invert__(self) -> Symbol:
        return Symbol(make("not", self.scalar))


def _scalars(*values: Any) -> list[Scalar]:
    """Scalars of symbols and numbers; numbers take the dtype of the first symbol."""
    dtype = next(v.scalar.dtype for v in values if isinstance(v, Symbol))
    return [v.scalar if isinstance(v, Symbol) else const(v, dtype) for v in values]


class Namespace:
    """The functions of arrays that kernels call, on symbols."""

    @staticmethod
    def where(condition: Symbol, then: Any, other: Any) -> Symbol:
        """One or the other; of two numbers a float64."""
        if not isinstance(then, Symbol) and not isinstance(other, Symbol):
            then = Symbol(const(then, F64))
        return Symbol(where(condition.scalar, *_scalars(then, other)))

    @staticmethod
    def astype(x: Symbol, dtype: Any) -> Symbol:
        """The value in another dtype."""
        return Symbol(cast(x.scalar, dtypes.from_numpy(dtype)))

    @staticmethod
    def ones_like(x: Symbol) -> Symbol:
        """1 of the dtype."""
        return Symbol(const(1, x.scalar.dtype))

    @staticmethod
    def zeros_like(x: Symbol) -> Symbol:
        """0 of the dtype."""
        return Symbol(const(0, x.scalar.dtype))

    @staticmethod
    def clip(x: Symbol, low: float, high: float) -> Symbol:
        """Between two numbers; nan stays."""
        return Namespace.minimum(Namespace.maximum(x, low), high)

    @staticmethod
    def isinf(x: Symbol) -> Symbol:
        """Whether it is an infinity."""
        return Symbol(eq(size(x.scalar), INF))

    minimum = staticmethod(lambda a, b: Symbol(call("minimum", *_scalars(a, b))))
    maximum = staticmethod(lambda a, b: Symbol(call("maximum", *_scalars(a, b))))
    copysign = staticmethod(lambda a, b: Symbol(call("copysign", *_scalars(a, b))))
    abs = staticmethod(lambda x: Symbol(size(x.scalar)))
    round = staticmethod(lambda x: Symbol(rint(x.scalar)))
    sqrt = staticmethod(lambda x: Symbol(make("sqrt", x.scalar)))
    floor = staticmethod(lambda x: Symbol(make("floor", x.scalar)))
    exp = staticmethod(lambda x: Symbol(call("exp", x.scalar)))
    log = staticmethod(lambda x: Symbol(call("log", x.scalar)))
    log1p = staticmethod(lambda x: Symbol(call("log1p", x.scalar)))
    # The arguments of both are at most pi / 2 in these kernels.
    sin = staticmethod(lambda x: Symbol(near_sin(x.scalar)))
    tan = staticmethod(lambda x: Symbol(near_tan(x.scalar)))


def traced(op: Any, *operands: Scalar) -> Scalar:
    """What the op's kernel computes of scalars."""
    return op.compute(Namespace, *map(Symbol, operands)).scalar


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
