"""Pointwise ops: arithmetic, exponentials, rounding, activations. Gradients follow PyTorch's table
of formulas and of what each saves (OPS-4); the engine sums over broadcast dimensions and casts."""

from __future__ import annotations

from typing import Any, TypeVar

from aotlite.ir import scalar as s
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.dtypes import from_numpy
from aotlite.ir.errors import ArgumentError
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op.operand import Operand
from aotlite.ir.op.parameter_types import Number
from aotlite.ir.ops.declare import by_element, pointwise_rule, real_of, same, to_float
from aotlite.ir.ops.kinds import ANY_BOOL, BOOL, COMPLEX, FLOAT8, NOTHING, STORED, WIDE
from aotlite.ir.ops.pointwise_rows import binary, elementary, unary
from aotlite.ir.ops.precision import number_in, widened
from aotlite.ir.scalar import Element
from aotlite.ir.symbols.floats.size_float import SizeFloat
from aotlite.ir.symbols.floats.symfloat import SymFloat
from aotlite.ir.symbols.symint import SymInt

# ------------------------------------------------------------------------------- two operands
ADD = binary(
    "add", vjp=(lambda grad: grad, lambda grad: grad), refuses=STORED, linear=(("self", "other"),)
)
SUB = binary(
    "sub",
    kernel="subtract",
    vjp=(lambda grad: grad, lambda grad: -grad),
    refuses=ANY_BOOL | STORED,
    linear=(("self", "other"),),
)
_RSUB_RULE = pointwise_rule("rsub", same, wrapped=(0,), refuses=ANY_BOOL | STORED)
# In PyTorch it is `sub` with its operands swapped, and the first one decides the layout.
RSUB = binary(
    "rsub",
    kernel=lambda xp, a, b: xp.subtract(b, a),
    scalar=lambda a, b: b - a,
    vjp=(lambda grad: -grad, lambda grad: grad),
    rule=lambda self, other: _RSUB_RULE(other, self),
    expands=lambda self, other: -self + other,
    linear=(("self", "other"),),
    inplace=False,
)
MUL = binary(
    "mul",
    kernel="multiply",
    aliases="multiply",
    vjp=(lambda grad, other: grad * conj(other), lambda grad, self: grad * conj(self)),
    refuses=NOTHING,
    numbers="wide",
    linear=(("self",), ("other",)),
)
DIV = binary(
    "div",
    kernel="true_divide",
    scalar=lambda a, b: a / b,
    vjp=(
        lambda grad, other: grad / conj(other),
        lambda grad, self, other: -grad * conj((self / other) / other),
    ),
    result=to_float,
    numbers="wide",
    linear=(("self",),),
)


Conjugate = TypeVar("Conjugate", Operand, int, float, complex)
"""The class of a tensor or number, and of its conjugate."""


def conj(value: Conjugate) -> Conjugate:
    """The conjugate of a complex tensor or number; real ones unchanged."""
    if isinstance(value, (int, float, complex, SymInt, SymFloat, SizeFloat)):
        return value.conjugate()
    return value.conj() if value.is_complex() else value


def _pow_self(grad: Operand, self: Operand, exponent: Operand | Number) -> Operand:
    if isinstance(exponent, (int, float, complex, SymInt, SymFloat, SizeFloat)):
        if exponent == 0:
            return grad * 0
        if exponent == 1:
            return grad
        return grad * conj(self.pow(exponent - 1) * exponent)
    slope = self.pow(exponent - 1) * exponent
    return grad * conj((exponent == 0).where(0, slope))


def _pow_exponent(grad: Operand, self: Operand, exponent: Operand, result: Operand) -> Operand:
    if isinstance(self, (int, float, complex, SymInt, SymFloat, SizeFloat)):
        base = result.new_full((), self)
        return grad * conj(result * base.log()) if self != 0 else grad * 0
    flat = self == 0
    if not exponent.is_complex():
        flat = flat.logical_and(exponent >= 0)
    # The logarithm of 1 in the place of 0: a mask behind it would leave 0 times infinity, nan.
    return grad * conj(result * flat.where(1, self).log())


def _power(xp: Namespace, a: Array | Number, b: Array | Number) -> Array:
    """As in PyTorch, an exponent that is the number 0.5 or -0.5 takes the root.

    It differs from a power at -0.0, which stays negative, and at -inf, which gives nan.
    """
    if isinstance(b, float) and abs(b) == 0.5:
        return xp.sqrt(a) if b > 0 else xp.reciprocal(xp.sqrt(a))
    if _whole(a) and _whole(b):
        return _whole_power(xp, a, b)
    return xp.power(a, b)


def _whole(value: Array | Number) -> bool:
    return value.dtype.kind in "iu" if hasattr(value, "dtype") else isinstance(value, int)


def _whole_power(xp: Namespace, a: Any, b: Any) -> Array:
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


def _power_scalar(a: Element, b: Element) -> Element:
    if isinstance(b, float) and abs(b) == 0.5:
        return s.sqrt(a) if b > 0 else 1.0 / s.sqrt(a)
    return s.pow_(a, b)


_POW_RULE = pointwise_rule("pow", same, refuses=BOOL)


def _pow_rule(self: TensorMeta | type[Number], exponent: TensorMeta | type[Number]) -> TensorMeta:
    """As in PyTorch, powers of a number are contiguous, and an exponent has no layout."""
    meta = _POW_RULE(self, exponent)
    return meta if type(self) is TensorMeta else meta.as_contiguous()


