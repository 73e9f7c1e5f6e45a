"""Pointwise ops that round or bound: trunc, round, frac, division and remainders; clamp,
nan_to_num, isclose."""

from __future__ import annotations

import math
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir import scalar as s
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError, DTypeError
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op.binding import NUMBERS
from aotlite.ir.op.composite import composite
from aotlite.ir.op.operand import Operand
from aotlite.ir.op.parameter_types import Number
from aotlite.ir.ops.declare import Formulas, in_parts, pointwise, pointwise_rule, same
from aotlite.ir.ops.kinds import BOOL, COMPLEX, FLOAT8, INTEGER, STORED, refusal
from aotlite.ir.ops.pointwise_rows import binary, unary
from aotlite.ir.ops.precision import number_in
from aotlite.ir.scalar import Element


def _no_slope(grad: Operand) -> Operand:
    return grad.new_zeros(grad.shape)


TRUNC = unary("trunc", aliases="fix", vjp=_no_slope, refuses=BOOL | COMPLEX | FLOAT8)
FRAC = unary(
    "frac",
    element=lambda f, a: a - f.trunc(a),
    vjp=lambda grad: grad,
    refuses=BOOL | INTEGER | COMPLEX | FLOAT8,
)

_WHOLE_RULE = pointwise_rule("round", same, refuses=BOOL | COMPLEX | FLOAT8)
_DECIMAL_RULE = pointwise_rule("round", same, refuses=BOOL | INTEGER | COMPLEX | FLOAT8)


def _round_rule(self: TensorMeta, decimals: int) -> TensorMeta:
    """As in PyTorch, only floats are rounded to decimals."""
    return _DECIMAL_RULE(self) if decimals else _WHOLE_RULE(self)


def _round_kernel(xp: Namespace, a: Array, decimals: int) -> Array:
    if not decimals:
        return xp.round(a)
    power = 10.0 ** abs(decimals)
    return xp.round(a * power) / power if decimals > 0 else xp.round(a / power) * power


def _round_scalar(a: Element, decimals: int) -> Element:
    if not decimals:
        return s.round_(a)
    power = 10.0 ** abs(decimals)
    return s.round_(a * power) / power if decimals > 0 else s.round_(a / power) * power


ROUND = unary(
    "round",
    parameters="*, int decimals=0",
    kernel=_round_kernel,
    scalar=_round_scalar,
    vjp=_no_slope,
    rule=_round_rule,
)
"""To the nearest number of so many decimals, halves to even ones."""


# ------------------------------------------------------------------------- division and remainder
def _checked(xp: Namespace, name: str, divisor: Array, a: Array) -> None:
    """Raises ArgumentError for integers divided by 0."""
    integers = all(not hasattr(v, "dtype") or v.dtype.kind in "iu" for v in (a, divisor))
    if integers and (divisor == 0 if not hasattr(divisor, "dtype") else xp.any(divisor == 0)):
        raise ArgumentError(f"{name}: a divisor is 0, expected integers other than 0")


def _floor_kernel(xp: Namespace, a: Array, b: Array, name: str = "floor_divide") -> Array:
    _checked(xp, name, b, a)
    return xp.floor_divide(a, b)


def _trunc_kernel(xp: Namespace, a: Array, b: Array) -> Array:
    _checked(xp, "div", b, a)
    quotient = xp.floor_divide(a, b)
    if quotient.dtype.kind not in "iu":
        return xp.trunc(xp.true_divide(a, b))
    if quotient.dtype.kind == "u":
        return quotient
    inexact = xp.remainder(a, b) != 0
    return xp.where((quotient < 0) & inexact, quotient + 1, quotient)


_DIVIDES = BOOL | COMPLEX | STORED
# The names say what is saved: as much as PyTorch saves for zeros.
_FLAT_QUOTIENT: Formulas = {
    "self": lambda grad, other: _no_slope(grad),
    "other": lambda grad, self, other: _no_slope(grad),
}

FLOOR_DIVIDE = binary(
    "floor_divide",
    operands="Tensor|Scalar self, Tensor|Scalar other",
    kernel=_floor_kernel,
    vjp=(_no_slope, _no_slope),
    refuses=_DIVIDES,
    numbers="wide",
)
DIV_FLOOR = pointwise(
    "div_floor(Tensor self, Tensor|Scalar other) -> Tensor",
    kernel=lambda xp, a, b: _floor_kernel(xp, a, b, "div"),
    scalar=s.floor_divide,
    vjp=_FLAT_QUOTIENT,
    refuses=_DIVIDES,
    numbers="wide",
    inplace=True,
)
"""`div(rounding_mode="floor")`, which PyTorch saves its operands of."""
DIV_TRUNC = pointwise(
    "div_trunc(Tensor self, Tensor|Scalar other) -> Tensor",
    kernel=_trunc_kernel,
    scalar=s.trunc_divide,
    vjp=_FLAT_QUOTIENT,
    refuses=_DIVIDES,
    numbers="wide",
    inplace=True,
)
"""`div(rounding_mode="trunc")`."""


