"""Scans along a dimension: cumsum."""

from __future__ import annotations

from typing import Any

from aotlite.ir import sizes
from aotlite.ir.dtypes import DType
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.ops.declare import pure
from aotlite.ir.ops.precision import cast, wide
from aotlite.ir.ops.reduce import summed


def _cumsum_rule(self: TensorMeta, dim: int, dtype: DType | None) -> TensorMeta:
    sizes.wrap_dim(dim, len(self.shape), op="cumsum")
    return tensor_meta(self.shape, None, dtype or summed(self.dtype), self.device)


def _cumsum_kernel(xp: Any, meta: TensorMeta, a: Any, dim: int, dtype: Any) -> Any:
    a = wide(xp, a, meta.dtype)
    return cast(xp, xp.cumsum(a, axis=dim) if a.shape else a, meta.dtype)


CUMSUM: PureOp = pure(
    "cumsum(Tensor self, int dim, *, dtype? dtype=None) -> Tensor",
    meta=_cumsum_rule,
    kernel=_cumsum_kernel,
    vjp={"self": lambda grad, dim: grad.flip((dim,)).cumsum(dim).flip((dim,))},
    cost=Cost.REDUCTION,
    additive=True,
)