POW = binary(
    "pow",
    operands="Tensor|Scalar self, Tensor|Scalar exponent",
    kernel=_power,
    scalar=_power_scalar,
    vjp=(_pow_self, _pow_exponent),
    rule=_pow_rule,
    numbers="unwrapped",
)


def _share(grad: Operand, loses: Operand, ties: Operand) -> Operand:
    """The gradient of an extreme: none where the operand loses, half where both are equal.

    Where one is nan neither loses, and both take it whole, as in PyTorch.
    """
    return loses.where(0, ties.where(grad / 2, grad))


MAXIMUM = binary(
    "maximum",
    operands="Tensor self, Tensor other",
    vjp=(
        lambda grad, self, other: _share(grad, self < other, self == other),
        lambda grad, self, other: _share(grad, self > other, self == other),
    ),
    refuses=COMPLEX | STORED,
    inplace=False,
)
MINIMUM = binary(
    "minimum",
    operands="Tensor self, Tensor other",
    vjp=(
        lambda grad, self, other: _share(grad, self > other, self == other),
        lambda grad, self, other: _share(grad, self < other, self == other),
    ),
    refuses=COMPLEX | STORED,
    inplace=False,
)

# -------------------------------------------------------------------------------- one operand
NEG = unary(
    "neg",
    kernel="negative",
    aliases="negative",
    vjp=lambda grad: -grad,
    refuses=BOOL | STORED,
    linear=(("self",),),
)
CONJ = unary("conj", vjp=lambda grad: conj(grad), refuses=NOTHING)
REAL = unary("real", vjp=lambda grad: grad, refuses=NOTHING, result=real_of, inplace=False)
"""A copy of the real parts: PyTorch's is a view of the complex memory."""


def _direction(self: Operand) -> Operand:
    """The sign, for complex numbers z / |z|; 0 where self is 0."""
    if not self.is_complex():
        return self.sign()
    size = self.abs()
    return (size == 0).where(0, self / size)


ABS = unary(
    "abs",
    vjp=lambda grad, self: grad * _direction(self),
    refuses=BOOL | WIDE,
    result=real_of,
    aliases="absolute",
)
# Not the library's own, which gives nan for nan: PyTorch gives 0, and so the gradient of abs.
SIGN = unary(
    "sign",
    kernel=lambda xp, a: xp.astype(xp.where(a > 0, 1, xp.where(a < 0, -1, 0)), a.dtype),
    scalar=lambda a: s.where(s.gt(a, 0), 1, s.where(s.lt(a, 0), -1, 0)),
    vjp=lambda grad: grad.new_zeros(grad.shape),
    refuses=COMPLEX | STORED,
)
EXP = elementary("exp", vjp=lambda grad, result: grad * conj(result))
EXPM1 = elementary("expm1", vjp=lambda grad, result: grad * conj(result + 1))
LOG = elementary("log", vjp=lambda grad, self: grad / conj(self))
LOG1P = elementary("log1p", vjp=lambda grad, self: grad / conj(self + 1))
SQRT = elementary("sqrt", vjp=lambda grad, result: grad / conj(result * 2))


def _rsqrt(f: Any, a: object) -> object:
    return f.reciprocal(f.sqrt(a))


RSQRT = elementary(
    "rsqrt",
    element=_rsqrt,
    vjp=lambda grad, result: grad * conj(result.pow(3)) * -0.5,
    expands=by_element(_rsqrt),
)
RECIPROCAL = elementary(
    "reciprocal",
    scalar=lambda a: 1.0 / a,
    vjp=lambda grad, result: -grad * conj(result * result),
)
SIN = elementary("sin", vjp=lambda grad, self: grad * conj(self.cos()))
COS = elementary("cos", vjp=lambda grad, self: grad * conj(-self.sin()))


def _tanh_vjp(grad: Operand, result: Operand) -> Operand:
    result = widened(result)
    return grad * conj(1 - result * result)


def _sigmoid_vjp(grad: Operand, result: Operand) -> Operand:
    result = widened(result)
    return grad * conj(result * (1 - result))


def _sigmoid(f: Any, a: Any) -> object:
    return f.reciprocal(f.exp(-a) + 1.0)


TANH = elementary("tanh", vjp=_tanh_vjp)
SIGMOID = elementary(
    "sigmoid",
    element=_sigmoid,
    vjp=_sigmoid_vjp,
    expands=by_element(_sigmoid),
)
# A comparison that nan fails: nan stays.
RELU = unary(
    "relu",
    kernel=lambda xp, a: xp.maximum(a, 0),
    scalar=lambda a: s.maximum(a, 0),
    vjp=lambda grad, result: grad.relu_backward(result),
    refuses=BOOL | COMPLEX | STORED,
    expands=lambda self: (self <= 0).where(0, self),
)
RELU_BACKWARD = binary(
    "relu_backward",
    operands="Tensor self, Tensor output",
    kernel=lambda xp, g, r: xp.where(r <= 0, xp.zeros_like(g), g),
    scalar=lambda g, r: s.where(s.le(r, 0), 0, g),
    vjp=(lambda grad, output: grad.relu_backward(output), lambda grad: grad.new_zeros(grad.shape)),
    refuses=BOOL | COMPLEX | STORED,
    expands=lambda self, output: (output <= 0).where(0, self),
    linear=(("self",),),
    inplace=False,
)
"""self except where `output`, the result of relu, is 0. A nan lets it through, as in PyTorch."""
FLOOR = unary("floor", vjp=lambda grad: grad.new_zeros(grad.shape), refuses=BOOL | COMPLEX | FLOAT8)
CEIL = unary("ceil", vjp=lambda grad: grad.new_zeros(grad.shape), refuses=BOOL | COMPLEX | FLOAT8)