def _fmod_kernel(xp: Namespace, a: Array, b: Array) -> Array:
    _checked(xp, "fmod", b, a)
    return xp.fmod(a, b)


def _remainder_kernel(xp: Namespace, a: Array, b: Array) -> Array:
    _checked(xp, "remainder", b, a)
    rest = xp.fmod(a, b)
    # Not the library's own remainder, which gives a remainder of 0 the sign of the divisor.
    return xp.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


def _remainder_scalar(a: Element, b: Element) -> Element:
    rest = s.fmod(a, b)
    turned = s.ne(s.lt(rest, 0), s.lt(b, 0))
    return s.where(s.logical_and(s.ne(rest, 0), turned), rest + b, rest)


FMOD = binary(
    "fmod",
    kernel=_fmod_kernel,
    vjp=(lambda grad: grad, lambda grad, self, other: -grad * self._do("div_trunc", other)),
    refuses=_DIVIDES,
)
REMAINDER = binary(
    "remainder",
    operands="Tensor|Scalar self, Tensor|Scalar other",
    kernel=_remainder_kernel,
    scalar=_remainder_scalar,
    vjp=(lambda grad: grad, lambda grad, self, other: -grad * _floored(self, other)),
    refuses=_DIVIDES,
)


def _floored(self: Operand, other: Operand) -> Operand:
    if hasattr(self, "meta"):
        return self._do("div_floor", other)
    return other.new_full((), self)._do("div_floor", other)


@composite(
    "div(Tensor self, Tensor|Scalar other, *, str? rounding_mode=None) -> Tensor",
    inplace=True,
    aliases="divide",
)
def div(
    self: Operand, other: Operand | Number, rounding_mode: str | None, end: str = ""
) -> Operand:
    """The quotient: exact, or rounded down ("floor") or towards 0 ("trunc")."""
    return self._do(_division(rounding_mode) + end, other)


@composite("true_divide(Tensor self, Tensor|Scalar other) -> Tensor", inplace=True)
def true_divide(self: Operand, other: Operand | Number, end: str = "") -> Operand:
    """The exact quotient."""
    return self._do("div" + end, other)


def _division(mode: str | None) -> str:
    found = {None: "div", "floor": "div_floor", "trunc": "div_trunc"}.get(mode)
    if found is None:
        raise ArgumentError(f"div: rounding_mode is {mode!r}, expected None, 'floor' or 'trunc'")
    return found


# ------------------------------------------------------------------------------------------ clamp
_BY_NUMBERS = pointwise_rule("clamp", same, refuses=COMPLEX | STORED)
_BY_TENSORS = pointwise_rule("clamp", same, refuses=BOOL | COMPLEX | STORED)


def _clamp_rule(
    self: TensorMeta, low: TensorMeta | type[Number] | None, high: TensorMeta | type[Number] | None
) -> TensorMeta:
    """Bounds promote: of integers to a number of floats."""
    bounds = [bound for bound in (low, high) if bound is not None]
    if not bounds:
        raise ArgumentError("clamp: min and max are both None, expected at least one bound")
    metas = [bound for bound in bounds if type(bound) is TensorMeta]
    if not metas:
        return _BY_NUMBERS(self, low, high)
    if len(metas) != len(bounds):
        raise ArgumentError("clamp: one bound is a tensor and one a number, expected the same kind")
    # By one tensor it is maximum or minimum, which take bool as PyTorch's do.
    return _BY_NUMBERS(self, *metas) if len(metas) == 1 else _BY_TENSORS(self, *metas)


def _clamp_kernel(
    xp: Namespace, a: Array, low: Array | float | None, high: Array | float | None
) -> Array:
    if low is not None:
        a = xp.maximum(a, _bound(a, low))
    return a if high is None else xp.minimum(a, _bound(a, high))


def _bound(a: Array, number: Array | float) -> Array | float:
    """The bound; ArgumentError for a number that the array's dtype cannot hold."""
    if type(number) not in NUMBERS:
        return number
    dtype = dtypes.from_numpy(a.dtype)
    if number_in(dtype, number) != number and number == number:
        raise ArgumentError(f"clamp: a bound is {number}, expected one that {dtype} holds")
    return number


def _clamp_scalar(a: Element, low: Element | None, high: Element | None) -> Element:
    low_done = a if low is None else s.maximum(a, low)
    return low_done if high is None else s.minimum(low_done, high)


def _inside(grad: Operand, self: Operand, min: Any, max: Any) -> Operand:
    if min is not None:
        grad = (self >= min).where(grad, 0)
    return grad if max is None else (self <= max).where(grad, 0)


def _to_low(grad: Operand, self: Operand, min: Any, max: Any) -> Operand:
    """Where the lower bound is what is given; of two crossed bounds it is the upper one."""
    grad = (self < min).where(grad, 0)
    return grad if max is None else (min < max).where(grad, 0)


def _to_high(grad: Operand, self: Operand, min: Any, max: Any) -> Operand:
    if min is None:
        return (self > max).where(grad, 0)
    return (self > max).logical_or(max < min).where(grad, 0)


