"""Pointwise ops: more exponentials and logarithms, trigonometric and hyperbolic functions."""

from __future__ import annotations

import math
from typing import Any

from aotlite.ir import scalar as s
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.dtypes import DType, complex128, float64
from aotlite.ir.errors import DTypeError
from aotlite.ir.op.composite import composite
from aotlite.ir.op.operand import Operand
from aotlite.ir.op.parameter_types import Number
from aotlite.ir.ops.declare import to_float
from aotlite.ir.ops.elementwise.pointwise import conj
from aotlite.ir.ops.kinds import BOOL, COMPLEX, FLOAT8, INTEGER, refuse
from aotlite.ir.ops.pointwise_rows import binary, elementary
from aotlite.ir.scalar import Element

_LN2, _LN10 = math.log(2), math.log(10)


# ------------------------------------------------------------------- exponentials and logarithms
EXP2 = elementary("exp2", vjp=lambda grad, result: grad * conj(result * _LN2))
LOG2 = elementary("log2", vjp=lambda grad, self: grad / conj(self * _LN2))
LOG10 = elementary("log10", vjp=lambda grad, self: grad / conj(self * _LN10))


def _log_of_sum(a: Element, b: Element) -> Element:
    """log(exp a + exp b) from the larger one up; where both are the same infinity, that."""
    low, high = s.minimum(a, b), s.maximum(a, b)
    off = s.where(s.eq(low, high), 0.0, low - high)
    return high + s.log1p(s.exp(off))


def _log2_of_sum(a: Element, b: Element) -> Element:
    low, high = s.minimum(a, b), s.maximum(a, b)
    off = s.where(s.eq(low, high), 0.0, low - high)
    return high + s.log1p(s.exp2(off)) * (1 / _LN2)


def _logaddexp_kernel(xp: Namespace, a: Array, b: Array) -> Array:
    if a.dtype.kind != "c":
        return xp.logaddexp(a, b)
    swapped = a.real < b.real  # the one with the larger exponential comes first
    high, low = xp.where(swapped, b, a), xp.where(swapped, a, b)
    return high + xp.log1p(xp.exp(low - high))


LOGADDEXP = binary(
    "logaddexp",
    operands="Tensor self, Tensor other",
    kernel=_logaddexp_kernel,
    scalar=_log_of_sum,
    vjp=(
        lambda grad, self, other: grad / conj((other - self).exp() + 1),
        lambda grad, self, other: grad / conj((self - other).exp() + 1),
    ),
    refuses=BOOL | INTEGER | FLOAT8,
    inplace=False,
)
LOGADDEXP2 = binary(
    "logaddexp2",
    operands="Tensor self, Tensor other",
    scalar=_log2_of_sum,
    vjp=(
        lambda grad, self, other: grad / ((other - self).exp2() + 1),
        lambda grad, self, other: grad / ((self - other).exp2() + 1),
    ),
    refuses=BOOL | INTEGER | FLOAT8 | COMPLEX,
    inplace=False,
)


@composite("square(Tensor self) -> Tensor", inplace=True)
def square(self: Operand, end: str = "") -> Operand:
    """self * self, saved once."""
    return self._do("pow" + end, 2)


@composite("float_power(Tensor|Scalar self, Tensor|Scalar exponent) -> Tensor")
def float_power(self: Operand, exponent: Operand | Number) -> Operand:
    """The power, computed in float64 or complex128."""
    is_complex = any(map(_is_complex, (self, exponent)))
    dtype = complex128 if is_complex else float64
    base, power = (_in(value, dtype) for value in (self, exponent))
    return base**power


@composite("float_power_(Tensor(a!) self, Tensor|Scalar exponent) -> Tensor(a!)")
def float_power_(self: Operand, exponent: Operand | Number) -> Operand:
    """`float_power` in place. Raises DTypeError for a base that cannot hold the result."""
    dtype = complex128 if any(map(_is_complex, (self, exponent))) else float64
    if self.dtype is not dtype:
        raise DTypeError(f"float_power_: dtype is {self.dtype}, expected {dtype}, the result's")
    return self._do("pow_", _in(exponent, dtype))


def _is_complex(value: Any) -> bool:
    return bool(value.is_complex()) if hasattr(value, "meta") else isinstance(value, complex)


def _in(value: Any, dtype: DType) -> Any:
    if hasattr(value, "meta"):
        return value.to(dtype)
    return complex(value) if dtype is complex128 else float(value)


