"""Decompositions of matrices: cholesky, qr, svd, eigh, and singular and eigenvalues alone.

Factors are column-major, as PyTorch's. Where singular values or eigenvalues repeat, their vectors
are an arbitrary basis of a subspace and have no gradient: as in PyTorch it is infinite or nan.
"""

from __future__ import annotations

from typing import Any

from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.errors import ArgumentError, AutogradError
from aotlite.ir.geometry.sizes import minimum
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS, Cost, PureOp
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.declare import pure, real_of
from aotlite.ir.ops.linalg.matrices import (
    adjoint,
    adjoint_array,
    by_columns,
    by_rows,
    check_matrix,
    check_square,
    completed,
)

Metas = tuple[TensorMeta, ...]
_SLOW = ("the iteration did not converge", "finite matrices")


# --------------------------------------------------------------------------------------- cholesky
def _cholesky_rule(self: TensorMeta, upper: bool) -> TensorMeta:
    check_square("linalg_cholesky", self)
    return by_columns(self.shape, self)


def _cholesky_kernel(xp: Namespace, meta: TensorMeta, a: Array, upper: bool) -> Array:
    what = ("a matrix is not positive-definite", "matrices that are")
    lower = adjoint_array(xp, a) if upper else a
    factor = completed("linalg_cholesky", *what, xp.linalg.cholesky, lower)
    return adjoint_array(xp, factor) if upper else factor


def _cholesky_vjp(grad: Operand, result: Operand, upper: bool) -> Operand:
    factor, grad = (adjoint(result), adjoint(grad)) if upper else (result, grad)
    low = adjoint(factor).matmul(grad.tril()).tril()
    whole = (low + adjoint(low.tril(-1))) * 0.5
    whole = adjoint(factor)._do("linalg_solve_triangular", whole, upper=True)
    return factor._do("linalg_solve_triangular", whole, upper=False, left=False)


CHOLESKY: PureOp = pure(
    "linalg_cholesky(Tensor self, *, bool upper=False) -> Tensor",
    meta=_cholesky_rule,
    kernel=_cholesky_kernel,
    vjp={"self": _cholesky_vjp},
    cost=Cost.CONTRACTION,
)
"""The triangular L with self = L L^H (U with U^H U if `upper`); reads only that triangle of self.

Raises LinAlgError for a matrix that is not positive-definite. The gradient is symmetrized.
"""


