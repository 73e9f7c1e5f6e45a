"""`SCALARS`: the functions of an array library, on scalar expressions.

What is said in functions `f` of an array library, and in arithmetic, is said for arrays and for
scalar expressions at once: pass the library's namespace, or `SCALARS`. So say ops their kernel and
their expression (`pointwise(element=)`), and functions their body, where an op's kernel is the
same formula: erf of float64, erfc, erfinv, lgamma, digamma. Spec: `specs/functions.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from aotlite.ir import dtypes
from aotlite.ir.scalar import expression
from aotlite.ir.scalar.expression import Operand, Scalar, cast, const
from aotlite.ir.scalar.functions.bodies.trigonometry import near_sin, near_tan
from aotlite.ir.scalar.functions.function_registry import FUNCTIONS
from aotlite.ir.scalar.functions.scalar_terms import eq, wide


class ScalarFunctions:
    """The functions by the array library's names: those written here, those that ops have entered,
    and those of the table."""

    entered: ClassVar[dict[str, Callable[..., Operand]]] = {}
    """What ops say: one whose kernel is `less` says what `less` is of expressions."""

    def __getattr__(self, name: str) -> Callable[..., Operand]:
        found = self.entered.get(name) or FUNCTIONS.get(name)
        if found is None:
            raise AttributeError(f"scalar: there is no array function {name!r} of expressions")
        return found

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

    def clip(self, x: Scalar, low: float, high: float) -> Operand:
        """Returns x clamped to two numbers; NaN stays."""
        return self.minimum(self.maximum(x, low), high)

    equal = staticmethod(eq)
    where = staticmethod(expression.where)


SCALARS = ScalarFunctions()


class _OfFormulas(ScalarFunctions):
    """Those that bodies call, in float64: angles are at most pi / 2 there."""

    sin = staticmethod(near_sin)
    tan = staticmethod(near_tan)


_OF_FORMULAS = _OfFormulas()


def formula_body(formula: Callable[[Any, Any], Any]) -> Callable[[Scalar], Scalar]:
    """Returns the builder of the body that computes a formula in float64, and rounds once."""
    return lambda x: cast(formula(_OF_FORMULAS, wide(x)), x.dtype)