CLAMP = pointwise(
    "clamp(Tensor self, Tensor|Scalar? min=None, Tensor|Scalar? max=None) -> Tensor",
    kernel=_clamp_kernel,
    scalar=_clamp_scalar,
    vjp={"self": _inside, "min": _to_low, "max": _to_high},
    rule=_clamp_rule,
    numbers="unwrapped",
    inplace=True,
    aliases="clip",
)


def clamp_parts(do: Any, x: Any, low: Any, high: Any) -> Any:
    """One bound after the other."""
    x = x if low is None else do("clamp", x, low, None)
    return x if high is None else do("clamp", x, None, high)


in_parts(CLAMP, clamp_parts)


@composite("clamp_min(Tensor self, Tensor|Scalar min) -> Tensor", inplace=True)
def clamp_min(self: Operand, min: Operand | Number | None, end: str = "") -> Operand:
    """No element below `min`."""
    return self._do("clamp" + end, min, None)


@composite("clamp_max(Tensor self, Tensor|Scalar max) -> Tensor", inplace=True)
def clamp_max(self: Operand, max: Operand | Number | None, end: str = "") -> Operand:
    """No element above `max`."""
    return self._do("clamp" + end, None, max)


# ------------------------------------------------------------------------------------- nan_to_num
_LIMITS = {
    dtypes.float16: 65504.0,
    dtypes.bfloat16: float.fromhex("0x1.fep127"),
    dtypes.float32: float.fromhex("0x1.fffffep127"),
    dtypes.float64: float.fromhex("0x1.fffffffffffffp1023"),
}
"""The largest finite value of each dtype."""


def _replaced(xp: Namespace, a: Array, nan: float, posinf: float, neginf: float) -> Array:
    finite = xp.where(a == -float("inf"), neginf, xp.where(a == float("inf"), posinf, a))
    return xp.astype(xp.where(a != a, nan, finite), a.dtype)


def _replaced_scalar(a: Element, nan: float, posinf: float, neginf: float) -> Element:
    finite = s.where(s.eq(a, -math.inf), neginf, s.where(s.eq(a, math.inf), posinf, a))
    return s.where(s.isnan(a), nan, finite)


REPLACE_NONFINITE = unary(
    "replace_nonfinite",
    parameters="float nan, float posinf, float neginf",
    kernel=_replaced,
    scalar=_replaced_scalar,
    vjp=lambda grad, self: self.isfinite().where(grad, 0),
    refuses=BOOL | INTEGER | COMPLEX | FLOAT8,
)
"""`nan_to_num` of real floats."""
_REPLACE = "float? nan=None, float? posinf=None, float? neginf=None"


@composite(f"nan_to_num(Tensor self, {_REPLACE}) -> Tensor", inplace=True)
def nan_to_num(
    self: Operand, nan: float | None, posinf: float | None, neginf: float | None, end: str = ""
) -> Operand:
    """nan as 0 and infinities as the largest finite values, or as the numbers given."""
    numbers = nan, posinf, neginf
    if self.is_floating_point():
        return self._do("replace_nonfinite" + end, *_defaults(self.dtype, numbers))
    if end:
        return self.copy_(self.nan_to_num(*numbers))
    if self.is_complex():
        parts = (self.real.nan_to_num(*numbers), self.imag.nan_to_num(*numbers))
        return parts[0]._do("complex", parts[1])
    return self.clone()


def _defaults(dtype: DType, numbers: tuple[float | None, ...]) -> tuple[float, float, float]:
    if dtype not in _LIMITS:
        raise refusal("nan_to_num", dtype, FLOAT8)
    nan, posinf, neginf = numbers
    return (
        0.0 if nan is None else nan,
        _LIMITS[dtype] if posinf is None else posinf,
        -_LIMITS[dtype] if neginf is None else neginf,
    )


# ---------------------------------------------------------------------------------------- isclose
@composite(
    "isclose(Tensor self, Tensor other, float rtol=1e-05, float atol=1e-08, bool equal_nan=False)"
    " -> Tensor"
)
def isclose(self: Operand, other: Operand, rtol: float, atol: float, equal_nan: bool) -> Operand:
    """Where |self - other| <= atol + rtol * |other|, or both are equal."""
    if self.dtype is not other.dtype:
        raise DTypeError(f"isclose: other has dtype {other.dtype}, expected {self.dtype}")
    for what, value in (("rtol", rtol), ("atol", atol)):
        if not value >= 0:
            raise ArgumentError(f"isclose: {what} is {value}, expected at least 0")
    close = self == other
    if equal_nan and self.dtype.is_differentiable:
        close = close.logical_or((self != self).logical_and(other != other))
    if rtol == 0 and atol == 0:
        return close
    b = other.to(dtypes.default_dtype) if self.dtype.kind <= dtypes.INTEGER else other
    a = self.to(dtypes.default_dtype) if self.dtype is dtypes.bool_ else self
    off = (a - b).abs()
    return close.logical_or(off.isfinite().logical_and(off <= (b * rtol).abs() + atol))