# --------------------------------------------------------------------- trigonometric and inverses
TAN = elementary("tan", vjp=lambda grad, result: grad * conj(result * result + 1))
ASIN = elementary(
    "asin", vjp=lambda grad, self: grad * conj((1 - self * self).rsqrt()), aliases="arcsin"
)
ACOS = elementary(
    "acos", vjp=lambda grad, self: grad * -conj((1 - self * self).rsqrt()), aliases="arccos"
)
ATAN = elementary("atan", vjp=lambda grad, self: grad / conj(self * self + 1), aliases="arctan")


def _over_squares(self: Operand, other: Operand | Number) -> Operand:
    """1 / (self^2 + other^2), 0 where both are 0: there is no direction there."""
    squares = self * self + other * other
    nothing = squares == 0
    return nothing.where(0, nothing.where(1, squares).reciprocal())


ATAN2 = binary(
    "atan2",
    aliases="arctan2",
    operands="Tensor self, Tensor other",
    vjp=(
        lambda grad, self, other: grad * (other * _over_squares(self, other)),
        lambda grad, self, other: grad * (-self * _over_squares(self, other)),
    ),
    result=to_float,
    refuses=FLOAT8 | COMPLEX,
)
HYPOT = binary(
    "hypot",
    operands="Tensor self, Tensor other",
    vjp=(
        lambda grad, self, result: grad * (self / result),
        lambda grad, other, result: grad * (other / result),
    ),
    refuses=BOOL | INTEGER | FLOAT8 | COMPLEX,
)


@composite("deg2rad(Tensor self) -> Tensor", inplace=True)
def deg2rad(self: Operand, end: str = "") -> Operand:
    """Degrees as radians."""
    return _real("deg2rad" + end, self)._do("mul" + end, math.pi / 180)


@composite("rad2deg(Tensor self) -> Tensor", inplace=True)
def rad2deg(self: Operand, end: str = "") -> Operand:
    """Radians as degrees."""
    return _real("rad2deg" + end, self)._do("mul" + end, 180 / math.pi)


def _real(name: str, self: Operand) -> Operand:
    refuse(name, (), self.dtype, FLOAT8 | COMPLEX)
    return self


# ------------------------------------------------------------------------- hyperbolic and inverses
SINH = elementary("sinh", vjp=lambda grad, self: grad * conj(self.cosh()))
COSH = elementary("cosh", vjp=lambda grad, self: grad * conj(self.sinh()))
ASINH = elementary(
    "asinh", vjp=lambda grad, self: grad * conj((self * self + 1).rsqrt()), aliases="arcsinh"
)


def _acosh_vjp(grad: Operand, self: Operand) -> Operand:
    if self.is_complex():  # of a product of complex numbers the root is not that of its factors
        return grad * conj((self + 1).rsqrt() * (self - 1).rsqrt())
    return grad * (self * self - 1).rsqrt()


ACOSH = elementary("acosh", vjp=_acosh_vjp, aliases="arccosh")
ATANH = elementary("atanh", vjp=lambda grad, self: grad / conj(1 - self * self), aliases="arctanh")


# ------------------------------------------------------------------------------------------ sinc
def _sinc_kernel(xp: Namespace, a: Array) -> Array:
    nothing = a == 0
    angle = xp.where(nothing, 1, a) * math.pi
    return xp.where(nothing, xp.ones_like(a), xp.sin(angle) / angle)


def _sinc_scalar(a: Element) -> Element:
    angle = s.where(s.eq(a, 0), 1.0, a) * math.pi
    return s.where(s.eq(a, 0), 1.0, s.sin(angle) / angle)


_SERIES_BELOW = 0.1
_SINC_SERIES = [
    (-1) ** k * math.pi ** (2 * k) * 2 * k / math.factorial(2 * k + 1) for k in range(8, 0, -1)
]
"""Of sinc'(x) / x in powers of x^2, highest first: to 1e-16 up to |x| = 0.1."""


def _sinc_vjp(grad: Operand, self: Operand) -> Operand:
    """By a series around 0, where the quotient cancels, and has no second derivative at 0."""
    near = self.abs() < _SERIES_BELOW
    safe = near.where(1, self)
    angle = safe * math.pi
    far_slope = (angle * angle.cos() - angle.sin()) / (safe * angle)
    squares = self * self
    total = squares * _SINC_SERIES[0] + _SINC_SERIES[1]
    for coefficient in _SINC_SERIES[2:]:
        total = total * squares + coefficient
    return grad * conj(near.where(self * total, far_slope))


SINC = elementary("sinc", kernel=_sinc_kernel, scalar=_sinc_scalar, vjp=_sinc_vjp)
"""sin(pi x) / (pi x), 1 at 0."""
