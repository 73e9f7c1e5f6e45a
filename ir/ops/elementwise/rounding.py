"""Pointwise ops that round, and what is left over: trunc, round, frac, division and remainders."""

from __future__ import annotations

from typing import Any

from aotlite.ir import scalar as s
from aotlite.ir.errors import ArgumentError
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op.composite import composite
from aotlite.ir.ops.declare import Formulas, pointwise, pointwise_rule, same
from aotlite.ir.ops.kinds import BOOL, COMPLEX, FLOAT8, INTEGER, STORED
from aotlite.ir.ops.pointwise_rows import binary, unary


def _no_slope(grad: Any) -> Any:
    return grad.new_zeros(grad.shape)


TRUNC = unary("trunc", aliases="fix", vjp=_no_slope, refuses=BOOL | COMPLEX | FLOAT8)
FRAC = unary(
    "frac",
    kernel=lambda xp, a: a - xp.trunc(a),
    scalar=lambda a: a - s.trunc(a),
    vjp=lambda grad: grad,
    refuses=BOOL | INTEGER | COMPLEX | FLOAT8,
)

_WHOLE_RULE = pointwise_rule("round", same, refuses=BOOL | COMPLEX | FLOAT8)
_DECIMAL_RULE = pointwise_rule("round", same, refuses=BOOL | INTEGER | COMPLEX | FLOAT8)


def _round_rule(self: TensorMeta, decimals: int) -> TensorMeta:
    """As in PyTorch, only floats are rounded to decimals."""
    return _DECIMAL_RULE(self) if decimals else _WHOLE_RULE(self)


def _round_kernel(xp: Any, a: Any, decimals: int) -> Any:
    if not decimals:
        return xp.round(a)
    power = 10.0 ** abs(decimals)
    return xp.round(a * power) / power if decimals > 0 else xp.round(a / power) * power


def _round_scalar(a: Any, decimals: int) -> Any:
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
def _checked(xp: Any, name: str, divisor: Any, a: Any) -> None:
    """Raises ArgumentError for integers divided by 0."""
    integers = all(not hasattr(v, "dtype") or v.dtype.kind in "iu" for v in (a, divisor))
    if integers and (divisor == 0 if not hasattr(divisor, "dtype") else xp.any(divisor == 0)):
        raise ArgumentError(f"{name}: a divisor is 0, expected integers other than 0")


def _floor_kernel(xp: Any, a: Any, b: Any, name: str = "floor_divide") -> Any:
    _checked(xp, name, b, a)
    return xp.floor_divide(a, b)


def _trunc_kernel(xp: Any, a: Any, b: Any) -> Any:
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
    scalar=lambda a, b: s.trunc(a / b),
    vjp=_FLAT_QUOTIENT,
    refuses=_DIVIDES,
    numbers="wide",
    inplace=True,
)
"""`div(rounding_mode="trunc")`."""


def _fmod_kernel(xp: Any, a: Any, b: Any) -> Any:
    _checked(xp, "fmod", b, a)
    return xp.fmod(a, b)


def _remainder_kernel(xp: Any, a: Any, b: Any) -> Any:
    _checked(xp, "remainder", b, a)
    rest = xp.fmod(a, b)
    # Not the library's own remainder, which gives a remainder of 0 the sign of the divisor.
    return xp.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


def _remainder_scalar(a: Any, b: Any) -> Any:
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


def _floored(self: Any, other: Any) -> Any:
    if hasattr(self, "meta"):
        return self._do("div_floor", other)
    return other.new_full((), self)._do("div_floor", other)


@composite(
    "div(Tensor self, Tensor|Scalar other, *, str? rounding_mode=None) -> Tensor",
    inplace=True,
    aliases="divide",
)
def div(self: Any, other: Any, rounding_mode: str | None, end: str = "") -> Any:
    """The quotient: exact, or rounded down ("floor") or towards 0 ("trunc")."""
    return self._do(_division(rounding_mode) + end, other)


@composite("true_divide(Tensor self, Tensor|Scalar other) -> Tensor", inplace=True)
def true_divide(self: Any, other: Any, end: str = "") -> Any:
    """The exact quotient."""
    return self._do("div" + end, other)


def _division(mode: str | None) -> str:
    found = {None: "div", "floor": "div_floor", "trunc": "div_trunc"}.get(mode)
    if found is None:
        raise ArgumentError(f"div: rounding_mode is {mode!r}, expected None, 'floor' or 'trunc'")
    return found
