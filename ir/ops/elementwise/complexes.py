"""Pointwise ops of complex numbers: conj, angle, sgn, and numbers from their parts."""

from __future__ import annotations

import math
from collections.abc import Callable

from aotlite.ir import dtypes
from aotlite.ir import scalar as s
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import DTypeError
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op.composite import composite
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.declare import pointwise_rule, real_of, same
from aotlite.ir.ops.kinds import BOOL, COMPLEX, FLOAT8, FLOATING, INTEGER
from aotlite.ir.ops.pointwise_rows import binary, elementary, unary


@composite("conj(Tensor self) -> Tensor")
def conj(self: Operand) -> Operand:
    """The conjugate; a real tensor is itself."""
    return self._do("conj") if self.is_complex() else self


@composite("conj_physical(Tensor self) -> Tensor", inplace="The conjugate in place.")
def conj_physical(self: Operand, end: str = "") -> Operand:
    """The conjugate; a real tensor is itself."""
    return self._do("conj" + end) if self.is_complex() else self


@composite("resolve_conj(Tensor self) -> Tensor")
def resolve_conj(self: Operand) -> Operand:
    """Itself: a conjugate is a copy here."""
    return self


@composite("resolve_neg(Tensor self) -> Tensor")
def resolve_neg(self: Operand) -> Operand:
    """Itself."""
    return self


@composite("positive(Tensor self) -> Tensor")
def positive(self: Operand) -> Operand:
    """Itself. Raises DTypeError for bool."""
    if self.dtype is dtypes.bool_:
        raise DTypeError(f"positive: dtype is {self.dtype}, expected one of numbers")
    return self


@composite("isreal(Tensor self) -> Tensor")
def isreal(self: Operand) -> Operand:
    """Where the imaginary part is 0."""
    return self == self.conj() if self.is_complex() else self._do("eq", self).logical_or(True)


# ----------------------------------------------------------------------------------- sign, angle
def _sgn_kernel(xp: Namespace, a: Array) -> Array:
    size = xp.abs(a)
    nothing = size == 0
    return xp.where(nothing, xp.zeros_like(a), a / xp.where(nothing, xp.ones_like(size), size))


def _sgn_vjp(grad: Operand, self: Operand, result: Operand) -> Operand:
    size = self.abs()
    nothing = size == 0
    turned = grad / nothing.where(1, size)
    along = (turned * result.conj()).real
    return nothing.where(0, turned - along * result)


SGN = unary(
    "sgn_of_complex",
    kernel=_sgn_kernel,
    scalar=s.sign,
    vjp=_sgn_vjp,
    refuses=BOOL | INTEGER | FLOATING,
)
"""z / |z|, 0 at 0."""


@composite("sgn(Tensor self) -> Tensor", inplace=True)
def sgn(self: Operand, end: str = "") -> Operand:
    """The sign; of complex numbers z / |z|, 0 at 0."""
    return self._do(("sgn_of_complex" if self.is_complex() else "sign") + end)


def _angle_vjp(grad: Operand, self: Operand) -> Operand:
    squares = (self * self.conj()).real
    nothing = squares == 0
    return nothing.where(0, grad * (self * 1j) / nothing.where(1, squares))


_ANGLE_RULE = pointwise_rule("angle_of_complex", real_of, refuses=BOOL | INTEGER | FLOATING)
ANGLE_OF_COMPLEX = unary(
    "angle_of_complex",
    kernel=lambda xp, a: xp.atan2(a.imag, a.real),
    scalar=lambda a: s.atan2(s.imag(a), s.real(a)),
    vjp=_angle_vjp,
    rule=lambda self: _ANGLE_RULE(self).as_contiguous(),
    computes=same,
    inplace=False,
)
ANGLE_OF_REAL = elementary(
    "angle_of_real",
    kernel=lambda xp, a: xp.where(a != a, a, xp.astype(a < 0, a.dtype) * math.pi),
    scalar=lambda a: s.where(s.isnan(a), a, s.where(s.lt(a, 0), math.pi, 0.0)),
    vjp=lambda grad, self: grad.new_zeros(grad.shape),
    refuses=FLOAT8 | COMPLEX,
    inplace=False,
)


@composite("angle(Tensor self) -> Tensor")
def angle(self: Operand) -> Operand:
    """The angle with the positive real axis: of a negative number pi."""
    return self._do("angle_of_complex" if self.is_complex() else "angle_of_real")


# ------------------------------------------------------------------------------------- from parts
def _parts_rule(
    name: str, first: str, second: str
) -> Callable[[TensorMeta, TensorMeta], TensorMeta]:
    def widened(dtype: DType) -> DType:
        return dtype.to_complex()

    broadcast = pointwise_rule(name, widened)

    def rule(a: TensorMeta, b: TensorMeta) -> TensorMeta:
        for which, meta in ((first, a), (second, b)):
            if meta.dtype not in (dtypes.float32, dtypes.float64):
                raise DTypeError(
                    f"{name}: {which} has dtype {meta.dtype}, expected float32 or float64"
                )
        if a.dtype is not b.dtype:
            raise DTypeError(
                f"{name}: {second} has dtype {b.dtype}, expected {a.dtype}, that of {first}"
            )
        return broadcast(a, b)

    return rule


def _joined(xp: Namespace, real: Array, imag: Array) -> Array:
    """By parts: a product with 1j would make nan of infinities."""
    shape = xp.broadcast_shapes(real.shape, imag.shape)
    made = xp.empty(shape, dtype=dtypes.from_numpy(real.dtype).to_complex().numpy)
    made.real = real
    made.imag = imag
    return made


# The names say what is saved: PyTorch saves the operands, though nothing of them is read.
COMPLEX_OF = binary(
    "complex",
    operands="Tensor real, Tensor imag",
    kernel=_joined,
    vjp=(lambda grad, real: grad.real, lambda grad, imag: grad.imag),
    rule=_parts_rule("complex", "real", "imag"),
    computes=same,
    inplace=False,
)


def _polar_size(grad: Operand, result: Operand) -> Operand:
    return (grad.conj() * result.sgn()).real


def _polar_angle(grad: Operand, result: Operand) -> Operand:
    return (grad.conj() * (result * 1j)).real


POLAR = binary(
    "polar",
    operands="Tensor abs, Tensor angle",
    kernel=lambda xp, size, angle: _joined(xp, size * xp.cos(angle), size * xp.sin(angle)),
    scalar=lambda size, angle: s.complex_(size * s.cos(angle), size * s.sin(angle)),
    vjp=(_polar_size, _polar_angle),
    rule=_parts_rule("polar", "abs", "angle"),
    computes=same,
    inplace=False,
)
