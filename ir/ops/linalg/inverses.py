"""Inverses, linear systems and determinants: inv, solve, solve_triangular, det, slogdet.

Matrices come in batches: (*, n, n). Results are column-major, as PyTorch's.
"""

from __future__ import annotations

from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.errors import DTypeError, ShapeError
from aotlite.ir.geometry import sizes
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.dims import leading
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.declare import common_device, pure, real_of
from aotlite.ir.ops.elementwise.pointwise import conj
from aotlite.ir.ops.linalg.matrices import (
    adjoint,
    by_columns,
    by_rows,
    check_matrix,
    check_square,
    completed,
)

_SINGULAR = ("a matrix is singular", "matrices that have an inverse")


# ---------------------------------------------------------------------------------------- inverse
def _inv_rule(A: TensorMeta) -> TensorMeta:
    check_square("linalg_inv", A)
    return by_columns(A.shape, A)


INV: PureOp = pure(
    "linalg_inv(Tensor A) -> Tensor",
    meta=_inv_rule,
    kernel=lambda xp, meta, a: completed("linalg_inv", *_SINGULAR, xp.linalg.inv, a),
    vjp={"A": lambda grad, result: -adjoint(result).matmul(grad.matmul(adjoint(result)))},
    cost=Cost.CONTRACTION,
    dims=leading(2),
)
"""The inverse of each matrix. Raises LinAlgError if one has none."""


# ---------------------------------------------------------------------------------------- solving
Shaped = TensorMeta | Operand | Array


def is_vector(A: Shaped, B: Shaped) -> bool:
    """Whether the right side of A X = B counts as vectors: one, or one for each matrix."""
    return len(B.shape) == 1 or (
        len(B.shape) == len(A.shape) - 1 and tuple(B.shape) == tuple(A.shape[:-1])
    )


def _check_sides(op: str, A: TensorMeta, B: TensorMeta) -> None:
    check_square(op, A)
    if A.dtype is not B.dtype:
        raise DTypeError(f"{op}: argument 'B' has dtype {B.dtype}, expected {A.dtype}, that of 'A'")
    if not B.shape:
        raise ShapeError(f"{op}: argument 'B' has shape (), expected at least 1 dimension")


def _solution_shape(op: str, A: TensorMeta, B: tuple[int, ...], *, left: bool) -> tuple[int, ...]:
    """The shape of X for right sides that are matrices."""
    facing = B[-2] if left else B[-1]
    if facing != A.shape[-1]:
        side = "rows" if left else "columns"
        raise ShapeError(
            f"{op}: argument 'B' has shape {B}, expected {A.shape[-1]} {side}, as many as 'A' has"
        )
    return (*sizes.broadcast_shapes(A.shape[:-2], B[:-2], op=op), *B[-2:])


def _solve_rule(A: TensorMeta, B: TensorMeta, left: bool) -> TensorMeta:
    op = "linalg_solve"
    _check_sides(op, A, B)
    vector = is_vector(A, B)
    if vector and not left:
        raise ShapeError(
            f"{op}: argument 'B' has shape {B.shape}, expected matrices where left is False"
        )
    shape = _solution_shape(op, A, (*B.shape, 1) if vector else B.shape, left=left)
    shape = shape[:-1] if vector else shape
    common_device(op, [A, B])
    return by_columns(shape, A) if left and len(shape) > 1 else by_rows(shape, A)


def _solve_kernel(xp: Namespace, meta: TensorMeta, a: Array, b: Array, left: bool) -> Array:
    if is_vector(a, b):
        b = xp.expand_dims(b, axis=-1)
    if not left:
        a, b = xp.matrix_transpose(a), xp.matrix_transpose(b)
    x = completed("linalg_solve", *_SINGULAR, xp.linalg.solve, a, b)
    return xp.reshape(x if left else xp.matrix_transpose(x), meta.shape)


def _solve_right(grad: Operand, A: Operand, B_meta: TensorMeta, left: bool) -> Operand:
    vector = is_vector(A, B_meta)
    grad = grad.unsqueeze(-1) if vector else grad
    solved = adjoint(A)._do("linalg_solve", grad, left=left)
    return solved.squeeze(-1) if vector else solved


