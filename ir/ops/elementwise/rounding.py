"""Pointwise ops that round, and what is left over: trunc, round, frac, division and remainders."""

from __future__ import annotations

from typing import Any

from aotlite.ir import scalar as s
from aotlite.ir.errors import ArgumentError
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op.composite import composite
from aotlite.ir.ops.declare import Formulas, pointwise, pointwise_rule, same
from aotlite.ir.ops.kinds import BOOL, COMPLEX, FLOAT8, INTEGER, STORED


def _no_slope(grad: Any) -> Any:
    return grad.new_zeros(grad.shape)


TRUNC = pointwise(
    "trunc(Tensor self) -> Tensor",
    kernel="trunc",
    scalar=s.trunc,
    vjp={"self": _no_slope},
    refuses=BOOL | COMPLEX | FLOAT8,
    inplace=True,
)
FRAC = pointwise(
    "frac(Tensor self) -> Tensor",
    kernel=lambda xp, a: a - xp.trunc(a),
    scalar=lambda a: a - s.trunc(a),
    vjp={"self": lambda grad: grad},
    refuses=BOOL | INTEGER | COMPLEX | FLOAT8,
    inplace=True,
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


ROUND = pointwise(
    "round(Tensor self, *, int decimals=0) -> Tensor",
    kernel=_round_kernel,
    scalar=_round_scalar,
    vjp={"self": _no_slope},
    rule=_round_rule,
    inplace=True,
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

FLOOR_DIVIDE = pointwise(
    "floor_divide(Tensor|Scalar self, Tensor|Scalar other) -> Tensor",
    kernel=_floor_kernel,
    scalar=s.floor_divide,
    vjp={"self": _no_slope, "other": _no_slope},
    refuses=_DIVIDES,
    numbers="wide",
    inplace=True,
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


FMOD = pointwise(
    "fmod(Tensor self, Tensor|Scalar other) -> Tensor",
    kernel=_fmod_kernel,
    scalar=s.fmod,
    vjp={
        "self": lambda grad: grad,
        "other": lambda grad, self, other: -grad * self._do("div_trunc", other),
    },
    refuses=_DIVIDES,
    inplace=True,
)
REMAINDER = pointwise(
    "remainder(Tensor|Scalar self, Tensor|Scalar other) -> Tensor",
    kernel=_remainder_kernel,
    scalar=_remainder_scalar,
    vjp={
        "self": lambda grad: grad,
        "other": lambda grad, self, other: -grad * _floored(self, other),
    },
    refuses=_DIVIDES,
    inplace=True,
)


def _floored(self: Any, other: Any) -> Any:
    if hasattr(self, "meta"):
        return self._do("div_floor", other)
    return other.new_full((), self)._do("div_floor", other)


@composite(
    "div(Tensor self, Tensor|Scalar other, *, str? rounding_mode=None) -> Tensor", name="div"
)
def div(self: Any, other: Any, rounding_mode: str | None) -> Any:
    """The quotient: exact, or rounded down ("floor") or towards 0 ("trunc")."""
    return self._do(_division(rounding_mode), other)


@composite("div_(Tensor(a!) self, Tensor|Scalar other, *, str? rounding_mode=None) -> Tensor(a!)")
def div_(self: Any, other: Any, rounding_mode: str | None) -> Any:
    """`div` in place."""
    return self._do(_division(rounding_mode) + "_", other)


@composite("true_divide(Tensor self, Tensor|Scalar other) -> Tensor")
def true_divide(self: Any, other: Any) -> Any:
    """The exact quotient."""
    return self._do("div", other)


@composite("true_divide_(Tensor(a!) self, Tensor|Scalar other) -> Tensor(a!)")
def true_divide_(self: Any, other: Any) -> Any:
    """`true_divide` in place."""
    return self._do("div_", other)


def _division(mode: str | None) -> str:
    found = {None: "div", "floor": "div_floor", "trunc": "div_trunc"}.get(mode)
    if found is None:
        raise ArgumentError(f"div: rounding_mode is {mode!r}, expected None, 'floor' or 'trunc'")
    return found
