"""Pointwise ops: arithmetic, exponentials, rounding, activations. Gradients follow PyTorch's table
of formulas and of what each saves (OPS-4); the engine sums over broadcast dimensions and casts."""

from __future__ import annotations

from typing import Any

from aotlite.ir import scalar as s
from aotlite.ir.dtypes import from_numpy
from aotlite.ir.errors import ArgumentError
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.declare import pointwise, pointwise_rule, real_of, same, to_float
from aotlite.ir.ops.expansions import floating
from aotlite.ir.ops.kinds import ANY_BOOL, BOOL, COMPLEX, FLOAT8, NOTHING, STORED, WIDE
from aotlite.ir.ops.precision import number_in, widened

# ------------------------------------------------------------------------------- two operands
ADD = pointwise(
    "add(Tensor self, Tensor|Scalar other) -> Tensor",
    kernel="add",
    scalar=lambda a, b: a + b,
    vjp={"self": lambda grad: grad, "other": lambda grad: grad},
    refuses=STORED,
    inplace=True,
    linear=(("self", "other"),),
)
SUB = pointwise(
    "sub(Tensor self, Tensor|Scalar other) -> Tensor",
    kernel="subtract",
    scalar=lambda a, b: a - b,
    vjp={"self": lambda grad: grad, "other": lambda grad: -grad},
    refuses=ANY_BOOL | STORED,
    inplace=True,
    linear=(("self", "other"),),
)
_RSUB_RULE = pointwise_rule("rsub", same, wrapped=(0,), refuses=ANY_BOOL | STORED)
RSUB = pointwise(
    "rsub(Tensor self, Tensor|Scalar other) -> Tensor",
    kernel=lambda xp, a, b: xp.subtract(b, a),
    scalar=lambda a, b: b - a,
    vjp={"self": lambda grad: -grad, "other": lambda grad: grad},
    # In PyTorch it is `sub` with its operands swapped, and the first one decides the layout.
    rule=lambda self, other: _RSUB_RULE(other, self),
    expands=lambda self, other: -self + other,
    linear=(("self", "other"),),
)
MUL = pointwise(
    "mul(Tensor self, Tensor|Scalar other) -> Tensor",
    kernel="multiply",
    scalar=lambda a, b: a * b,
    vjp={
        "self": lambda grad, other: grad * conj(other),
        "other": lambda grad, self: grad * conj(self),
    },
    refuses=NOTHING,
    numbers="wide",
    inplace=True,
    linear=(("self",), ("other",)),
)
DIV = pointwise(
    "div(Tensor self, Tensor|Scalar other) -> Tensor",
    kernel="true_divide",
    scalar=lambda a, b: a / b,
    vjp={
        "self": lambda grad, other: grad / conj(other),
        "other": lambda grad, self, other: -grad * conj((self / other) / other),
    },
    result=to_float,
    numbers="wide",
    inplace=True,
    linear=(("self",),),
)


def conj(value: Any) -> Any:
    """The conjugate of a complex tensor or number; real ones unchanged."""
    if isinstance(value, (int, float, complex)):
        return value.conjugate()
    return value.conj() if value.is_complex() else value


def _pow_self(grad: Any, self: Any, exponent: Any) -> Any:
    if isinstance(exponent, (int, float, complex)):
        if exponent == 0:
            return grad * 0
        if exponent == 1:
            return grad
        return grad * conj(self.pow(exponent - 1) * exponent)
    slope = self.pow(exponent - 1) * exponent
    return grad * conj((exponent == 0).where(0, slope))


def _pow_exponent(grad: Any, self: Any, exponent: Any, result: Any) -> Any:
    if isinstance(self, (int, float, complex)):
        base = result.new_full((), self)
        return grad * conj(result * base.log()) if self != 0 else grad * 0
    flat = self == 0
    if not exponent.is_complex():
        flat = flat.logical_and(exponent >= 0)
    # The logarithm of 1 in the place of 0: a mask behind it would leave 0 times infinity, nan.
    return grad * conj(result * flat.where(1, self).log())


def _power(xp: Any, a: Any, b: Any) -> Any:
    """As in PyTorch, an exponent that is the number 0.5 or -0.5 takes the root.

    It differs from a power at -0.0, which stays negative, and at -inf, which gives nan.
    """
    if isinstance(b, float) and abs(b) == 0.5:
        return xp.sqrt(a) if b > 0 else xp.reciprocal(xp.sqrt(a))
    if _whole(a) and _whole(b):
        return _whole_power(xp, a, b)
    return xp.power(a, b)


def _whole(value: Any) -> bool:
    return value.dtype.kind in "iu" if hasattr(value, "dtype") else isinstance(value, int)


