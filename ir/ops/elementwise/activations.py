"""Pointwise ops of networks: silu, mish, softplus, elu, hardtanh, threshold, ... Each saves its
operand, as PyTorch's do."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir import scalar as s
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError, ShapeError
from aotlite.ir.op import PureOp
from aotlite.ir.op.composite import composite
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.declare import in_parts, pointwise, pointwise_rule, same
from aotlite.ir.ops.elementwise.rounding import clamp_parts
from aotlite.ir.ops.kinds import BOOL, COMPLEX, FLOAT8, INTEGER, STORED, Refused
from aotlite.ir.ops.precision import number_in
from aotlite.ir.scalar import Element

_REAL_FLOATS: Refused = BOOL | INTEGER | COMPLEX | FLOAT8
_REAL_NUMBERS: Refused = BOOL | COMPLEX | STORED


def _activation(
    schema: str, vjp: Callable[..., object], *, refuses: Refused = _REAL_FLOATS, **facts: Any
) -> PureOp:
    return pointwise(schema, vjp={"self": vjp}, refuses=refuses, **facts)


# ------------------------------------------------------------------------------------ smooth ones
def _silu_vjp(grad: Operand, self: Operand) -> Operand:
    gate = self.sigmoid()
    slope = gate * (self * (1 - gate) + 1)
    return grad * (slope.conj() if self.is_complex() else slope)


SILU = _activation(
    "silu(Tensor self) -> Tensor",
    _silu_vjp,
    element=lambda f, a: a / (f.exp(-a) + 1.0),
    inplace=True,
    refuses=BOOL | INTEGER | FLOAT8,
)


def _mish_vjp(grad: Operand, self: Operand) -> Operand:
    bent = self._do("softplus", 1, 20).tanh()
    return grad * (bent + self * self.sigmoid() * (1 - bent * bent))


MISH = _activation(
    "mish(Tensor self) -> Tensor",
    _mish_vjp,
    element=lambda f, a: a * f.tanh(f.log1p(f.exp(a))),
    inplace=True,
)


def _softplus(f: Any, a: Any, beta: Any, threshold: object) -> object:
    scaled = a * beta
    return f.where(f.greater(scaled, threshold), a, f.log1p(f.exp(scaled)) / beta)


def _softplus_vjp(grad: Operand, self: Operand, beta: float, threshold: float) -> Operand:
    scaled = self * beta
    return (scaled > threshold).where(grad, grad * scaled.sigmoid())


SOFTPLUS = _activation(
    "softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor",
    _softplus_vjp,
    element=_softplus,
)


_LOG_SIGMOID_RULE = pointwise_rule("log_sigmoid", same, refuses=_REAL_FLOATS)
LOG_SIGMOID = _activation(
    "log_sigmoid(Tensor self) -> Tensor",
    lambda grad, self: grad * (-self).sigmoid(),
    element=lambda f, a: f.minimum(a, 0.0) - f.log1p(f.exp(-f.abs(a))),
    rule=lambda self: _LOG_SIGMOID_RULE(self).as_contiguous(),  # as in PyTorch
)


@composite("logsigmoid(Tensor self) -> Tensor", is_method=False)
def logsigmoid(self: Operand) -> Operand:
    """The logarithm of sigmoid, also where that rounds to 0 or 1."""
    return self._do("log_sigmoid")


def _elu_kernel(xp: Namespace, a: Array, alpha: float, scale: float, input_scale: float) -> Array:
    bent = xp.expm1(xp.where(a <= 0, a, 0) * input_scale) * (alpha * scale)
    return xp.where(a <= 0, bent, a * scale)


def _elu_scalar(a: Element, alpha: float, scale: float, input_scale: float) -> Element:
    return s.where(s.le(a, 0), s.expm1(a * input_scale) * (alpha * scale), a * scale)


def _elu_vjp(
    grad: Operand, self: Operand, alpha: float, scale: float, input_scale: float
) -> Operand:
    below = self <= 0
    bent = (below.where(self, 0) * input_scale).exp() * (alpha * scale * input_scale)
    return below.where(grad * bent, grad * scale)


ELU = _activation(
    "elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor",
    _elu_vjp,
    kernel=_elu_kernel,
    scalar=_elu_scalar,
    inplace=True,
)
_SELU = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
"""Source: Klambauer et al., "Self-normalizing neural networks" (2017)."""


@composite("selu(Tensor self) -> Tensor", inplace=True)
def selu(self: Operand, end: str = "") -> Operand:
    """`elu` with the scales that keep mean and variance."""
    return self._do("elu" + end, *_SELU, 1)


@composite("celu(Tensor self, Scalar alpha=1.0) -> Tensor", inplace=True)
def celu(self: Operand, alpha: float, end: str = "") -> Operand:
    """`elu` whose slope is 1 at 0 for every alpha."""
    return self._do("elu" + end, alpha, 1.0, _inverse(alpha))


def _inverse(alpha: float) -> float:
    if alpha == 0:
        raise ArgumentError("celu: alpha is 0, expected another number")
    return 1.0 / alpha


@composite("softsign(Tensor self) -> Tensor", is_method=False)
def softsign(self: Operand) -> Operand:
    """self / (|self| + 1)."""
    return self / (self.abs() + 1)


@composite("tanhshrink(Tensor self) -> Tensor", is_method=False)
def tanhshrink(self: Operand) -> Operand:
    """self - tanh(self)."""
    return self - self.tanh()


# ---------------------------------------------------------------------------------- of two slopes
LEAKY_RELU = _activation(
    "leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor",
    lambda grad, self, negative_slope: (self > 0).where(grad, grad * negative_slope),
    element=lambda f, a, slope: f.where(f.greater(a, 0), a, a * slope),
    inplace=True,
)
PRELU = pointwise(
    "prelu_kernel(Tensor self, Tensor weight) -> Tensor",
    element=lambda f, a, w: f.where(f.greater(a, 0), a, a * w),
    vjp={
        "self": lambda grad, self, weight: (self > 0).where(grad, grad * weight),
        "weight": lambda grad, self: (self > 0).where(0, grad * self),
    },
    refuses=_REAL_FLOATS,
)
"""`prelu` for a weight that broadcasts with self."""


@composite("prelu(Tensor self, Tensor weight) -> Tensor")
def prelu(self: Operand, weight: Operand) -> Operand:
    """self where it is positive, elsewhere times `weight`: one for all, or one a channel (dim 1).

    Raises ShapeError for a weight of another form.
    """
    if weight.ndim > 1:
        raise ShapeError(f"prelu: weight has shape {weight.shape}, expected at most 1 dimension")
    if weight.ndim == 0 or self.ndim < 2:
        channels = 1
    else:
        channels = self.shape[1]
    if weight.ndim == 1 and weight.shape[0] != 1:
        if weight.shape[0] != channels:
            raise ShapeError(
                f"prelu: weight has {weight.shape[0]} elements, expected 1 or the {channels} of "
                "dimension 1"
            )
        return self._do("prelu_kernel", weight.reshape(1, -1, *([1] * (self.ndim - 2))))
    return self._do("prelu_kernel", weight.reshape([1] * self.ndim))


# ------------------------------------------------------------------------------------ with corners
def _fitting(name: str, a: Array, number: float) -> float:
    """The number; ArgumentError if the array's dtype cannot hold it."""
    dtype = dtypes.from_numpy(a.dtype)
    if not _is_held(dtype, number):
        raise ArgumentError(f"{name}: a bound is {number}, expected one that {dtype} holds")
    return int(number) if dtype.kind == dtypes.INTEGER else number


