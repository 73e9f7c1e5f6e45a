"""Pointwise ops of several operands: scaled sums, lerp, addcmul, addcdiv, xlogy, fmax, copysign."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir import scalar as s
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError, DTypeError
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op.binding import KINDS
from aotlite.ir.op.composite import composite
from aotlite.ir.op.operand import Operand
from aotlite.ir.op.parameter_types import Number
from aotlite.ir.ops.declare import in_parts, pointwise, pointwise_rule, same, to_float
from aotlite.ir.ops.elementwise.pointwise import conj
from aotlite.ir.ops.kinds import ANY_BOOL, BOOL, COMPLEX, FLOAT8, INTEGER, STORED, Refused
from aotlite.ir.ops.pointwise_rows import binary
from aotlite.ir.ops.precision import number_in, whole
from aotlite.ir.scalar import Element
from aotlite.ir.scalar.expression import Scalar, const
from aotlite.ir.symbols.floats.symfloat import SymFloat

# ------------------------------------------------------------------------------------ scaled sums
ADD_SCALED = pointwise(
    "add_scaled(Tensor self, Tensor|Scalar other, Scalar alpha) -> Tensor",
    element=lambda f, a, b, alpha: a + b * alpha,
    vjp={"self": lambda grad: grad, "other": lambda grad, alpha: grad * conj(alpha)},
    refuses=STORED,
    numbers="held, computed",
    rounds=("alpha",),
    inplace=True,
    linear=(("self", "other"),),
)
"""`add` with an alpha other than 1."""
SUB_SCALED = pointwise(
    "sub_scaled(Tensor self, Tensor|Scalar other, Scalar alpha) -> Tensor",
    element=lambda f, a, b, alpha: a - b * alpha,
    vjp={"self": lambda grad: grad, "other": lambda grad, alpha: -grad * conj(alpha)},
    refuses=ANY_BOOL | STORED,
    numbers="held, computed",
    rounds=("alpha",),
    inplace=True,
    linear=(("self", "other"),),
)
"""`sub` with an alpha other than 1."""


def _scaled_parts(sign: str) -> Callable[..., Any]:
    def scaled(do: Any, x: Any, other: Any, alpha: Any) -> Any:
        is_tensor = hasattr(other, "meta")
        return do(sign, x, do("mul", other, alpha) if is_tensor else other * alpha)

    return scaled


in_parts(ADD_SCALED, _scaled_parts("add"))
in_parts(SUB_SCALED, _scaled_parts("sub"))


_SUM = "(Tensor self, Tensor|Scalar other, *, Scalar alpha=1) -> Tensor"


@composite("add" + _SUM, inplace="Adds alpha * other to self in place.")
def add(self: Operand, other: Operand | Number, alpha: float, end: str = "") -> Operand:
    """self + alpha * other."""
    return _sum("add", self, other, alpha, end)


@composite("sub" + _SUM, inplace="Subtracts alpha * other from self in place.", aliases="subtract")
def sub(self: Operand, other: Operand | Number, alpha: float, end: str = "") -> Operand:
    """self - alpha * other."""
    return _sum("sub", self, other, alpha, end)


@composite("rsub" + _SUM)
def rsub(self: Operand, other: Operand | Number, alpha: float) -> Operand:
    """other - alpha * self."""
    if type(alpha) is int and alpha == 1:
        return self._do("rsub", other)
    _check_alpha("rsub", alpha, _promoted(self, other))
    return (self * alpha)._do("rsub", other)


def _sum(name: str, self: Operand, other: Operand | Number, alpha: float, end: str) -> Operand:
    if type(alpha) is int and alpha == 1:
        return self._run(name + end, other)
    dtype = _promoted(self, other)
    _check_alpha(name, alpha, dtype)
    is_input = isinstance(alpha, SymFloat) and dtype in _WIDE
    if is_input and getattr(other, "dtype", None) is dtype:
        return self._run(name + end, other * alpha)  # the same bits, and mul takes it as an input
    return self._do(f"{name}_scaled{end}", other, alpha)


_WIDE = (dtypes.float32, dtypes.float64)


def _promoted(self: Any, other: Any) -> DType:
    values = [(v.dtype, v.ndim) if hasattr(v, "meta") else KINDS[type(v)]() for v in (self, other)]
    return dtypes.result_type(values)


def _check_alpha(name: str, alpha: float, dtype: DType) -> None:
    """Raises ArgumentError for a factor that the result's dtype cannot hold."""
    kind = dtypes.dtype_of_scalar(KINDS[type(alpha)]()).kind
    lone_bool = kind == dtypes.BOOL and dtype.kind != dtypes.BOOL
    if kind > dtype.kind and not (kind == dtypes.INTEGER and dtype.kind == dtypes.BOOL):
        raise ArgumentError(f"{name}: alpha is {alpha}, expected a number that {dtype} holds")
    if lone_bool:
        raise ArgumentError(f"{name}: alpha is {alpha}, expected a number, not a bool")