def _whole_power(xp: Any, a: Any, b: Any) -> Any:
    """A power of integers; one of a negative exponent is rounded towards 0."""
    if not hasattr(b, "dtype"):
        dtype = from_numpy(a.dtype)
        if b < 0 or number_in(dtype, b) != b:
            raise ArgumentError(f"pow: exponent is {b}, expected at least 0, and a {dtype}")
        return xp.power(a, b)
    if b.dtype.kind == "u":
        return xp.power(a, b)
    odd = xp.where(b % 2 == 0, 1, -1)
    inverse = xp.where(a == 1, 1, xp.where(a == -1, odd, 0))
    if not hasattr(a, "dtype"):
        a = xp.asarray(number_in(from_numpy(b.dtype), a), dtype=b.dtype)
    return xp.where(b < 0, xp.astype(inverse, b.dtype), xp.power(a, xp.maximum(b, 0)))


def _power_scalar(a: Any, b: Any) -> Any:
    if isinstance(b, float) and abs(b) == 0.5:
        return s.sqrt(a) if b > 0 else 1.0 / s.sqrt(a)
    return s.pow_(a, b)


_POW_RULE = pointwise_rule("pow", same, refuses=BOOL)


def _pow_rule(self: Any, exponent: Any) -> TensorMeta:
    """As in PyTorch, powers of a number are contiguous, and an exponent has no layout."""
    meta = _POW_RULE(self, exponent)
    return meta if type(self) is TensorMeta else meta.as_contiguous()


POW = pointwise(
    "pow(Tensor|Scalar self, Tensor|Scalar exponent) -> Tensor",
    kernel=_power,
    scalar=_power_scalar,
    vjp={"self": _pow_self, "exponent": _pow_exponent},
    rule=_pow_rule,
    numbers="unwrapped",
    inplace=True,
)


def _share(grad: Any, loses: Any, ties: Any) -> Any:
    """The gradient of an extreme: none where the operand loses, half where both are equal.

    Where one is nan neither loses, and both take it whole, as in PyTorch.
    """
    return loses.where(0, ties.where(grad / 2, grad))


MAXIMUM = pointwise(
    "maximum(Tensor self, Tensor other) -> Tensor",
    kernel="maximum",
    refuses=COMPLEX | STORED,
    scalar=lambda a, b: s.maximum(a, b),
    vjp={
        "self": lambda grad, self, other: _share(grad, self < other, self == other),
        "other": lambda grad, self, other: _share(grad, self > other, self == other),
    },
)
MINIMUM = pointwise(
    "minimum(Tensor self, Tensor other) -> Tensor",
    kernel="minimum",
    refuses=COMPLEX | STORED,
    scalar=lambda a, b: s.minimum(a, b),
    vjp={
        "self": lambda grad, self, other: _share(grad, self > other, self == other),
        "other": lambda grad, self, other: _share(grad, self < other, self == other),
    },
)

# -------------------------------------------------------------------------------- one operand
NEG = pointwise(
    "neg(Tensor self) -> Tensor",
    kernel="negative",
    refuses=BOOL | STORED,
    scalar=lambda a: -a,
    vjp={"self": lambda grad: -grad},
    inplace=True,
    linear=(("self",),),
)
CONJ = pointwise(
    "conj(Tensor self) -> Tensor",
    kernel="conj",
    scalar=lambda a: s.conj(a),
    refuses=NOTHING,
    vjp={"self": lambda grad: conj(grad)},
    inplace=True,
)
REAL = pointwise(
    "real(Tensor self) -> Tensor",
    kernel="real",
    scalar=lambda a: s.real(a),
    refuses=NOTHING,
    vjp={"self": lambda grad: grad},
    result=real_of,
)
"""A copy of the real parts: PyTorch's is a view of the complex memory."""


def _direction(self: Any) -> Any:
    """The sign, for complex numbers z / |z|; 0 where self is 0."""
    if not self.is_complex():
        return self.sign()
    size = self.abs()
    return (size == 0).where(0, self / size)