def _is_held(dtype: DType, number: float) -> bool:
    """Whether a dtype holds the number; integers hold it without its fraction."""
    if dtype.kind != dtypes.INTEGER:
        return True
    return math.isfinite(number) and bool(number_in(dtype, int(number)) == int(number))


def _check_held(a: Any, *numbers: float) -> None:
    """Raises OverflowError for a number that the kernel refuses: it has no expression then."""
    for number in numbers:
        if not _is_held(a.dtype, number):
            raise OverflowError(f"{number} as {a.dtype}, expected a number that the dtype holds")


def _hardtanh_scalar(a: Element, low: float, high: float) -> Element:
    _check_held(a, low, high)
    return s.minimum(s.maximum(a, low), high)


def _threshold_scalar(a: Element, threshold: float, value: float) -> Element:
    _check_held(a, value)
    return s.where(s.le(a, threshold), value, a)


def _hardtanh_kernel(xp: Namespace, a: Array, low: float, high: float) -> Array:
    low, high = _fitting("hardtanh", a, low), _fitting("hardtanh", a, high)
    return xp.minimum(xp.maximum(a, low), high)


HARDTANH = _activation(
    "hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor",
    lambda grad, self, min_val, max_val: (
        (self > min_val).logical_and(self < max_val).where(grad, 0)
    ),
    kernel=_hardtanh_kernel,
    scalar=_hardtanh_scalar,
    inplace=True,
    refuses=_REAL_NUMBERS,
)


