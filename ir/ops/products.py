"""Contractions: the matrix product. Products with vectors, `mm`, `bmm` and `addmm` are methods that
are composed of it (`ir/operand.py`)."""

from __future__ import annotations

from typing import Any

from aotlite.ir import dtypes, sizes
from aotlite.ir.errors import DTypeError, ShapeError
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.ops.declare import common_device, pure
from aotlite.ir.ops.pointwise import conj
from aotlite.ir.ops.precision import cast, wide


def _matmul_rule(self: TensorMeta, other: TensorMeta) -> TensorMeta:
    _check_factors(self, other)
    device = common_device("matmul", [self, other])
    batch = sizes.broadcast_shapes(self.shape[:-2], other.shape[:-2], op="matmul")
    rows = self.shape[-2:-1]  # none for a vector, whose dimension goes
    columns = other.shape[-1:] if len(other.shape) > 1 else ()
    return tensor_meta((*batch, *rows, *columns), None, self.dtype, device)


def _check_factors(self: TensorMeta, other: TensorMeta) -> None:
    for name, meta in (("self", self), ("other", other)):
        if not meta.shape:
            raise ShapeError(f"matmul: argument '{name}' has 0 dimensions, expected at least 1")
    inner = other.shape[-2:][0]
    if not sizes.known_equal(self.shape[-1], inner):
        raise ShapeError(
            f"matmul: argument 'other' has shape {other.shape}, expected size {self.shape[-1]} "
            f"instead of {inner}: the last dimension of 'self' of shape {self.shape}"
        )
    if self.dtype is not other.dtype or self.dtype is dtypes.bool_:
        raise DTypeError(
            f"matmul: dtypes are {self.dtype} and {other.dtype}, expected one numeric dtype"
        )


def _matmul_kernel(xp: Any, meta: TensorMeta, a: Any, b: Any) -> Any:
    a, b = wide(xp, a, meta.dtype), wide(xp, b, meta.dtype)
    if len(b.shape) == 2 < len(a.shape):
        # One product of a tall matrix instead of one small product for each batch.
        rows = sizes.numel(a.shape[:-1])
        product = xp.reshape(xp.matmul(xp.reshape(a, (rows, a.shape[-1])), b), meta.shape)
    else:
        product = xp.matmul(a, b)
    return cast(xp, product, meta.dtype)


def _left_gradient(grad: Any, self_meta: TensorMeta, other: Any) -> Any:
    if other.ndim == 1:
        grad, other = grad.unsqueeze(-1), other.unsqueeze(-1)
    if len(self_meta.shape) == 1:
        return grad.unsqueeze(-2).matmul(conj(other).mT).squeeze(-2)
    return grad.matmul(conj(other).mT)


def _right_gradient(grad: Any, self: Any, other_meta: TensorMeta) -> Any:
    if self.ndim == 1:
        grad, self = grad.unsqueeze(-2 if len(other_meta.shape) > 1 else -1), self.unsqueeze(0)
    if len(other_meta.shape) == 1:
        return conj(self).mT.matmul(grad.unsqueeze(-1)).squeeze(-1)
    return conj(self).mT.matmul(grad)


MATMUL: PureOp = pure(
    "matmul(Tensor self, Tensor other) -> Tensor",
    meta=_matmul_rule,
    kernel=_matmul_kernel,
    vjp={
        "self": _left_gradient,
        "other": _right_gradient,
    },
    cost=Cost.CONTRACTION,
)
"""(*b, m, k) (*c, k, n) -> (*bc, m, n): batch dimensions broadcast; both operands of one dtype.

A vector on the left is a row, one on the right a column, and its dimension is not in the result:
(n,) (n,) -> (); (m, k) (k,) -> (m,); (k,) (k, n) -> (n,).
"""
