"""Functions of matrices: the pseudo-inverse and the exponential."""

from __future__ import annotations

import math

from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.dtypes.limits import finfo
from aotlite.ir.errors import DTypeError, ShapeError
from aotlite.ir.geometry import layout
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS, Cost, PureOp
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.declare import pure
from aotlite.ir.ops.linalg.matrices import (
    adjoint,
    adjoint_array,
    by_rows,
    check_matrix,
    check_square,
    completed,
)


def _pinv_rule(
    self: TensorMeta, atol: float | None, rtol: float | None, hermitian: bool
) -> TensorMeta:
    check = check_square if hermitian else check_matrix
    check("linalg_pinv", self, "self")
    *batch, m, n = self.shape
    return by_rows((*batch, n, m), self)


def _pinv_kernel(
    xp: Namespace,
    meta: TensorMeta,
    a: Array,
    atol: float | None,
    rtol: float | None,
    hermitian: bool,
) -> Array:
    if 0 in a.shape[-2:]:
        return xp.zeros(meta.shape, dtype=a.dtype)
    what = ("linalg_pinv", "the iteration did not converge", "finite matrices")
    if hermitian:
        s, u = completed(*what, xp.linalg.eigh, a)
        vh = adjoint_array(xp, u)
    else:
        u, s, vh = completed(*what, lambda: xp.linalg.svd(a, full_matrices=False))
    size = xp.abs(s)
    if rtol is None:
        rtol = finfo(meta.dtype).eps * max(meta.shape[-2:]) if not atol else 0.0
    least = xp.maximum(xp.max(size, axis=-1, keepdims=True) * rtol, xp.asarray(atol or 0.0))
    kept = size > least
    inverse = xp.where(kept, 1 / xp.where(kept, s, 1), 0)
    product = xp.matmul(adjoint_array(xp, vh) * inverse[..., None, :], adjoint_array(xp, u))
    return xp.astype(product, meta.dtype.numpy)


def _pinv_vjp(grad: Operand, self: Operand, result: Operand) -> Operand:
    """Source: Golub and Pereyra, "The differentiation of pseudo-inverses" (1973)."""
    back, across = adjoint(grad), adjoint(result)
    m, n = self.shape[-2:]
    if m <= n:
        inner = back.matmul(result)
        bent = inner.matmul(across)
        return (
            bent
            - adjoint(result.matmul(inner))
            - self.matmul(result).matmul(bent)
            + across.matmul(result).matmul(back - inner.matmul(self))
        )
    inner = result.matmul(back)
    bent = across.matmul(inner)
    return (
        bent
        - adjoint(inner.matmul(result))
        + (back - self.matmul(inner)).matmul(result).matmul(across)
        - bent.matmul(result).matmul(self)
    )


PINV: PureOp = pure(
    "linalg_pinv(Tensor self, *, float? atol=None, float? rtol=None, bool hermitian=False)"
    " -> Tensor",
    meta=_pinv_rule,
    kernel=_pinv_kernel,
    vjp={"self": _pinv_vjp},
    cost=Cost.CONTRACTION,
)
"""The pseudo-inverse of Moore and Penrose: (*, m, n) -> (*, n, m).

Singular values up to max(atol, rtol * the largest one) count as 0.
"""


# ------------------------------------------------------------------------------------ exponential
# Of the quotient of degree 13. Source: Higham, "The scaling and squaring method for the matrix
# exponential revisited" (2005).
_PADE = (
    64764752532480000.0,
    32382376266240000.0,
    7771770303897600.0,
    1187353796428800.0,
    129060195264000.0,
    10559470521600.0,
    670442572800.0,
    33522128640.0,
    1323241920.0,
    40840800.0,
    960960.0,
    16380.0,
    182.0,
    1.0,
)
_REACH = 5.371920351148152
"""Up to this norm the quotient is exact to float64's last digit."""


def _exp_rule(self: TensorMeta) -> TensorMeta:
    op = "linalg_matrix_exp"
    if len(self.shape) < 2 or self.shape[-1] != self.shape[-2]:
        raise ShapeError(f"{op}: argument 'self' has shape {self.shape}, expected square matrices")
    if not self.dtype.is_differentiable or self.dtype.itemsize < 2:
        raise DTypeError(f"{op}: dtype is {self.dtype}, expected a floating or complex one")
    if self.shape[-1] < 2:  # as of the exponential of numbers
        return self.with_stride(layout.clone_strides(self.shape, self.stride))
    return by_rows(self.shape, self)


def _exp_kernel(xp: Namespace, meta: TensorMeta, a: Array) -> Array:
    if not meta.numel:
        return xp.zeros(meta.shape, dtype=meta.dtype.numpy)
    # In 64-bit floats, and every matrix of the batch halved as often as the largest one needs.
    wide = xp.astype(a, xp.complex128 if meta.dtype.is_complex else xp.float64)
    norm = float(xp.max(xp.sum(xp.abs(wide), axis=-2)))
    if not math.isfinite(norm):
        return xp.full(meta.shape, math.nan, dtype=meta.dtype.numpy)
    halvings = max(math.ceil(math.log2(norm / _REACH)), 0) if norm else 0
    result = _pade(xp, wide * 0.5**halvings)
    for _ in range(halvings):
        result = xp.matmul(result, result)
    return xp.astype(result, meta.dtype.numpy)


def _pade(xp: Namespace, a: Array) -> Array:
    one = xp.eye(a.shape[-1], dtype=a.dtype)
    a2 = xp.matmul(a, a)
    a4 = xp.matmul(a2, a2)
    a6 = xp.matmul(a4, a2)
    b = _PADE
    high = xp.matmul(a6, a6 * b[13] + a4 * b[11] + a2 * b[9])
    odd = xp.matmul(a, high + a6 * b[7] + a4 * b[5] + a2 * b[3] + one * b[1])
    high = xp.matmul(a6, a6 * b[12] + a4 * b[10] + a2 * b[8])
    even = high + a6 * b[6] + a4 * b[4] + a2 * b[2] + one * b[0]
    return xp.linalg.solve(even - odd, even + odd)


def _exp_vjp(grad: Operand, self: Operand) -> Operand:
    """The corner of the exponential of a matrix of blocks. Source: Mathias, "A chain rule for
    matrix functions and applications" (1996)."""
    turned, n = adjoint(self), self.shape[-1]
    cat = lambda parts, dim: grad._apply(OPS["cat"], (parts, dim))
    zeros = grad.new_zeros(grad.shape)
    blocks = cat((cat((turned, grad), -1), cat((zeros, turned), -1)), -2)
    return blocks._do("linalg_matrix_exp").narrow(-2, 0, n).narrow(-1, n, n)


MATRIX_EXP: PureOp = pure(
    "linalg_matrix_exp(Tensor self) -> Tensor",
    meta=_exp_rule,
    kernel=_exp_kernel,
    vjp={"self": _exp_vjp},
    cost=Cost.CONTRACTION,
)
"""The exponential series of each matrix."""
