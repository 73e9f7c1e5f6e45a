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
    return tensor_meta((*batch, self.shape[-2], other.shape[-1]), None, self.dtype, device)


def _check_factors(self: TensorMeta, other: TensorMeta) -> None:
    for name, meta in (("self", self), ("other", other)):
        if len(meta.shape) < 2:
            raise ShapeError(
                f"matmul: argument '{name}' has shape {meta.shape}, expected at least 2 dimensions"
            )
    if not sizes.known_equal(self.shape[-1], other.shape[-2]):
        raise ShapeError(
            f"matmul: argument 'other' has shape {other.shape}, expected size {self.shape[-1]} in "
            f"its second last dimension, the last one of 'self' of shape {self.shape}"
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


MATMUL: PureOp = pure(
    "matmul(Tensor self, Tensor other) -> Tensor",
    meta=_matmul_rule,
    kernel=_matmul_kernel,
    vjp={
        "self": lambda grad, other: grad.matmul(conj(other).mT),
        "other": lambda grad, self: conj(self).mT.matmul(grad),
    },
    cost=Cost.CONTRACTION,
)
"""(*b, m, k) (*c, k, n) -> (*bc, m, n): batch dimensions broadcast; both operands of one dtype."""