def _solve_left(
    grad: Operand, A: Operand, B_meta: TensorMeta, result: Operand, left: bool
) -> Operand:
    vector = is_vector(A, B_meta)
    at_right = _solve_right(grad, A, B_meta, left)
    if vector:
        at_right, result = at_right.unsqueeze(-1), result.unsqueeze(-1)
    return -(at_right.matmul(adjoint(result)) if left else adjoint(result).matmul(at_right))


SOLVE: PureOp = pure(
    "linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor",
    meta=_solve_rule,
    kernel=_solve_kernel,
    vjp={"A": _solve_left, "B": _solve_right},
    cost=Cost.CONTRACTION,
)
"""X of A X = B (X A = B if not `left`). Raises LinAlgError if a matrix is singular.

B is one vector, or one for each matrix, or matrices: (*, n, n) (*, n, k) -> (*, n, k).
"""


# ------------------------------------------------------------------------------------- triangular
def _triangular_rule(
    self: TensorMeta, B: TensorMeta, upper: bool, left: bool, unitriangular: bool
) -> TensorMeta:
    op = "linalg_solve_triangular"
    _check_sides(op, self, B)
    check_matrix(op, B, "B")
    common_device(op, [self, B])
    return by_columns(_solution_shape(op, self, B.shape, left=left), self)


def _triangular_kernel(
    xp: Namespace,
    meta: TensorMeta,
    a: Array,
    b: Array,
    upper: bool,
    left: bool,
    unitriangular: bool,
) -> Array:
    if not left:
        a, b = xp.matrix_transpose(a), xp.matrix_transpose(b)
        upper = not upper
    batch = meta.shape[:-2]
    b = xp.broadcast_to(b, (*batch, *b.shape[-2:]))
    x = _substituted(xp, a, b, upper, unitriangular)
    return x if left else xp.matrix_transpose(x)


def _substituted(xp: Namespace, a: Array, b: Array, upper: bool, unit: bool) -> Array:
    """Recursive substitution by halves, so that most of the work is in matrix products."""
    n = a.shape[-1]
    if n < 2:
        return b if unit or not n else b / a
    half = n // 2
    first, last = slice(None, half), slice(half, None)
    done, open_ = (last, first) if upper else (first, last)
    x = _substituted(xp, a[..., done, done], b[..., done, :], upper, unit)
    rest = b[..., open_, :] - xp.matmul(a[..., open_, done], x)
    y = _substituted(xp, a[..., open_, open_], rest, upper, unit)
    return xp.concat((y, x) if upper else (x, y), axis=-2)


def _triangular_right(
    grad: Operand, self: Operand, upper: bool, left: bool, unitriangular: bool
) -> Operand:
    return adjoint(self)._do(
        "linalg_solve_triangular", grad, upper=not upper, left=left, unitriangular=unitriangular
    )


def _triangular_left(
    grad: Operand, self: Operand, result: Operand, upper: bool, left: bool, unitriangular: bool
) -> Operand:
    at_right = _triangular_right(grad, self, upper, left, unitriangular)
    full = -(at_right.matmul(adjoint(result)) if left else adjoint(result).matmul(at_right))
    off = 1 if unitriangular else 0
    return full.triu(off) if upper else full.tril(-off)


SOLVE_TRIANGULAR: PureOp = pure(
    "linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, "
    "bool unitriangular=False) -> Tensor",
    meta=_triangular_rule,
    kernel=_triangular_kernel,
    vjp={"self": _triangular_left, "B": _triangular_right},
    cost=Cost.CONTRACTION,
)
"""X with A X = B (X A = B if not `left`), for triangular A, of which it reads one triangle. Zeros
on the diagonal give infinities. If `unitriangular`, the diagonal counts as ones.
"""


# ----------------------------------------------------------------------------------- determinants
def _det_rule(A: TensorMeta) -> TensorMeta:
    check_square("linalg_det", A)
    return by_rows(A.shape[:-2], A)