# --------------------------------------------------------------------------------- multiply-adds
_NUMERIC: Refused = BOOL | STORED


def _value_in(dtype: DType, value: float) -> float:
    """The factor `value` as PyTorch takes it: cut to a whole number for integers."""
    return number_in(dtype, whole(value)) if dtype.kind == dtypes.INTEGER else value


ADDCMUL = pointwise(
    "addcmul(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
    kernel=lambda xp, a, b, c, value: a + b * c * _value_in(dtypes.from_numpy(b.dtype), value),
    scalar=lambda a, b, c, value: a + b * c * _value_in(b.dtype, value),
    vjp={
        "self": lambda grad: grad,
        "tensor1": lambda grad, tensor2, value: grad * conj(tensor2 * value),
        "tensor2": lambda grad, tensor1, value: grad * conj(tensor1 * value),
    },
    refuses=_NUMERIC,
    inplace=True,
)
ADDCDIV = pointwise(
    "addcdiv(Tensor self, Tensor tensor1, Tensor tensor2, *, Scalar value=1) -> Tensor",
    element=lambda f, a, b, c, value: a + b * value / c,
    vjp={
        "self": lambda grad: grad,
        "tensor1": lambda grad, tensor2, value: grad * conj(tensor2.reciprocal() * value),
        "tensor2": lambda grad, tensor1, tensor2, value: (
            -grad * conj(tensor1 * value / (tensor2 * tensor2))
        ),
    },
    refuses=BOOL | INTEGER | FLOAT8,
    inplace=True,
)
in_parts(ADDCMUL, lambda do, x, y, z, value: do("add", x, do("mul", do("mul", y, z), value)))
in_parts(ADDCDIV, lambda do, x, y, z, value: do("add", x, do("div", do("mul", y, value), z)))


# ------------------------------------------------------------------------------------------- lerp
_LERP_RULE = pointwise_rule("lerp", same, refuses=BOOL | INTEGER | FLOAT8)


def _lerp_rule(self: TensorMeta, end: TensorMeta, weight: TensorMeta | type[Number]) -> TensorMeta:
    """As in PyTorch the operands have one dtype, but a weight of no dimensions may have another."""
    if end.dtype is not self.dtype:
        raise DTypeError(f"lerp: end has dtype {end.dtype}, expected {self.dtype}, that of self")
    if type(weight) is not TensorMeta:
        if weight is complex and not self.dtype.is_complex:
            raise DTypeError(f"lerp: weight is complex, expected a real one for {self.dtype}")
        return _LERP_RULE(self, end)
    if weight.dtype is not self.dtype and (weight.shape or not weight.dtype.is_floating_point):
        raise DTypeError(
            f"lerp: weight has dtype {weight.dtype}, expected {self.dtype}, that of self"
        )
    return _LERP_RULE(self, end, weight).with_dtype(self.dtype)


def _lerp_kernel(xp: Namespace, a: Array, b: Array, weight: Array) -> Array:
    """From the nearer end, so that a weight of 1 gives `end` exactly."""
    if not hasattr(weight, "dtype"):
        near = abs(weight) < 0.5
        return a + (b - a) * weight if near else b - (b - a) * (1 - weight)
    near = xp.abs(weight) < 0.5
    return xp.where(near, a + (b - a) * weight, b - (b - a) * (1 - weight))


def _lerp_scalar(a: Element, b: Element, weight: Element) -> Element:
    near = s.lt(s.abs_(weight), 0.5)
    return s.where(near, a + (b - a) * weight, b - (b - a) * (1 - weight))


LERP = pointwise(
    "lerp(Tensor self, Tensor end, Tensor|Scalar weight) -> Tensor",
    kernel=_lerp_kernel,
    scalar=_lerp_scalar,
    vjp={
        "self": lambda grad, weight: grad * conj(1 - weight),
        "end": lambda grad, weight: grad * conj(weight),
        "weight": lambda grad, self, end: grad * conj(end - self),
    },
    rule=_lerp_rule,
    numbers="wide, computed",
    inplace=True,
)


def _lerp_parts(do: Any, x: Any, end: Any, weight: Any) -> Any:
    way = do("sub", end, x)
    if abs(weight) < 0.5:
        return do("add", x, do("mul", way, weight))
    return do("sub", end, do("mul", way, 1 - weight))  # of the double


