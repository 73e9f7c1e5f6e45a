"""Composites of linear algebra: functions of `aotlite.linalg` and methods, made of its ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aotlite.ir.dtypes import DType
from aotlite.ir.dtypes.limits import finfo
from aotlite.ir.errors import ArgumentError, ShapeError
from aotlite.ir.geometry import sizes
from aotlite.ir.op.composite import composite
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.linalg.matrices import adjoint, check_matrix

Ints = tuple[int, ...]


# ------------------------------------------------------------------------- faces of tensors' own
@composite("det(Tensor self) -> Tensor")
def det(self: Operand) -> Operand:
    """The determinant of each matrix."""
    return self._do("linalg_det")


@composite("slogdet(Tensor self) -> (Tensor sign, Tensor logabsdet)")
def slogdet(self: Operand) -> Operand:
    """The sign of each determinant, and the logarithm of its size."""
    return self._do("linalg_slogdet")


@composite("logdet(Tensor self) -> Tensor")
def logdet(self: Operand) -> Operand:
    """The logarithm of each determinant: nan for a negative one."""
    sign, size = self._do("linalg_slogdet")
    if self.is_complex():
        return sign.log() + size
    return (sign == -1).where(float("nan"), size)


@composite("inverse(Tensor self) -> Tensor")
def inverse(self: Operand) -> Operand:
    """The inverse of each matrix. Raises LinAlgError if one has none."""
    return self._do("linalg_inv")


@composite("cholesky(Tensor self, bool upper=False) -> Tensor")
def cholesky(self: Operand, upper: bool) -> Operand:
    """`linalg.cholesky`."""
    factor = self._do("linalg_cholesky", upper=upper)
    # As in PyTorch, where the older form makes an empty result itself.
    return factor if factor.numel() else factor._do("restride", self.meta.as_contiguous().stride)


@composite("qr(Tensor self, bool some=True) -> (Tensor Q, Tensor R)")
def qr(self: Operand, some: bool) -> Operand:
    """`linalg.qr`, reduced or complete."""
    return self._do("linalg_qr", "reduced" if some else "complete")


@composite(
    "svd(Tensor self, bool some=True, bool compute_uv=True) -> (Tensor U, Tensor S, Tensor V)"
)
def svd(self: Operand, some: bool, compute_uv: bool) -> tuple[Operand, ...]:
    """U, S and V (not V^H) of the singular value decomposition; without `compute_uv` zeros."""
    if compute_uv:
        u, s, vh = self._do("linalg_svd", not some)
        return u, s, adjoint(vh)
    s = linalg_svdvals(self)
    *batch, m, n = self.shape
    return self.new_zeros((*batch, m, m)), s, self.new_zeros((*batch, n, n))


@composite("linalg_svdvals(Tensor A) -> Tensor", is_method=False)
def linalg_svdvals(A: Operand) -> Operand:
    """The singular values from the largest down."""
    return A._do("linalg_svd", False)[1]


@composite("linalg_eigvalsh(Tensor self, str UPLO='L') -> Tensor", is_method=False)
def linalg_eigvalsh(self: Operand, UPLO: str) -> Operand:
    """The eigenvalues of symmetric (Hermitian) matrices from the smallest up."""
    return self._do("linalg_eigh", UPLO)[0]


@composite("linalg_matmul(Tensor self, Tensor other) -> Tensor", is_method=False)
def linalg_matmul(self: Operand, other: Operand) -> Operand:
    """`matmul`."""
    return self._do("matmul", other)


@composite("linalg_vecdot(Tensor x, Tensor y, *, int dim=-1) -> Tensor", is_method=False)
def linalg_vecdot(x: Operand, y: Operand, dim: int) -> Operand:
    """The sum of products along a dimension, `x` conjugated."""
    return (_conj(x) * y).sum((dim,))


def _conj(x: Operand) -> Operand:
    return x.conj() if x.is_complex() else x


@composite(
    "linalg_diagonal(Tensor A, *, int offset=0, int dim1=-2, int dim2=-1) -> Tensor",
    is_method=False,
)
def linalg_diagonal(A: Operand, offset: int, dim1: int, dim2: int) -> Operand:
    """A view of the diagonal of each matrix."""
    return A.diagonal(offset, dim1, dim2)


# ----------------------------------------------------------------------------------------- powers
@composite("linalg_matrix_power(Tensor self, int n) -> Tensor", is_method=False)
def linalg_matrix_power(self: Operand, n: int) -> Operand:
    """Each matrix to the n-th power; for negative n, the power of its inverse."""
    return _power("linalg_matrix_power", self, n)


@composite("matrix_power(Tensor self, int n) -> Tensor")
def matrix_power(self: Operand, n: int) -> Operand:
    """`linalg.matrix_power`."""
    return _power("matrix_power", self, n)


def _power(op: str, self: Operand, n: int) -> Operand:
    shape = self.shape
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ShapeError(f"{op}: argument 'self' has shape {shape}, expected square matrices")
    if n == 0:
        return self.new_ones(shape[-1]).diag_embed().expand(shape).contiguous().clone()
    base = self._do("linalg_inv") if n < 0 else self
    if abs(n) == 1:
        return base if n < 0 else base._do("restride", self.meta.as_contiguous().stride)
    result: Operand | None = None
    for bit in bin(abs(n))[:1:-1]:  # squares, from the lowest bit up
        if bit == "1":
            result = base if result is None else result.matmul(base)
        base = base.matmul(base) if bit != "b" else base
    assert result is not None
    return result


# -------------------------------------------------------------------------------- rank and inverse
def _tolerance(self: Operand, largest: Operand, atol: float | None, rtol: float | None) -> Operand:
    """The tolerance for singular values, by PyTorch's rule, from the `largest` of each matrix."""
    if rtol is None and not atol:
        eps = largest * finfo(self.dtype).eps  # exact, so that a size may be a symbol
        return (eps * sizes.maximum(self.shape[-1], self.shape[-2])).clamp(min=0.0)
    return (largest * (rtol or 0.0)).clamp(min=atol or 0.0)