# --------------------------------------------------------------------------------------------- qr
def _qr_rule(A: TensorMeta, mode: str) -> Metas:
    check_matrix("linalg_qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise ArgumentError(f"linalg_qr: mode is {mode!r}, expected 'reduced', 'complete' or 'r'")
    *batch, m, n = A.shape
    k = m if mode == "complete" else minimum(m, n)
    q = by_rows((0,), A) if mode == "r" else by_columns((*batch, m, k), A)
    return q, by_columns((*batch, k, n), A)


def _qr_kernel(xp: Namespace, metas: Metas, a: Array, mode: str) -> tuple[Array, ...]:
    if mode == "r":
        return xp.zeros((0,), dtype=a.dtype), xp.linalg.qr(a, mode="r")
    return tuple(xp.linalg.qr(a, mode=mode))


def _qr_vjp(grad_Q: Operand, grad_R: Operand, Q: Operand, R: Operand, mode: str) -> Operand:
    if mode == "r" or Q.shape[-1] > R.shape[-1]:
        raise AutogradError(
            f"linalg_qr: mode is {mode!r} for a matrix of shape {(Q.shape[-1], R.shape[-1])}, "
            "expected 'reduced': a gradient needs Q, and none of its columns free to choose"
        )
    k, n = R.shape[-2:]
    if k == n:
        return _qr_of_columns(grad_Q, grad_R, Q, R)
    # The first columns have the decomposition, the others are Q times those of R.
    first, rest = R.narrow(-1, 0, k), R.narrow(-1, k, n - k)
    grad_first, grad_rest = grad_R.narrow(-1, 0, k), grad_R.narrow(-1, k, n - k)
    grad_Q = grad_Q + Q.matmul(rest).matmul(adjoint(grad_rest))
    left = _qr_of_columns(grad_Q, grad_first, Q, first)
    return left._apply(OPS["cat"], ((left, Q.matmul(grad_rest)), -1))


def _qr_of_columns(grad_Q: Operand, grad_R: Operand, Q: Operand, R: Operand) -> Operand:
    """For at least as many rows as columns. Source: Roberts and Roberts, "QR and LQ decomposition
    matrix backpropagation algorithms" (2020)."""
    inner = (grad_R.matmul(adjoint(R)) - adjoint(Q).matmul(grad_Q)).triu()
    whole = inner + adjoint(inner)
    diagonal = whole.diagonal(0, -2, -1)
    symmetric = whole - (diagonal * 0.5).diag_embed()
    total = Q.matmul(symmetric) + grad_Q
    return adjoint(R)._do("linalg_solve_triangular", total, upper=False, left=False)


QR: PureOp = pure(
    "linalg_qr(Tensor A, str mode='reduced') -> (Tensor Q, Tensor R)",
    meta=_qr_rule,
    kernel=_qr_kernel,
    vjp={"A": _qr_vjp},
    cost=Cost.CONTRACTION,
)
"""Q with orthonormal columns and the upper triangular R of A = Q R.

Of (m, n): `reduced` gives min(m, n) columns of Q, `complete` m; `r` gives R alone and an empty Q.
"""


# -------------------------------------------------------------------------------------------- svd
def _svd_rule(A: TensorMeta, full_matrices: bool) -> Metas:
    check_matrix("linalg_svd", A)
    *batch, m, n = A.shape
    k = minimum(m, n)
    left, right = (m, n) if full_matrices else (k, k)
    return (
        by_columns((*batch, m, left), A),
        by_rows((*batch, k), A, real_of(A.dtype)),
        by_columns((*batch, right, n), A),
    )


def _svd_kernel(xp: Namespace, metas: Metas, a: Array, full_matrices: bool) -> tuple[Array, ...]:
    found = completed("linalg_svd", *_SLOW, lambda: xp.linalg.svd(a, full_matrices=full_matrices))
    return tuple(found)


def _over_gaps(matrix: Operand, values: Operand) -> Operand:
    """Element i, j over values_j - values_i, without the diagonal.

    0 where both are 0: there no gradient flows into the vectors of repeated values.
    """
    off = matrix.tril(-1) + matrix.triu(1)
    gap = values.unsqueeze(-2) - values.unsqueeze(-1)
    nothing = (gap == 0).logical_and(off == 0)
    return off / gap.masked_fill(nothing, 1)


def _svd_vjp(grad_U: Any, grad_S: Any, grad_Vh: Any, U: Operand, S: Any, Vh: Any) -> Operand:
    """Source: PyTorch's notes on the derivative of the SVD (`svd_backward`)."""
    k = S.shape[-1]
    U, grad_U = U.narrow(-1, 0, k), grad_U.narrow(-1, 0, k)
    Vh, grad_Vh = Vh.narrow(-2, 0, k), grad_Vh.narrow(-2, 0, k)
    at_u, at_v = adjoint(U).matmul(grad_U), Vh.matmul(adjoint(grad_Vh))
    turn_u, turn_v = at_u - adjoint(at_u), at_v - adjoint(at_v)
    inner = _over_gaps(turn_u * S.unsqueeze(-2) + S.unsqueeze(-1) * turn_v, S * S)
    diagonal = grad_S
    if U.is_complex():  # the phase that U and V share is free, that of U alone is not
        diagonal = diagonal + turn_u.diagonal(0, -2, -1) / (S * 2)
    total = U.matmul(inner + diagonal.diag_embed()).matmul(Vh)
    if U.shape[-2] > k:
        off = grad_U - U.matmul(at_u)
        total = total + (off / S.unsqueeze(-2)).matmul(Vh)
    if Vh.shape[-1] > k:
        off = grad_Vh - adjoint(at_v).matmul(Vh)
        total = total + U.matmul(off / S.unsqueeze(-1))
    return total


SVD: PureOp = pure(
    "linalg_svd(Tensor A, bool full_matrices=True) -> (Tensor U, Tensor S, Tensor Vh)",
    meta=_svd_rule,
    kernel=_svd_kernel,
    vjp={"A": _svd_vjp},
    cost=Cost.CONTRACTION,
)
"""U, singular values from the largest down, and V^H of A = U S V^H.

Of (m, n) with k = min(m, n): U is (m, m) and Vh (n, n), or (m, k) and (k, n) if not
`full_matrices`; columns beyond k are arbitrary, and their gradients are ignored.
"""


# ------------------------------------------------------------------------------------------- eigh
def _eigh_rule(self: TensorMeta, UPLO: str) -> Metas:
    check_square("linalg_eigh", self)
    if UPLO not in ("L", "U", "l", "u"):
        raise ArgumentError(f"linalg_eigh: UPLO is {UPLO!r}, expected 'L' or 'U'")
    return by_rows(self.shape[:-1], self, real_of(self.dtype)), by_columns(self.shape, self)


def _eigh_kernel(xp: Namespace, metas: Metas, a: Array, UPLO: str) -> tuple[Array, ...]:
    found = completed("linalg_eigh", *_SLOW, lambda: xp.linalg.eigh(a, UPLO=UPLO.upper()))
    return tuple(found)


def _eigh_vjp(
    grad_eigenvalues: Any, grad_eigenvectors: object, eigenvalues: Any, eigenvectors: Any
) -> Operand:
    back = adjoint(eigenvectors)
    inner = _over_gaps(back.matmul(grad_eigenvectors), eigenvalues)
    return eigenvectors.matmul(inner + grad_eigenvalues.diag_embed()).matmul(back)


EIGH: PureOp = pure(
    "linalg_eigh(Tensor self, str UPLO='L') -> (Tensor eigenvalues, Tensor eigenvectors)",
    meta=_eigh_rule,
    kernel=_eigh_kernel,
    vjp={"self": _eigh_vjp},
    cost=Cost.CONTRACTION,
)
"""(eigenvalues, ascending; eigenvectors, as columns) of symmetric (Hermitian) matrices, of which
one triangle is read. The gradient is symmetrized."""