DET: PureOp = pure(
    "linalg_det(Tensor A) -> Tensor",
    meta=_det_rule,
    kernel=lambda xp, meta, a: xp.asarray(xp.linalg.det(a)),
    vjp={"A": lambda grad, A: _spread(grad) * conj(A._do("linalg_cofactors"))},
    cost=Cost.CONTRACTION,
    dims=leading(2),
)
"""The determinant of each matrix."""


def _spread(value: Operand) -> Operand:
    """Numbers, one for each matrix, as matrices of one element."""
    return value.unsqueeze(-1).unsqueeze(-1)


def _cofactors_rule(A: TensorMeta) -> TensorMeta:
    check_square("linalg_cofactors", A)
    return by_rows(A.shape, A)


def _cofactors_kernel(xp: Namespace, meta: TensorMeta, a: Array) -> Array:
    """By the SVD, which also gives the cofactors of singular matrices."""
    finite = xp.all(xp.isfinite(a), axis=(-2, -1))[..., None, None]
    u, s, vh = xp.linalg.svd(xp.where(finite, a, 0), full_matrices=False)
    n = s.shape[-1]
    others = xp.where(xp.eye(n, dtype=bool), xp.asarray(1, dtype=s.dtype), s[..., None, :])
    scale = xp.prod(others, axis=-1)
    turns = xp.linalg.det(u) * xp.linalg.det(vh)
    product = xp.matmul(xp.conj(u) * scale[..., None, :], xp.conj(vh))
    return xp.astype(xp.where(finite, product * turns[..., None, None], xp.nan), meta.dtype.numpy)


def _cofactors_vjp(grad: Operand, A: Operand) -> Operand:
    """Of det(A) times the inverse's transpose, which needs an inverse."""
    turned = conj(A._do("linalg_inv")).mT
    along = _spread((grad * turned).sum((-2, -1)))
    change = along * turned - turned.matmul(grad.mT).matmul(turned)
    return _spread(conj(A._do("linalg_det"))) * change


COFACTORS: PureOp = pure(
    "linalg_cofactors(Tensor A) -> Tensor",
    meta=_cofactors_rule,
    kernel=_cofactors_kernel,
    vjp={"A": _cofactors_vjp},
    cost=Cost.CONTRACTION,
)
"""The derivative of the determinant by each element: the cofactors. Its own gradient needs an
inverse of A.
"""


def _slogdet_rule(A: TensorMeta) -> tuple[TensorMeta, TensorMeta]:
    check_square("linalg_slogdet", A)
    return by_rows(A.shape[:-2], A), by_rows(A.shape[:-2], A, real_of(A.dtype))


def _slogdet_kernel(xp: Namespace, metas: tuple[TensorMeta, ...], a: Array) -> tuple[Array, ...]:
    sign, size = xp.linalg.slogdet(a)
    sign = xp.where(xp.isnan(size), 0, sign)  # of nan the sign is 0
    pairs = zip((sign, size), metas, strict=True)
    return tuple([xp.asarray(v, dtype=meta.dtype.numpy) for v, meta in pairs])


def _slogdet_vjp(grad_sign: Operand, grad_logabsdet: Operand, A: Operand, sign: Operand) -> Operand:
    scale = grad_logabsdet
    if A.is_complex():  # the sign turns with the imaginary part of the logarithm
        turn = conj(grad_sign) * sign
        scale = scale - (turn - conj(turn)) / 2
    else:  # a gradient of the sign alone leads to zeros, which must be seen to come of it
        scale = scale + grad_sign._do("fill", 0)
    return _spread(scale) * adjoint(A._do("linalg_inv"))


SLOGDET: PureOp = pure(
    "linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet)",
    meta=_slogdet_rule,
    kernel=_slogdet_kernel,
    vjp={"A": _slogdet_vjp},
    cost=Cost.CONTRACTION,
)
"""The sign of each determinant (a number on the unit circle), and the logarithm of its size."""
