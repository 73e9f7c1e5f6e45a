"""Sums, products, averages, counts and truth: sum, mean, nansum, prod, count_nonzero, any, all.

What the gradients save follows PyTorch's table, except that `prod` saves its operand alone: its
gradient never divides by the result, so that it is right with zeros and at every order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.geometry import sizes
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS, Cost, PureOp
from aotlite.ir.op.composite import composite
from aotlite.ir.op.dims import reduced_over
from aotlite.ir.ops.composed import count_of, dims_of, over, total
from aotlite.ir.ops.declare import pure
from aotlite.ir.ops.elementwise.pointwise import conj
from aotlite.ir.ops.kinds import require_inexact, require_real
from aotlite.ir.ops.precision import accumulator, cast, wide, widened
from aotlite.ir.ops.reduce.blocked_sums import sum_over
from aotlite.ir.ops.reduce.dims import (
    Dims,
    count,
    namespaced,
    reduced,
    reduced_dims,
    spread,
    summed,
    summing,
    total_loops,
)


# ------------------------------------------------------------------------------ sums and products
def _sum_rule(self: TensorMeta, dim: Dims, keepdim: bool, dtype: DType | None) -> TensorMeta:
    dims = reduced_dims("sum", dim, len(self.shape))
    return reduced(self, dims, keepdim, dtype or summed(self.dtype))


def _sum_kernel(xp: Any, meta: TensorMeta, a: Any, dim: Dims, keepdim: bool, dtype: Any) -> Any:
    axes = reduced_dims("sum", dim, len(a.shape))
    return cast(xp, sum_over(xp, wide(xp, a, meta.dtype), axes, keepdims=keepdim), meta.dtype)


def _sum_loops(k: Any, meta: TensorMeta, a: Any, dim: Dims, *_: Any) -> Any:
    return _total(k, meta, a, dim, "sum")


def _total(k: Any, meta: TensorMeta, a: Any, dim: Dims, kind: str) -> Any:
    """A reduction in the dtype in which the result is formed."""
    dims, formed = reduced_dims(kind, dim, a.ndim), accumulator(meta.dtype)
    return total_loops(k, meta, a, dims, kind, lambda x: k.cast(x, formed))


SUM: PureOp = pure(
    "sum(Tensor self, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
    meta=_sum_rule,
    kernel=_sum_kernel,
    vjp={"self": lambda grad, self_meta, dim, keepdim: spread(grad, self_meta, dim, keepdim)},
    cost=Cost.REDUCTION,
    dims=reduced_over("sum"),
    linear=(("self",),),
    additive=True,
    namespaced=summing("sum"),
    loops=_sum_loops,
)


def _mean_rule(self: TensorMeta, dim: Dims, keepdim: bool, dtype: DType | None) -> TensorMeta:
    dims = reduced_dims("mean", dim, len(self.shape))
    return reduced(self, dims, keepdim, require_inexact("mean", dtype or self.dtype))


def _mean_kernel(xp: Any, meta: TensorMeta, a: Any, dim: Dims, keepdim: bool, dtype: Any) -> Any:
    axes = reduced_dims("mean", dim, len(a.shape))
    whole = sum_over(xp, wide(xp, a, meta.dtype), axes, keepdims=keepdim)
    # A float, not an integer: an empty mean is nan, and of numbers a division by 0 would raise.
    size = float(sizes.numel([a.shape[i] for i in axes]))
    return cast(xp, xp.divide(whole, size), meta.dtype)


def _mean_namespaced(meta: TensorMeta, self: TensorMeta, *rest: Any) -> Any:
    """Not of nothing, which NumPy warns of in a way that cannot be turned off for one call."""
    return None if self.numel == 0 else summing("mean")(meta, self, *rest)


def _mean_vjp(grad: Any, self_meta: TensorMeta, dim: Dims, keepdim: bool) -> Any:
    return spread(grad, self_meta, dim, keepdim) / count(self_meta, dim)


def _mean_expanded(
    self: Any, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Any:
    dims, final = dims_of(self, dim), dtype or self.dtype
    whole = total(widened(self, final), dims, keepdim=keepdim)
    return over(whole, count_of(self, dims)).to(final)


MEAN: PureOp = pure(
    "mean(Tensor self, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
    meta=_mean_rule,
    kernel=_mean_kernel,
    namespaced=_mean_namespaced,
    vjp={"self": _mean_vjp},
    cost=Cost.REDUCTION,
    dims=reduced_over("avg"),
    linear=(("self",),),
    additive=True,
    expands=_mean_expanded,
)


def _nansum_rule(self: TensorMeta, dim: Dims, keepdim: bool, dtype: DType | None) -> TensorMeta:
    dims = reduced_dims("nansum", dim, len(self.shape))
    dtype = dtype or summed(self.dtype)
    require_real("nansum", self.dtype)
    return reduced(self, dims, keepdim, require_real("nansum", dtype))


def _nansum_kernel(xp: Any, meta: TensorMeta, a: Any, dim: Dims, keepdim: bool, dtype: Any) -> Any:
    axes = reduced_dims("nansum", dim, len(a.shape))
    zero = xp.zeros((), dtype=a.dtype)
    a = wide(xp, xp.where(xp.isnan(a), zero, a), meta.dtype)
    return cast(xp, sum_over(xp, a, axes, keepdims=keepdim), meta.dtype)


def _nansum_expanded(
    self: Any, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None
) -> Any:
    return self.isnan().where(0, self).sum(dim, keepdim, dtype=dtype)


NANSUM: PureOp = pure(
    "nansum(Tensor self, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
    meta=_nansum_rule,
    kernel=_nansum_kernel,
    vjp={
        "self": lambda grad, self, dim, keepdim: spread(grad, self.meta, dim, keepdim).masked_fill(
            self.isnan(), 0
        )
    },
    cost=Cost.REDUCTION,
    dims=reduced_over("sum"),
    expands=_nansum_expanded,
)
"""The sum of what is not nan."""


@composite(
    "nanmean(Tensor self, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor"
)
def nanmean(self: Any, dim: Dims, keepdim: bool, dtype: DType | None) -> Any:
    """The mean of what is not nan."""
    require_inexact("nanmean", self.dtype)
    require_inexact("nanmean", dtype or self.dtype)
    found = self.isnan().logical_not().sum(dim, keepdim)
    return self.nansum(dim, keepdim, dtype=dtype) / found


def _prod_rule(self: TensorMeta, dim: int | None, keepdim: bool, dtype: DType | None) -> TensorMeta:
    dims = reduced_dims("prod", dim, len(self.shape))
    return reduced(self, dims, keepdim, dtype or summed(self.dtype))


def _prod_kernel(
    xp: Any, meta: TensorMeta, a: Any, dim: int | None, keepdim: bool, dtype: Any
) -> Any:
    axes = reduced_dims("prod", dim, len(a.shape))
    return cast(xp, xp.prod(wide(xp, a, meta.dtype), axis=axes, keepdims=keepdim), meta.dtype)


def _prod_vjp(grad: Any, self: Any, dim: int | None, keepdim: bool) -> Any:
    values = self.to(grad.dtype)  # for a prod with a dtype of its own
    if not self.shape:
        return grad
    if dim is None:
        others = _others(values.reshape(self.numel())).view(self.shape)
    else:
        others = _others(values.transpose(dim, -1)).transpose(dim, -1)
    return spread(grad, self.meta, dim, keepdim) * conj(others)


def _others(x: Any) -> Any:
    """For each element, the product of the others along the last dimension.

    Neighbors are multiplied in pairs, the products of the other pairs found by recursion, and each
    element takes its partner in: about 3n products in log2(n) steps, no division. `prod / x` is 0/0
    at a zero; prefix products need a scan whose own gradient has the same difficulty.
    """
    half = x.shape[-1] // 2
    if half == 0:
        return x.new_ones(x.shape)
    left, right, odd = x.split((half, half, x.shape[-1] - 2 * half), -1)
    if not odd.shape[-1]:
        beside = _others(left * right)
        return _joined(beside * right, beside * left)
    beside, last = _others(_joined(left * right, odd)).split((half, 1), -1)
    return _joined(beside * right, beside * left, last)


def _joined(first: Any, *rest: Any) -> Any:
    """`cat` along the last dimension."""
    return first._apply(OPS["cat"], ((first, *rest), -1))


def _prod_loops(k: Any, meta: TensorMeta, a: Any, dim: Dims, *_: Any) -> Any:
    return _total(k, meta, a, dim, "prod")


PROD: PureOp = pure(
    "prod(Tensor self, int? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
    meta=_prod_rule,
    kernel=_prod_kernel,
    vjp={"self": _prod_vjp},
    cost=Cost.REDUCTION,
    dims=reduced_over("product"),
    namespaced=namespaced("prod"),
    loops=_prod_loops,
)


# ---------------------------------------------------------------------------------------- truth
def _truth_namespaced(name: str) -> Callable[..., tuple[str, dict[str, Any]] | None]:
    def found(
        meta: TensorMeta, self: TensorMeta, dim: Dims, keepdim: bool
    ) -> tuple[str, dict[str, Any]] | None:
        axes = reduced_dims(name, dim, len(self.shape), empty_is_all=False)
        plain = meta.dtype is dtypes.bool_ and self.dtype.numpy.kind != "V"
        return (name, {"axis": axes, "keepdims": keepdim}) if plain else None

    return found


def _truth(name: str) -> PureOp:
    def rule(self: TensorMeta, dim: Dims, keepdim: bool) -> TensorMeta:
        dims = reduced_dims(name, dim, len(self.shape), empty_is_all=False)
        # PyTorch keeps its old byte masks alive: uint8 in, uint8 out.
        dtype = self.dtype if self.dtype is dtypes.uint8 else dtypes.bool_
        return reduced(self, dims, keepdim, dtype)

    def kernel(xp: Any, meta: TensorMeta, a: Any, dim: Dims, keepdim: bool) -> Any:
        axes = reduced_dims(name, dim, len(a.shape), empty_is_all=False)
        truth = getattr(xp, name)(cast(xp, a, dtypes.bool_), axis=axes, keepdims=keepdim)
        return cast(xp, truth, meta.dtype)

    def loops(k: Any, meta: TensorMeta, a: Any, dim: Dims, keepdim: bool) -> Any:
        dims = reduced_dims(name, dim, a.ndim, empty_is_all=False)
        return total_loops(k, meta, a, dims, name, k.truth)

    return pure(
        f"{name}(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor",
        meta=rule,
        kernel=kernel,
        vjp=None,
        cost=Cost.REDUCTION,
        dims=reduced_over("max" if name == "any" else "min"),
        namespaced=_truth_namespaced(name),
        loops=loops,
    )


ANY = _truth("any")
ALL = _truth("all")


# --------------------------------------------------------------------------------------- counts
def _count_rule(self: TensorMeta, dim: Dims) -> TensorMeta:
    dims = reduced_dims("count_nonzero", dim, len(self.shape))
    return reduced(self, dims, False, dtypes.int64)


def _count_kernel(xp: Any, meta: TensorMeta, a: Any, dim: Dims) -> Any:
    axes = reduced_dims("count_nonzero", dim, len(a.shape))
    return xp.sum(cast(xp, cast(xp, a, dtypes.bool_), dtypes.int64), axis=axes)


def _count_loops(k: Any, meta: TensorMeta, a: Any, dim: Dims) -> Any:
    dims = reduced_dims("count_nonzero", dim, a.ndim)
    return total_loops(k, meta, a, dims, "sum", lambda x: k.cast(k.truth(x), meta.dtype))


COUNT_NONZERO: PureOp = pure(
    "count_nonzero(Tensor self, int[]? dim=None) -> Tensor",
    meta=_count_rule,
    kernel=_count_kernel,
    vjp=None,
    cost=Cost.REDUCTION,
    dims=reduced_over("sum"),
    loops=_count_loops,
)
