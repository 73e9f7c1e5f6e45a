"""Contractions: the matrix product, and the products of given ranks that are composed of it.

Products that are added to something are in `addmm`, sums over named dimensions in
`einsum`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import DTypeError, ShapeError
from aotlite.ir.geometry import sizes
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.composite import composite
from aotlite.ir.op.dims import Args, Dims, Labels, Metas, spelled
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.composed import composed
from aotlite.ir.ops.declare import common_device, pure
from aotlite.ir.ops.elementwise.pointwise import conj
from aotlite.ir.ops.loops import Loops, LoopTensor
from aotlite.ir.ops.precision import accumulator, cast, wide, widened
from aotlite.ir.ops.views.forms import in_shape


def _matmul_rule(self: TensorMeta, other: TensorMeta) -> TensorMeta:
    check_factors("matmul", self, other)
    device = common_device("matmul", [self, other])
    batch = sizes.broadcast_shapes(self.shape[:-2], other.shape[:-2], op="matmul")
    rows = self.shape[-2:-1]  # none for a vector, whose dimension goes
    columns = other.shape[-1:] if len(other.shape) > 1 else ()
    return tensor_meta((*batch, *rows, *columns), None, self.dtype, device)


def check_factors(op: str, self: TensorMeta, other: TensorMeta) -> None:
    """Raises unless both operands have dimensions, one numeric dtype, and equal inner sizes."""
    for name, meta in (("self", self), ("other", other)):
        if not meta.shape:
            raise ShapeError(f"{op}: argument '{name}' has 0 dimensions, expected at least 1")
    inner = other.shape[-2:][0]
    if self.shape[-1] != inner:
        raise ShapeError(
            f"{op}: argument 'other' has shape {other.shape}, expected size {self.shape[-1]} "
            f"instead of {inner}: the last dimension of 'self' of shape {self.shape}"
        )
    check_one_dtype(op, self, other)


def check_one_dtype(op: str, self: TensorMeta, other: TensorMeta) -> None:
    """Raises DTypeError unless both operands have the same dtype, one with matrix products."""
    if self.dtype is not other.dtype or not _sums(self.dtype):
        raise DTypeError(
            f"{op}: dtypes are {self.dtype} and {other.dtype}, expected one numeric dtype"
        )


def _sums(dtype: DType) -> bool:
    return dtype not in _UNSUMMED


# PyTorch has no matrix products of these.
_UNSUMMED = frozenset((dtypes.bool_, dtypes.uint16, dtypes.uint32, dtypes.uint64))


def _matmul_kernel(xp: Namespace, meta: TensorMeta, a: Array, b: Array) -> Array:
    a, b = wide(xp, a, meta.dtype), wide(xp, b, meta.dtype)
    if len(b.shape) == 2 < len(a.shape):
        # One product of a tall matrix instead of one small product for each batch.
        rows = sizes.numel(a.shape[:-1])
        product = xp.reshape(xp.matmul(xp.reshape(a, (rows, a.shape[-1])), b), meta.shape)
    else:
        product = xp.matmul(a, b)
    return cast(xp, product, meta.dtype)


def _matmul_namespaced(
    meta: TensorMeta, self: TensorMeta, other: TensorMeta
) -> tuple[str, dict[str, object]] | None:
    tall = len(other.shape) == 2 < len(self.shape)
    return None if tall or accumulator(meta.dtype) is not self.dtype else ("matmul", {})


def _matmul_loops(k: Loops, meta: TensorMeta, a: LoopTensor, b: LoopTensor) -> LoopTensor:
    if a.ndim == 1:
        a = a.view((1, *a.shape), (0, *a.stride))
    if b.ndim == 1:
        b = b.view((*b.shape, 1), (*b.stride, 0))
    batch = sizes.broadcast_shapes(a.shape[:-2], b.shape[:-2], op="matmul")
    whole = tensor_meta((*batch, a.shape[-2], b.shape[-1]), None, meta.dtype)
    return k.product(whole, a, b, accumulator(meta.dtype)).view(meta.shape, meta.stride)


def _left_gradient(grad: Operand, self_meta: TensorMeta, other: Operand) -> Operand:
    if other.ndim == 1:
        grad, other = grad.unsqueeze(-1), other.unsqueeze(-1)
    if len(self_meta.shape) == 1:
        return grad.unsqueeze(-2).matmul(conj(other).mT).squeeze(-2)
    return grad.matmul(conj(other).mT)


def _right_gradient(grad: Operand, self: Operand, other_meta: TensorMeta) -> Operand:
    if self.ndim == 1:
        grad, self = grad.unsqueeze(-2 if len(other_meta.shape) > 1 else -1), self.unsqueeze(0)
    if len(other_meta.shape) == 1:
        return conj(self).mT.matmul(grad.unsqueeze(-1)).squeeze(-1)
    if len(other_meta.shape) == 2 < self.ndim:
        # One product over the rows of all batches, not the sum of a product for each.
        rows = sizes.numel(self.shape[:-1])
        self, grad = (in_shape(x, (rows, x.shape[-1])) for x in (self, grad))
    return conj(self).mT.matmul(grad)


def _matmul_dims(args: Args, results: Metas) -> Dims:
    """Rows, columns and broadcast batches can be sharded; along k, sums of shards are added."""
    a, b = args["self"], args["other"]
    batch = len(results[0].shape) - (len(a.shape) > 1) - (len(b.shape) > 1)
    left: Labels = ("m", "k") if len(a.shape) > 1 else ("k",)
    right: Labels = ("k", "n") if len(b.shape) > 1 else ("k",)

    def batched(meta: TensorMeta, own: Labels) -> Labels:
        sizes = meta.shape[: len(meta.shape) - len(own)]
        first = batch - len(sizes)
        return (*[None if n == 1 else first + i for i, n in enumerate(sizes)], *own)

    found = {"self": batched(a, left), "other": batched(b, right)}
    ends = ("m",) * (len(a.shape) > 1) + ("n",) * (len(b.shape) > 1)
    return Dims(found, ((*range(batch), *ends),), joins="sum")


MATMUL: PureOp = pure(
    "matmul(Tensor self, Tensor other) -> Tensor",
    meta=_matmul_rule,
    kernel=_matmul_kernel,
    namespaced=_matmul_namespaced,
    vjp={
        "self": _left_gradient,
        "other": _right_gradient,
    },
    cost=Cost.CONTRACTION,
    dims=_matmul_dims,
    linear=(("self",), ("other",)),
    loops=_matmul_loops,
)
"""(*b, m, k) (*c, k, n) -> (*bc, m, n): batch dimensions broadcast; both operands of one dtype.

