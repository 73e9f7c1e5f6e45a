"""Pointwise ops: more exponentials and logarithms, trigonometric and hyperbolic functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from aotlite.ir import scalar as s
from aotlite.ir.dtypes import complex128, float64
from aotlite.ir.errors import DTypeError
from aotlite.ir.op import PureOp
from aotlite.ir.op.composite import composite
from aotlite.ir.ops.declare import pointwise, to_float
from aotlite.ir.ops.elementwise.pointwise import conj
from aotlite.ir.ops.kinds import BOOL, COMPLEX, FLOAT8, INTEGER, Refused, refuse

_LN2, _LN10 = math.log(2), math.log(10)


def _elementary(
    name: str,
    kernel: Callable[..., Any] | str,
    scalar: Callable[..., Any],
    vjp: Callable[..., Any],
    refuses: Refused = FLOAT8,
) -> PureOp:
    """A function of one operand that is defined for floats, and gives floats for integers."""
    return pointwise(
        f"{name}(Tensor self) -> Tensor",
        kernel=kernel,
        scalar=scalar,
        vjp={"self": vjp},
        result=to_float,
        refuses=refuses,
        inplace=True,
    )


# ------------------------------------------------------------------- exponentials and logarithms
EXP2 = _elementary("exp2", "exp2", s.exp2, lambda grad, result: grad * conj(result * _LN2))
LOG2 = _elementary("log2", "log2", s.log2, lambda grad, self: grad / conj(self * _LN2))
LOG10 = _elementary("log10", "log10", s.log10, lambda grad, self: grad / conj(self * _LN10))


def _log_of_sum(a: Any, b: Any) -> Any:
    """log(exp a + exp b) from the larger one up; where both are the same infinity, that."""
    low, high = s.minimum(a, b), s.maximum(a, b)
    off = s.where(s.eq(low, high), 0.0, low - high)
    return high + s.log1p(s.exp(off))


def _log2_of_sum(a: Any, b: Any) -> Any:
    low, high = s.minimum(a, b), s.maximum(a, b)
    off = s.where(s.eq(low, high), 0.0, low - high)
    return high + s.log1p(s.exp2(off)) * (1 / _LN2)


def _logaddexp_kernel(xp: Any, a: Any, b: Any) -> Any:
    if a.dtype.kind != "c":
        return xp.logaddexp(a, b)
    swapped = a.real < b.real  # the one with the larger exponential comes first
    high, low = xp.where(swapped, b, a), xp.where(swapped, a, b)
    return high + xp.log1p(xp.exp(low - high))


LOGADDEXP = pointwise(
    "logaddexp(Tensor self, Tensor other) -> Tensor",
    kernel=_logaddexp_kernel,
    scalar=_log_of_sum,
    vjp={
        "self": lambda grad, self, other: grad / conj((other - self).exp() + 1),
        "other": lambda grad, self, other: grad / conj((self - other).exp() + 1),
    },
    refuses=BOOL | INTEGER | FLOAT8,
)
LOGADDEXP2 = pointwise(
    "logaddexp2(Tensor self, Tensor other) -> Tensor",
    kernel="logaddexp2",
    scalar=_log2_of_sum,
    vjp={
        "self": lambda grad, self, other: grad / ((other - self).exp2() + 1),
        "other": lambda grad, self, other: grad / ((self - other).exp2() + 1),
    },
    refuses=BOOL | INTEGER | FLOAT8 | COMPLEX,
)


@composite("square(Tensor self) -> Tensor")
def square(self: Any) -> Any:
    """self * self, saved once."""
    return self._do("pow", 2)


@composite("square_(Tensor(a!) self) -> Tensor(a!)")
def square_(self: Any) -> Any:
    """`square` in place."""
    return self._do("pow_", 2)


@composite("float_power(Tensor|Scalar self, Tensor|Scalar exponent) -> Tensor")
def float_power(self: Any, exponent: Any) -> Any:
    """The power, computed in float64 or complex128."""
    is_complex = any(map(_is_complex, (self, exponent)))
    dtype = complex128 if is_complex else float64
    base, power = (_in(value, dtype) for value in (self, exponent))
    return base**power


@composite("float_power_(Tensor(a!) self, Tensor|Scalar exponent) -> Tensor(a!)")
def float_power_(self: Any, exponent: Any) -> Any:
    """`float_power` in place. Raises DTypeError for a base that cannot hold the result."""
    dtype = complex128 if any(map(_is_complex, (self, exponent))) else float64
    if self.dtype is not dtype:
        raise DTypeError(f"float_power_: dtype is {self.dtype}, expected {dtype}, the result's")
    return self._do("pow_", _in(exponent, dtype))


def _is_complex(value: Any) -> bool:
    return bool(value.is_complex()) if hasattr(value, "meta") else isinstance(value, complex)


def _in(value: Any, dtype: Any) -> Any:
    if hasattr(value, "meta"):
        return value.to(dtype)
    return complex(value) if dtype is complex128 else float(value)


# --------------------------------------------------------------------- trigonometric and inverses
TAN = _elementary("tan", "tan", s.tan, lambda grad, result: grad * conj(result * result + 1))
ASIN = _elementary(
    "asin", "asin", s.asin, lambda grad, self: grad * conj((1 - self * self).rsqrt())
)
ACOS = _elementary(
    "acos", "acos", s.acos, lambda grad, self: grad * -conj((1 - self * self).rsqrt())
)
ATAN = _elementary("atan", "atan", s.atan, lambda grad, self: grad / conj(self * self + 1))


def _over_squares(self: Any, other: Any) -> Any:
    """1 / (self^2 + other^2), 0 where both are 0: there is no direction there."""
    squares = self * self + other * other
    nothing = squares == 0
    return nothing.where(0, nothing.where(1, squares).reciprocal())


ATAN2 = pointwise(
    "atan2(Tensor self, Tensor other) -> Tensor",
    kernel="atan2",
    scalar=s.atan2,
    vjp={
        "self": lambda grad, self, other: grad * (other * _over_squares(self, other)),
        "other": lambda grad, self, other: grad * (-self * _over_squares(self, other)),
    },
    result=to_float,
    refuses=FLOAT8 | COMPLEX,
    inplace=True,
)
HYPOT = pointwise(
    "hypot(Tensor self, Tensor other) -> Tensor",
    kernel="hypot",
    scalar=s.hypot,
    vjp={
        "self": lambda grad, self, result: grad * (self / result),
        "other": lambda grad, other, result: grad * (other / result),
    },
    refuses=BOOL | INTEGER | FLOAT8 | COMPLEX,
    inplace=True,
)


@composite("deg2rad(Tensor self) -> Tensor")
def deg2rad(self: Any) -> Any:
    """Degrees as radians."""
    return _real("deg2rad", self)._do("mul", math.pi / 180)


@composite("rad2deg(Tensor self) -> Tensor")
def rad2deg(self: Any) -> Any:
    """Radians as degrees."""
    return _real("rad2deg", self)._do("mul", 180 / math.pi)


@composite("deg2rad_(Tensor(a!) self) -> Tensor(a!)")
def deg2rad_(self: Any) -> Any:
    """`deg2rad` in place."""
    return _real("deg2rad_", self)._do("mul_", math.pi / 180)


@composite("rad2deg_(Tensor(a!) self) -> Tensor(a!)")
def rad2deg_(self: Any) -> Any:
    """`rad2deg` in place."""
    return _real("rad2deg_", self)._do("mul_", 180 / math.pi)


def _real(name: str, self: Any) -> Any:
    refuse(name, (), self.dtype, FLOAT8 | COMPLEX)
    return self


# ------------------------------------------------------------------------- hyperbolic and inverses
SINH = _elementary("sinh", "sinh", s.sinh, lambda grad, self: grad * conj(self.cosh()))
COSH = _elementary("cosh", "cosh", s.cosh, lambda grad, self: grad * conj(self.sinh()))
ASINH = _elementary(
    "asinh", "asinh", s.asinh, lambda grad, self: grad * conj((self * self + 1).rsqrt())
)


def _acosh_vjp(grad: Any, self: Any) -> Any:
    if self.is_complex():  # of a product of complex numbers the root is not that of its factors
        return grad * conj((self + 1).rsqrt() * (self - 1).rsqrt())
    return grad * (self * self - 1).rsqrt()


ACOSH = _elementary("acosh", "acosh", s.acosh, _acosh_vjp)
ATANH = _elementary("atanh", "atanh", s.atanh, lambda grad, self: grad / conj(1 - self * self))


# ------------------------------------------------------------------------------------------ sinc
def _sinc_kernel(xp: Any, a: Any) -> Any:
    nothing = a == 0
    angle = xp.where(nothing, 1, a) * math.pi
    return xp.where(nothing, xp.ones_like(a), xp.sin(angle) / angle)


def _sinc_scalar(a: Any) -> Any:
    angle = s.where(s.eq(a, 0), 1.0, a) * math.pi
    return s.where(s.eq(a, 0), 1.0, s.sin(angle) / angle)


_SERIES_BELOW = 0.1
_SINC_SERIES = [
    (-1) ** k * math.pi ** (2 * k) * 2 * k / math.factorial(2 * k + 1) for k in range(8, 0, -1)
]
"""Of sinc'(x) / x in powers of x^2, highest first: to 1e-16 up to |x| = 0.1."""


def _sinc_vjp(grad: Any, self: Any) -> Any:
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


SINC = _elementary("sinc", _sinc_kernel, _sinc_scalar, _sinc_vjp)
"""sin(pi x) / (pi x), 1 at 0."""
