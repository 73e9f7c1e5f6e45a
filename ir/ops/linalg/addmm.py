"""Products that are added to an operand: addmm, addmv, addr, baddbmm, addbmm.

Each computes beta * self + alpha * product; `self` broadcasts to the product's shape. With beta 0
`self` is not read, so that a nan in it has no effect. 16-bit sums are rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import DTypeError, ShapeError
from aotlite.ir.geometry import layout, sizes
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.dims import spelled
from aotlite.ir.op.operand import Operand
from aotlite.ir.op.parameter_types import Number
from aotlite.ir.ops.composed import composed
from aotlite.ir.ops.declare import common_device, common_dtype, in_parts
from aotlite.ir.ops.elementwise.pointwise import conj
from aotlite.ir.ops.linalg.products import check_batches, check_factors, check_ranks
from aotlite.ir.ops.precision import number_in, taken_by, whole, widened
from aotlite.ir.ops.views.forms import in_shape

Shape = tuple[int, ...]


def _rule(op: str, ranks: tuple[int, int], shape_of: Callable[..., Shape]) -> Callable[..., object]:
    """The meta rule of `self + product` for factors of these ranks and their product's shape."""

    def rule(self: TensorMeta, a: TensorMeta, b: TensorMeta, beta: type, alpha: type) -> TensorMeta:
        check_ranks(op, ranks, a, b)
        if ranks == (3, 3):
            check_batches(op, a, b)
        check_factors(op, a, b)
        if self.dtype is not a.dtype:
            raise DTypeError(f"{op}: argument 'self' has dtype {self.dtype}, expected {a.dtype}")
        _check_scales(op, a.dtype, beta, alpha, least=dtypes.FLOATING)  # fractions are cut off
        shape = shape_of(a.shape, b.shape)
        _check_expands(op, self.shape, shape)
        return tensor_meta(shape, None, a.dtype, common_device(op, [self, a, b]))

    return rule


def _check_scales(op: str, dtype: DType, beta: type, alpha: type, *, least: int) -> None:
    for name, kind in (("beta", beta), ("alpha", alpha)):
        if dtypes.dtype_of_scalar(kind()).kind > max(dtype.kind, least):
            raise DTypeError(
                f"{op}: argument '{name}' is a {kind.__name__}, expected a number that {dtype} "
                "holds"
            )


def _check_expands(op: str, shape: Shape, target: Shape) -> None:
    if len(shape) > len(target) or sizes.broadcast_shapes(shape, target, op=op) != target:
        raise ShapeError(
            f"{op}: argument 'self' has shape {shape}, expected one that expands to {target}"
        )


def _declare(
    schema: str,
    ranks: tuple[int, int],
    shape_of: Callable[..., Shape],
    gradients: Mapping[str, Callable[..., object]],
    product: Callable[..., object] = lambda x, y: x.matmul(y),
    *,
    together: str,
) -> PureOp:
    """Declares an op by its product, in operand methods, and its factors' gradients.

    `together` is the einsum equation of the dimensions, for sharding.
    """
    return composed(
        schema,
        meta=_rule(schema.partition("(")[0], ranks, shape_of),
        as_=_added_to(product),
        vjp={"self": lambda grad, beta: _scaled(grad, beta), **gradients},
        cost=Cost.CONTRACTION,
        inplace=True,
        dims=spelled(together, added=("self",)),
    )


def _added_to(product: Callable[..., Any]) -> Callable[..., object]:
    """beta * self + alpha * product, formed in the product's dtype."""

    def composition(
        self: Operand, a: Operand, b: Operand, *, beta: object = 1, alpha: object = 1
    ) -> Operand:
        final = a.dtype
        if self.dtype is not final or b.dtype is not final:
            final = common_dtype((self.meta, a.meta, b.meta))
        beta, alpha = _factor(final, beta), _factor(final, alpha)
        whole = product(widened(a, final), widened(b, final))
        whole = whole if alpha == 1 else whole * alpha
        if beta != 0:
            added = widened(self, final)
            whole = whole + (added if beta == 1 else added * beta)
        return whole.to(final)

    return composition


def _factor(dtype: DType, value: Any) -> Number:
    """A factor of sums of this dtype: whole for integers, where it wraps."""
    if dtype.is_differentiable:
        return taken_by(dtype, value)
    return bool(whole(value)) if dtype is dtypes.bool_ else number_in(dtype, whole(value))


def _scaled(grad: Operand, factor: float) -> Operand:
    """The gradient of what a number was multiplied with."""
    return grad if factor == 1 else grad * conj(factor)


