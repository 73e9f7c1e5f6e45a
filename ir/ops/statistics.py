"""Variances: var, std."""

from __future__ import annotations

from typing import Any

from aotlite.ir import dtypes, sizes
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.ops.declare import pure, real_of
from aotlite.ir.ops.precision import cast, wide
from aotlite.ir.ops.reduce import Dims, count, kept, reduced, reduced_dims, require_float


def _var_rule(self: TensorMeta, dim: Dims, correction: type | None, keepdim: bool) -> TensorMeta:
    dims = reduced_dims("var", dim, len(self.shape))
    return reduced(self, dims, keepdim, real_of(require_float("var", self.dtype)))


def _degrees(count: int, correction: Any) -> Any:
    """What the sum of squares is divided by; never negative, so that too few elements give nan."""
    return max(count - (1 if correction is None else correction), 0)


def _var_kernel(
    xp: Any, meta: TensorMeta, a: Any, dim: Dims, correction: Any, keepdim: bool
) -> Any:
    axes = reduced_dims("var", dim, len(a.shape))
    a = wide(xp, a, dtypes.from_numpy(a.dtype))
    size = sizes.numel([a.shape[i] for i in axes])
    center = xp.divide(xp.sum(a, axis=axes, keepdims=True), xp.full((), size, dtype=a.dtype))
    off = xp.abs(a - center)
    total = xp.sum(off * off, axis=axes, keepdims=keepdim)
    divisor = xp.full((), _degrees(size, correction), dtype=total.dtype)
    return cast(xp, xp.divide(total, divisor), meta.dtype)


def _var_vjp(grad: Any, self: Any, dim: Dims, correction: Any, keepdim: bool) -> Any:
    degrees = _degrees(count(self.meta, dim), correction)
    scale = 2 / degrees if degrees else float("nan")
    return kept(grad, self.meta, dim, keepdim) * scale * (self - self.mean(dim, True))


VAR: PureOp = pure(
    "var(Tensor self, int[]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor",
    meta=_var_rule,
    kernel=_var_kernel,
    vjp={"self": _var_vjp},
    cost=Cost.REDUCTION,
)
"""Mean squared distance from the mean, divided by n - correction (default 1)."""