in_parts(LERP, _lerp_parts)


# ------------------------------------------------------------------------- extremes, signs, xlogy
def _wins(self: Operand, other: Operand, *, larger: bool) -> Operand:
    """Where fmax or fmin takes `self`: the better one, the only number, the first of equals."""
    return (self >= other if larger else self <= other).logical_or(other.isnan())


_REAL = COMPLEX | STORED

FMAX = binary(
    "fmax",
    operands="Tensor self, Tensor other",
    kernel=lambda xp, a, b: xp.fmax(a, b),
    scalar=lambda a, b: s.where(s.isnan(a), b, s.where(s.isnan(b), a, s.maximum(a, b))),
    vjp=(
        lambda grad, self, other: _wins(self, other, larger=True).where(grad, 0),
        lambda grad, self, other: _wins(self, other, larger=True).where(0, grad),
    ),
    refuses=_REAL,
    inplace=False,
)
FMIN = binary(
    "fmin",
    operands="Tensor self, Tensor other",
    kernel=lambda xp, a, b: xp.fmin(a, b),
    scalar=lambda a, b: s.where(s.isnan(a), b, s.where(s.isnan(b), a, s.minimum(a, b))),
    vjp=(
        lambda grad, self, other: _wins(self, other, larger=False).where(grad, 0),
        lambda grad, self, other: _wins(self, other, larger=False).where(0, grad),
    ),
    refuses=_REAL,
    inplace=False,
)


def _copysign_vjp(grad: Operand, self: Operand, result: Operand) -> Operand:
    nothing = self == 0
    return grad * nothing.where(0, result / nothing.where(1, self))


COPYSIGN = binary(
    "copysign",
    vjp=(_copysign_vjp, lambda grad: grad.new_zeros(grad.shape)),
    result=to_float,
    refuses=COMPLEX | FLOAT8,
)
NEXTAFTER = binary(
    "nextafter",
    operands="Tensor self, Tensor other",
    vjp=(
        lambda grad, self, other: (self != other).where(grad, 0),
        lambda grad: grad.new_zeros(grad.shape),
    ),
    refuses=BOOL | INTEGER | COMPLEX | FLOAT8,
    widens=False,
)
_HEAVISIDE_RULE = pointwise_rule("heaviside", same, refuses=_REAL)


def _heaviside_rule(self: TensorMeta, values: TensorMeta) -> TensorMeta:
    if self.dtype is not values.dtype:
        raise DTypeError(
            f"heaviside: values has dtype {values.dtype}, expected {self.dtype}, that of self"
        )
    return _HEAVISIDE_RULE(self, values)


HEAVISIDE = binary(
    "heaviside",
    operands="Tensor self, Tensor values",
    kernel=lambda xp, a, b: xp.where(a == 0, b, xp.astype(a > 0, b.dtype)),
    scalar=lambda a, b: s.where(s.eq(a, 0), b, s.where(s.gt(a, 0), 1, 0)),
    vjp=(lambda grad: grad.new_zeros(grad.shape), lambda grad, self: (self == 0).where(grad, 0)),
    rule=_heaviside_rule,
)
"""0 below 0, 1 above, `values` at 0."""


def _xlogy_kernel(xp: Namespace, a: Array, b: Array) -> Array:
    if not hasattr(b, "dtype"):
        b = xp.asarray(float(b), dtype=a.dtype)  # which has no place for all ints
    nothing = xp.equal(a, 0)
    product = xp.where(nothing, 0, a * xp.log(xp.where(nothing, 1, b)))
    return xp.where(xp.isnan(b), b, product)


def _xlogy_scalar(a: Any, b: Any) -> Element:
    if type(b) is not Scalar:  # in the dtype of `a`, as the kernel has it
        b = const(float(b), a.dtype)
    return s.where(s.isnan(b), b, s.where(s.eq(a, 0), 0.0, a * s.log(b)))


def _xlogy_self(grad: Operand, self: Operand, other: Operand | float) -> Operand:
    if not hasattr(other, "meta"):
        slope = grad.xlogy(other)
        return slope if other > 0 else (self == 0).where(0, slope)
    dead = (self == 0).logical_and(other <= 0)
    return grad * dead.where(0, dead.where(1, other).log())


XLOGY = binary(
    "xlogy",
    operands="Tensor|Scalar self, Tensor|Scalar other",
    kernel=_xlogy_kernel,
    scalar=_xlogy_scalar,
    vjp=(_xlogy_self, lambda grad, self, other: grad * self / other),
    result=to_float,
    refuses=COMPLEX | FLOAT8,
)
"""self * log(other), 0 where self is 0."""
