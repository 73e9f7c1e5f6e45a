"""Sums, products, averages, counts and truth: sum, mean, nansum, prod, count_nonzero, any, all.

What the gradients save follows PyTorch's table, except that `prod` saves its operand alone: its
gradient never divides by the result, so that it is right with zeros and at every order.
"""

from __future__ import annotations

from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op.composite import composite
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.composed import count_of, dims_of, over
from aotlite.ir.ops.elementwise.pointwise import conj
from aotlite.ir.ops.kinds import require_inexact, require_real
from aotlite.ir.ops.precision import widened
from aotlite.ir.ops.reduce.dims import Dims, count, spread, summed
from aotlite.ir.ops.reduce.scans import moved
from aotlite.ir.ops.reduction_rows import (
    BY_ALL,
    BY_ANY,
    BY_PROD,
    BY_SUM,
    COUNTS,
    DIM,
    DIMS,
    DTYPE,
    TRUTHS,
    VALUES,
    Call,
    Over,
    plain_call,
    reduction,
)
from aotlite.ir.ops.views.forms import in_shape

# ------------------------------------------------------------------------------ sums and products
SUM = reduction(
    "sum",
    DIMS + DTYPE,
    result=summed,
    combiner=BY_SUM,
    vjp=lambda grad, self_meta, dim, keepdim: spread(grad, self_meta, dim, keepdim),
    linear=(("self",),),
)


def _mean(
    self: Operand, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Operand:
    dims, final = dims_of(self, dim), dtype or self.dtype
    whole = widened(self, final).sum(dims, keepdim)
    return over(whole, count_of(self, dims)).to(final)


def _mean_namespaced(meta: TensorMeta, self: TensorMeta, *args: object) -> Call | None:
    """Not of nothing, which NumPy warns of in a way that cannot be turned off for one call."""
    return plain_call("mean", _OVER, VALUES, meta, self, *args) if self.numel else None


_OVER = Over("mean", 0, 1, empty_is_all=True)
MEAN = reduction(
    "mean",
    DIMS + DTYPE,
    result=lambda name, own, dtype: require_inexact(name, dtype or own),
    as_=_mean,
    vjp=lambda grad, self_meta, dim, keepdim: (
        spread(grad, self_meta, dim, keepdim) / count(self_meta, dim)
    ),
    namespaced=_mean_namespaced,
    joins="avg",
    linear=(("self",),),
)


def _nansum_dtype(name: str, own: DType, dtype: DType | None) -> DType:
    require_real(name, own)
    return require_real(name, summed(name, own, dtype))


def _nansum(
    self: Operand, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Operand:
    final = summed("nansum", self.dtype, dtype)
    values = widened(self.isnan().where(0, self), final)
    return values.sum(dims_of(self, dim), keepdim).to(final)


NANSUM = reduction(
    "nansum",
    DIMS + DTYPE,
    result=_nansum_dtype,
    as_=_nansum,
    vjp=lambda grad, self, dim, keepdim: spread(grad, self.meta, dim, keepdim).masked_fill(
        self.isnan(), 0
    ),
    joins="sum",
    neutral=BY_SUM.neutral,
)
"""The sum of what is not nan."""


@composite(
    "nanmean(Tensor self, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor"
)
def nanmean(self: Operand, dim: Dims, keepdim: bool, dtype: DType | None) -> Operand:
    """The mean of what is not nan."""
    require_inexact("nanmean", self.dtype)
    require_inexact("nanmean", dtype or self.dtype)
    found = self.isnan().logical_not().sum(dim, keepdim)
    return self.nansum(dim, keepdim, dtype=dtype) / found


def _prod_vjp(grad: Operand, self: Operand, dim: int | None, keepdim: bool) -> Operand:
    values = self.to(grad.dtype)  # for a prod with a dtype of its own
    if not self.shape:
        return grad
    if dim is None:
        others = _others(in_shape(values, (self.numel(),))).view(self.shape)
    else:
        others = _others(values.transpose(dim, -1)).transpose(dim, -1)
    return spread(grad, self.meta, dim, keepdim) * conj(others)


def _others(x: Operand) -> Operand:
    """For each element, the product of the others along the last dimension: of those before it, and
    of those behind it. `prod / x` is 0/0 at a zero."""
    behind = moved(x.flip((-1,)).cumprod(-1), -1, 1).flip((-1,))
    return moved(x.cumprod(-1), -1, 1) * behind


PROD = reduction("prod", DIM + DTYPE, result=summed, combiner=BY_PROD, vjp=_prod_vjp)


# -------------------------------------------------------------------------------- truth and counts
def _truth(name: str, own: DType) -> DType:
    """PyTorch keeps its old byte masks alive: uint8 in, uint8 out."""
    return own if own is dtypes.uint8 else dtypes.bool_


ANY = reduction(
    "any", result=_truth, combiner=BY_ANY, elements=TRUTHS, vjp=None, empty_is_all=False
)
ALL = reduction(
    "all", result=_truth, combiner=BY_ALL, elements=TRUTHS, vjp=None, empty_is_all=False
)
COUNT_NONZERO = reduction(
    "count_nonzero",
    "int[]? dim=None",
    result=lambda name, own: dtypes.int64,
    combiner=BY_SUM,
    elements=COUNTS,
    vjp=None,
)