@composite(
    "linalg_matrix_rank(Tensor self, float? tol=None, bool hermitian=False, *, float? atol=None, "
    "float? rtol=None) -> Tensor",
    is_method=False,
)
def linalg_matrix_rank(
    self: Operand, tol: float | None, hermitian: bool, atol: float | None, rtol: float | None
) -> Operand:
    """The number of singular values above max(atol, rtol * the largest one)."""
    check_matrix("linalg_matrix_rank", self.meta, "self")
    if tol is not None:
        atol, rtol = tol, 0.0
    values = linalg_eigvalsh(self, "L").abs() if hermitian else linalg_svdvals(self)
    if not sizes.numel(self.shape[-2:]):
        return values.sum(-1).long()
    largest = values.amax(-1, True)
    return (values > _tolerance(self, largest, atol, rtol)).sum(-1)


@composite("pinverse(Tensor self, float rcond=1e-15) -> Tensor")
def pinverse(self: Operand, rcond: float) -> Operand:
    """`linalg.pinv` with `rcond` times the largest singular value as the tolerance."""
    return self._do("linalg_pinv", rtol=rcond)


@composite("matrix_exp(Tensor self) -> Tensor")
def matrix_exp(self: Operand) -> Operand:
    """`linalg.matrix_exp`."""
    return self._do("linalg_matrix_exp")


# ------------------------------------------------------------------------------------------ norms
@composite(is_method=False)
def linalg_matrix_norm(
    A: Operand,
    ord: object = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Operand:
    """A norm of each matrix: 'fro', 'nuc', inf, -inf, 1, -1 (of sums), 2, -2 (singular values)."""
    op = "linalg_matrix_norm"
    if A.ndim < 2:
        raise ShapeError(f"{op}: argument 'A' has shape {A.shape}, expected at least 2 dimensions")
    pair = sizes.wrap_dims(dim, A.ndim, op=op)
    if len(pair) != 2:
        raise ArgumentError(f"{op}: dim is {tuple(dim)}, expected two dimensions")
    A = A if dtype is None else A.to(dtype)
    if ord == "fro":
        return A._do("linalg_vector_norm", 2, pair, keepdim)
    if ord == "nuc" or ord in (2, -2):
        return _spectral(A, ord, pair, keepdim)
    if ord not in (1, -1, float("inf"), float("-inf")):
        raise ArgumentError(f"{op}: ord is {ord!r}, expected 'fro', 'nuc', inf, 1, 2 or -these")
    summed, kept = pair if abs(ord) == 1 else pair[::-1]
    sums = A._do("linalg_vector_norm", 1, (summed,), True)
    found = _largest(sums, kept) if ord > 0 else sums.amin((kept,), True)
    return found if keepdim else _without(found, pair)


def _largest(sizes_: Any, dim: int) -> Any:
    """The largest along a dimension, which is kept; 0 of none."""
    return sizes_.amax((dim,), True) if sizes_.shape[dim] else sizes_.sum((dim,), True)


def _without(found: Any, pair: Ints) -> Any:
    for dim in sorted(pair, reverse=True):
        found = found.squeeze(dim)
    return found


def _spectral(A: Operand, ord: Any, pair: Ints, keepdim: bool) -> Operand:
    rest = tuple([i for i in range(A.ndim) if i not in pair])
    values = linalg_svdvals(A.permute(rest + pair))
    if ord == "nuc":
        found = values.sum((-1,))
    else:
        found = _largest(values, -1).squeeze(-1) if ord > 0 else values.amin((-1,))
    if not keepdim:
        return found
    # As PyTorch, which puts them last and moves them: the strides are those of that view.
    order = rest + pair
    places = sorted(range(A.ndim), key=order.__getitem__)
    return found.unsqueeze(-1).unsqueeze(-1).permute(tuple(places))


@composite(is_method=False)
def linalg_norm(
    A: Operand,
    ord: object = None,
    dim: object = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Operand:
    """A norm of vectors or of matrices, by how many dimensions there are.

    Without `ord` the root of the sum of squares; `ord` of a matrix, or along two dimensions, is
    that of `matrix_norm`, else that of `vector_norm`.
    """
    dims = dim if dim is None or isinstance(dim, (tuple, list)) else (dim,)
    if ord is None:
        return A._do("linalg_vector_norm", 2, dims, keepdim, dtype=dtype)
    if dims is None and A.ndim not in (1, 2):
        raise ShapeError(
            f"linalg_norm: argument 'A' has shape {A.shape}, expected 1 or 2 dimensions where ord "
            "is given and dim is not"
        )
    if isinstance(ord, str) or len(dims or A.shape) == 2:
        return linalg_matrix_norm(A, ord, dims or (-2, -1), keepdim, dtype=dtype)
    return A._do("linalg_vector_norm", ord, dims, keepdim, dtype=dtype)