A vector on the left is a row, one on the right a column, and its dimension is not in the result:
(n,) (n,) -> (); (m, k) (k,) -> (m,); (k,) (k, n) -> (n,).
"""


# ----------------------------------------------------------------------------- of given ranks
def check_ranks(op: str, ranks: tuple[int, ...], *operands: Any) -> None:
    """Raises ShapeError unless each operand, which has a shape, has its number of dimensions."""
    for rank, operand in zip(ranks, operands, strict=True):
        if len(operand.shape) != rank:
            plural = "s" if rank != 1 else ""
            raise ShapeError(
                f"{op}: an operand has shape {operand.shape}, expected {rank} dimension{plural}"
            )


def check_batches(op: str, self: TensorMeta, other: TensorMeta) -> None:
    """Raises ShapeError unless the first sizes agree: these products do not broadcast."""
    if self.shape[0] != other.shape[0]:
        raise ShapeError(
            f"{op}: the batches have sizes {self.shape[0]} and {other.shape[0]}, expected one size"
        )


def _of_ranks(
    schema: str, ranks: tuple[int, int], gradients: dict[str, Callable[..., Any]], together: str
) -> PureOp:
    """Declares a matrix product of operands of these ranks, without broadcasting.

    `together` is the einsum equation of the dimensions, for sharding.
    """
    op = schema.partition("(")[0]

    def rule(self: TensorMeta, other: TensorMeta) -> TensorMeta:
        check_ranks(op, ranks, self, other)
        if ranks == (3, 3):
            check_batches(op, self, other)
        check_factors(op, self, other)
        columns = other.shape[-1:] if ranks[1] > 1 else ()
        device = common_device(op, [self, other])
        return tensor_meta((*self.shape[:-1], *columns), None, self.dtype, device)

    return pure(
        schema,
        meta=rule,
        kernel=_matmul_kernel,
        namespaced=_matmul_namespaced,
        vjp=gradients,
        cost=Cost.CONTRACTION,
        expands=lambda self, other: self.matmul(other),
        dims=spelled(together),
        linear=tuple([(name,) for name in gradients]),
    )


_BY_MATRICES: dict[str, Callable[..., object]] = {
    "self": lambda grad, mat2: grad.matmul(conj(mat2).mT),
    "mat2": lambda grad, self: conj(self).mT.matmul(grad),
}
MM = _of_ranks("mm(Tensor self, Tensor mat2) -> Tensor", (2, 2), _BY_MATRICES, "mk,kn->mn")
"""(m, k) (k, n) -> (m, n)."""
BMM = _of_ranks("bmm(Tensor self, Tensor mat2) -> Tensor", (3, 3), _BY_MATRICES, "bmk,bkn->bmn")
"""(b, m, k) (b, k, n) -> (b, m, n)."""
MV = _of_ranks(
    "mv(Tensor self, Tensor vec) -> Tensor",
    (2, 1),
    {
        "self": lambda grad, vec: grad.unsqueeze(1) * conj(vec),
        "vec": lambda grad, self: conj(self).mT.matmul(grad),
    },
    "mk,k->m",
)
"""(m, k) (k,) -> (m,)."""
DOT = _of_ranks(
    "dot(Tensor self, Tensor tensor) -> Tensor",
    (1, 1),
    {
        "self": lambda grad, tensor: grad * conj(tensor),
        "tensor": lambda grad, self: grad * conj(self),
    },
    "k,k->",
)
"""(k,) (k,) -> (): the sum of the products."""


@composite("vdot(Tensor self, Tensor other) -> Tensor")
def vdot(self: Operand, other: Operand) -> Operand:
    """(k,) (k,) -> (): the sum of the products, `self` conjugated."""
    check_ranks("vdot", (1, 1), self, other)
    check_factors("vdot", self.meta, other.meta)
    return conj(self)._do("dot", other)


def _outer(op: str, self: Operand, vec2: Operand) -> Operand:
    check_ranks(op, (1, 1), self, vec2)
    return self.reshape((self.shape[0], 1)) * vec2


@composite("outer(Tensor self, Tensor vec2) -> Tensor")
def outer(self: Operand, vec2: Operand) -> Operand:
    """(n,) (m,) -> (n, m): every product of an element with one of `vec2`."""
    return _outer("outer", self, vec2)


@composite("ger(Tensor self, Tensor vec2) -> Tensor")
def ger(self: Operand, vec2: Operand) -> Operand:
    """Another name of `outer`."""
    return _outer("ger", self, vec2)


@composite("kron(Tensor self, Tensor other) -> Tensor")
def kron(self: Operand, other: Operand) -> Operand:
    """The Kronecker product: each element of `self` times the whole of `other`, in its place."""
    rank = max(self.ndim, other.ndim)
    left = (1,) * (rank - self.ndim) + self.shape
    right = (1,) * (rank - other.ndim) + other.shape
    # Their layouts are those of the product, which the result may show.
    spread = self.reshape([n for size in left for n in (size, 1)])
    repeated = other.reshape([n for size in right for n in (1, size)])
    return (spread * repeated).reshape([a * b for a, b in zip(left, right, strict=True)])


# ------------------------------------------------------------------------------ cross product
def _cross_rule(self: TensorMeta, other: TensorMeta, dim: int) -> TensorMeta:
    op = "linalg_cross"
    if len(self.shape) != len(other.shape):
        raise ShapeError(
            f"{op}: argument 'other' has shape {other.shape}, expected {len(self.shape)} dimensions"
        )
    check_one_dtype(op, self, other)
    at = sizes.wrap_dim(dim, len(self.shape), op=op)
    for name, meta in (("self", self), ("other", other)):
        if not meta.shape or meta.shape[at] != 3:
            raise ShapeError(
                f"{op}: argument '{name}' has shape {meta.shape}, expected size 3 in dimension "
                f"{dim}"
            )
    shape = sizes.broadcast_shapes(self.shape, other.shape, op=op)
    return tensor_meta(shape, None, self.dtype, common_device(op, [self, other]))


def _cross(self: Operand, other: Operand, *, dim: int = -1) -> Operand:
    a, b = widened(self), widened(other)
    turned = [v.roll((-k,), (dim,)) for v in (a, b) for k in (1, 2)]
    return (turned[0] * turned[3] - turned[1] * turned[2]).to(self.dtype)


LINALG_CROSS: PureOp = composed(
    "linalg_cross(Tensor self, Tensor other, *, int dim=-1) -> Tensor",
    meta=_cross_rule,
    vjp={
        "self": lambda grad, other, dim: conj(other).linalg_cross(grad, dim=dim),
        "other": lambda grad, self, dim: grad.linalg_cross(conj(self), dim=dim),
    },
    cost=Cost.INDEXING,
    as_=_cross,
)
"""The vectors, three elements along `dim` each, that are normal to those of both operands."""


@composite("cross(Tensor self, Tensor other, int? dim=None) -> Tensor")
def cross(self: Operand, other: Operand, dim: int | None) -> Operand:
    """`linalg.cross`, by default along the first dimension of size 3."""
    if dim is None:
        threes = [i for i, size in enumerate(self.shape) if size == 3]
        if not threes:
            raise ShapeError(f"cross: the shape is {self.shape}, expected a dimension of size 3")
        dim = threes[0]
    return self.linalg_cross(other, dim=dim)