ABS = pointwise(
    "abs(Tensor self) -> Tensor",
    kernel="abs",
    refuses=BOOL | WIDE,
    scalar=lambda a: s.abs_(a),
    vjp={"self": lambda grad, self: grad * _direction(self)},
    result=real_of,
    inplace=True,
)
# Not the library's own, which gives nan for nan: PyTorch gives 0, and so the gradient of abs.
SIGN = pointwise(
    "sign(Tensor self) -> Tensor",
    kernel=lambda xp, a: xp.astype(xp.where(a > 0, 1, xp.where(a < 0, -1, 0)), a.dtype),
    scalar=lambda a: s.where(s.gt(a, 0), 1, s.where(s.lt(a, 0), -1, 0)),
    vjp={"self": lambda grad: grad.new_zeros(grad.shape)},
    refuses=COMPLEX | STORED,
    inplace=True,
)
EXP = pointwise(
    "exp(Tensor self) -> Tensor",
    kernel="exp",
    scalar=lambda a: s.exp(a),
    vjp={"self": lambda grad, result: grad * conj(result)},
    result=to_float,
    inplace=True,
)
EXPM1 = pointwise(
    "expm1(Tensor self) -> Tensor",
    kernel="expm1",
    scalar=lambda a: s.expm1(a),
    vjp={"self": lambda grad, result: grad * conj(result + 1)},
    result=to_float,
    inplace=True,
)
LOG = pointwise(
    "log(Tensor self) -> Tensor",
    kernel="log",
    scalar=lambda a: s.log(a),
    vjp={"self": lambda grad, self: grad / conj(self)},
    result=to_float,
    inplace=True,
)
LOG1P = pointwise(
    "log1p(Tensor self) -> Tensor",
    kernel="log1p",
    scalar=lambda a: s.log1p(a),
    vjp={"self": lambda grad, self: grad / conj(self + 1)},
    result=to_float,
    inplace=True,
)
SQRT = pointwise(
    "sqrt(Tensor self) -> Tensor",
    kernel="sqrt",
    scalar=lambda a: s.sqrt(a),
    vjp={"self": lambda grad, result: grad / conj(result * 2)},
    result=to_float,
    inplace=True,
)
RSQRT = pointwise(
    "rsqrt(Tensor self) -> Tensor",
    kernel=lambda xp, a: xp.reciprocal(xp.sqrt(a)),
    scalar=lambda a: 1.0 / s.sqrt(a),
    vjp={"self": lambda grad, result: grad * conj(result.pow(3)) * -0.5},
    result=to_float,
    inplace=True,
    expands=lambda self: self.sqrt().reciprocal(),
)
RECIPROCAL = pointwise(
    "reciprocal(Tensor self) -> Tensor",
    kernel="reciprocal",
    scalar=lambda a: 1.0 / a,
    vjp={"self": lambda grad, result: -grad * conj(result * result)},
    result=to_float,
    inplace=True,
)
SIN = pointwise(
    "sin(Tensor self) -> Tensor",
    kernel="sin",
    scalar=lambda a: s.sin(a),
    vjp={"self": lambda grad, self: grad * conj(self.cos())},
    result=to_float,
    inplace=True,
)
COS = pointwise(
    "cos(Tensor self) -> Tensor",
    kernel="cos",
    scalar=lambda a: s.cos(a),
    vjp={"self": lambda grad, self: grad * conj(-self.sin())},
    result=to_float,
    inplace=True,
)


def _tanh_vjp(grad: Any, result: Any) -> Any:
    result = widened(result)
    return grad * conj(1 - result * result)


def _sigmoid_vjp(grad: Any, result: Any) -> Any:
    result = widened(result)
    return grad * conj(result * (1 - result))


def _sigmoid_expanded(self: Any) -> Any:
    final = floating(self)
    return ((-widened(self, final)).exp() + 1).reciprocal().to(final)


TANH = pointwise(
    "tanh(Tensor self) -> Tensor",
    kernel="tanh",
    scalar=lambda a: s.tanh(a),
    vjp={"self": _tanh_vjp},
    result=to_float,
    inplace=True,
)
SIGMOID = pointwise(
    "sigmoid(Tensor self) -> Tensor",
    kernel=lambda xp, a: xp.reciprocal(xp.exp(-a) + 1),
    scalar=lambda a: 1.0 / (s.exp(-a) + 1.0),
    vjp={"self": _sigmoid_vjp},
    result=to_float,
    inplace=True,
    expands=_sigmoid_expanded,
)
RELU = pointwise(
    "relu(Tensor self) -> Tensor",
    kernel=lambda xp, a: xp.maximum(a, 0),
    refuses=BOOL | COMPLEX | STORED,
    scalar=lambda a: s.maximum(a, 0),
    vjp={"self": lambda grad, result: grad.relu_backward(result)},
    inplace=True,
    # A comparison that nan fails: nan stays.
    expands=lambda self: (self <= 0).where(0, self),
)
RELU_BACKWARD = pointwise(
    "relu_backward(Tensor self, Tensor output) -> Tensor",
    kernel=lambda xp, g, r: xp.where(r <= 0, xp.zeros_like(g), g),
    scalar=lambda g, r: s.where(s.le(r, 0), 0, g),
    vjp={
        "self": lambda grad, output: grad.relu_backward(output),
        "output": lambda grad: grad.new_zeros(grad.shape),
    },
    refuses=BOOL | COMPLEX | STORED,
    expands=lambda self, output: (output <= 0).where(0, self),
    linear=(("self",),),
)
"""self except where `output`, the result of relu, is 0. A nan lets it through, as in PyTorch."""
FLOOR = pointwise(
    "floor(Tensor self) -> Tensor",
    kernel="floor",
    refuses=BOOL | COMPLEX | FLOAT8,
    scalar=lambda a: s.floor(a),
    vjp={"self": lambda grad: grad.new_zeros(grad.shape)},
    inplace=True,
)
CEIL = pointwise(
    "ceil(Tensor self) -> Tensor",
    kernel="ceil",
    refuses=BOOL | COMPLEX | FLOAT8,
    scalar=lambda a: s.ceil(a),
    vjp={"self": lambda grad: grad.new_zeros(grad.shape)},
    inplace=True,
)