ADDMM = _declare(
    "addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
    (2, 2),
    lambda a, b: (a[0], b[1]),
    {
        "mat1": lambda grad, mat2, alpha: _scaled(grad.matmul(conj(mat2).mT), alpha),
        "mat2": lambda grad, mat1, alpha: _scaled(conj(mat1).mT.matmul(grad), alpha),
    },
    together="mk,kn->mn",
)
"""beta * self + alpha * (mat1 @ mat2): (m, k) (k, n) -> (m, n)."""

ADDMV = _declare(
    "addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
    (2, 1),
    lambda a, b: (a[0],),
    {
        "mat": lambda grad, vec, alpha: _scaled(grad.unsqueeze(1) * conj(vec), alpha),
        "vec": lambda grad, mat, alpha: _scaled(conj(mat).mT.matmul(grad), alpha),
    },
    together="mk,k->m",
)
"""beta * self + alpha * (mat @ vec): (m, k) (k,) -> (m,)."""

BADDBMM = _declare(
    "baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1)"
    " -> Tensor",
    (3, 3),
    lambda a, b: (a[0], a[1], b[2]),
    {
        "batch1": lambda grad, batch2, alpha: _scaled(grad.matmul(conj(batch2).mT), alpha),
        "batch2": lambda grad, batch1, alpha: _scaled(conj(batch1).mT.matmul(grad), alpha),
    },
    together="bmk,bkn->bmn",
)
"""beta * self + alpha * (batch1 @ batch2): (b, m, k) (b, k, n) -> (b, m, n)."""


def _flat_factors(x: Operand, y: Operand) -> tuple[Operand, Operand]:
    (batch, rows, inner), columns = x.shape, y.shape[2]
    flat = in_shape(x.permute((1, 0, 2)), (rows, batch * inner))
    return flat, in_shape(y, (batch * inner, columns))


ADDBMM = _declare(
    "addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
    (3, 3),
    lambda a, b: (a[1], b[2]),
    {
        "batch1": lambda grad, batch2, alpha: _scaled(grad.matmul(conj(batch2).mT), alpha),
        "batch2": lambda grad, batch1, alpha: _scaled(conj(batch1).mT.matmul(grad), alpha),
    },
    lambda x, y: _flat_factors(x, y)[0].matmul(_flat_factors(x, y)[1]),
    together="bmk,bkn->mn",
)
"""beta * self + alpha * the sum of batch1 @ batch2: (b, m, k) (b, k, n) -> (m, n)."""


def _added_parts(do: Any, x: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Any:
    whole = do("matmul", a, b)
    whole = whole if alpha == 1 else do("mul", whole, alpha)
    if beta != 0:
        whole = do("add", whole, x if beta == 1 else do("mul", x, beta))
    return whole


in_parts(ADDMM, _added_parts)
in_parts(ADDMV, _added_parts)
in_parts(BADDBMM, _added_parts)


# ------------------------------------------------------------------------------- outer product
def _addr_rule(
    self: TensorMeta, vec1: TensorMeta, vec2: TensorMeta, beta: type, alpha: type
) -> TensorMeta:
    """As in PyTorch a pointwise op: dtypes promote, bool too, and layouts are kept."""
    check_ranks("addr", (1, 1), vec1, vec2)
    dtype = common_dtype((self, vec1, vec2))
    _check_scales("addr", dtype, beta, alpha, least=dtypes.INTEGER)
    shape = (vec1.shape[0], vec2.shape[0])
    _check_expands("addr", self.shape, shape)
    column = (shape[0], 1)
    steps = layout.view_strides(vec1.shape, vec1.stride, column) or (1, 1)
    layouts = [(self.shape, self.stride), (column, steps), (vec2.shape, vec2.stride)]
    strides = layout.elementwise_strides(layouts, shape)
    return tensor_meta(shape, strides, dtype, common_device("addr", [self, vec1, vec2]))


def _like(grad: Operand, vector: Operand) -> Operand:
    """The conjugate in the gradient's dtype: the operands' may differ."""
    return conj(vector).to(grad.dtype)


ADDR: PureOp = composed(
    "addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
    meta=_addr_rule,
    vjp={
        "self": lambda grad, beta: _scaled(grad, beta),
        "vec1": lambda grad, vec2, alpha: _scaled(grad.matmul(_like(grad, vec2)), alpha),
        "vec2": lambda grad, vec1, alpha: _scaled(grad.mT.matmul(_like(grad, vec1)), alpha),
    },
    cost=Cost.CONTRACTION,
    dims=spelled("m,n->mn", joins=None, added=("self",)),
    inplace=True,
    as_=_added_to(lambda x, y: x.unsqueeze(1) * y),
)
"""beta * self + alpha * (vec1 outer vec2): (n,) (m,) -> (n, m)."""