@composite("relu6(Tensor self) -> Tensor", is_method=False)
def relu6(self: Operand) -> Operand:
    """min(max(self, 0), 6)."""
    return self._do("hardtanh", 0, 6)


HARDSIGMOID = _activation(
    "hardsigmoid(Tensor self) -> Tensor",
    lambda grad, self: (self.abs() < 3).where(grad / 6, 0),
    element=lambda f, a: f.minimum(f.maximum(a + 3.0, 0.0), 6.0) / 6.0,
    inplace=True,
)


def _hardswish_vjp(grad: Operand, self: Operand) -> Operand:
    above, below = self >= 3, self <= -3
    bent = grad * (self / 3 + 0.5)
    return below.where(0, above.where(grad, bent))


HARDSWISH = _activation(
    "hardswish(Tensor self) -> Tensor",
    _hardswish_vjp,
    element=lambda f, a: a * f.minimum(f.maximum(a + 3.0, 0.0), 6.0) / 6.0,
    inplace=True,
)
THRESHOLD = _activation(
    "threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor",
    lambda grad, self, threshold: (self <= threshold).where(0, grad),
    kernel=lambda xp, a, threshold, value: xp.where(
        a <= threshold, xp.asarray(_fitting("threshold", a, value), dtype=a.dtype), a
    ),
    scalar=_threshold_scalar,
    inplace=True,
    refuses=_REAL_NUMBERS,
)


def _shrink_checked(lambd: float) -> float:
    if not lambd >= 0:
        raise ArgumentError(f"softshrink: lambd is {lambd}, expected at least 0")
    return lambd


def _softshrink_kernel(xp: Namespace, a: Array, lambd: float) -> Array:
    lambd = _shrink_checked(lambd)
    # Times 0 and not 0 itself: a nan stays one.
    return xp.where(a > lambd, a - lambd, xp.where(a < -lambd, a + lambd, a * 0))


def _softshrink_scalar(a: Element, lambd: float) -> Element:
    if not lambd >= 0:  # which the kernel refuses
        raise ArithmeticError(f"lambd is {lambd}, expected at least 0")
    inner = s.where(s.lt(a, -lambd), a + lambd, a * 0.0)
    return s.where(s.gt(a, lambd), a - lambd, inner)


SOFTSHRINK = _activation(
    "softshrink(Tensor self, Scalar lambd=0.5) -> Tensor",
    lambda grad, self, lambd: (self.abs() <= lambd).where(0, grad),
    kernel=_softshrink_kernel,
    scalar=_softshrink_scalar,
)
HARDSHRINK = _activation(
    "hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor",
    lambda grad, self, lambd: (self >= -lambd).logical_and(self <= lambd).where(0, grad),
    element=lambda f, a, lambd: f.where(
        f.logical_and(f.greater_equal(a, -lambd), f.less_equal(a, lambd)), 0.0, a
    ),
    rounds=("lambd",),
)


# ------------------------------------------------------------------- as ops that take tensors
def _elu_parts(do: Any, x: Any, alpha: Any, scale: Any, input_scale: Any) -> Any:
    below = do("le", x, 0)
    bent = do("expm1", do("mul", do("where", below, x, 0), input_scale))
    return do("where", below, do("mul", bent, alpha * scale), do("mul", x, scale))


def _softplus_parts(do: Any, x: Any, beta: Any, threshold: Any) -> Any:
    scaled = do("mul", x, beta)
    bent = do("div", do("log1p", do("exp", scaled)), beta)
    return do("where", do("gt", scaled, threshold), x, bent)


def _softshrink_parts(do: Any, x: Any, lambd: Any) -> Any:
    if not lambd >= 0:  # which the kernel refuses
        return None
    inner = do("where", do("lt", x, -lambd), do("add", x, lambd), do("mul", x, 0))
    return do("where", do("gt", x, lambd), do("sub", x, lambd), inner)


def _hardshrink_parts(do: Any, x: Any, lambd: Any) -> Any:
    inside = do("logical_and", do("ge", x, -lambd), do("le", x, lambd))
    return do("where", inside, 0.0, x)


in_parts(HARDTANH, clamp_parts)
in_parts(LEAKY_RELU, lambda do, x, slope: do("where", do("gt", x, 0), x, do("mul", x, slope)))
in_parts(THRESHOLD, lambda do, x, most, value: do("where", do("le", x, most), value, x))
in_parts(ELU, _elu_parts)
in_parts(SOFTPLUS, _softplus_parts)
in_parts(SOFTSHRINK, _softshrink_parts)
in_parts(HARDSHRINK, _hardshrink_parts)
