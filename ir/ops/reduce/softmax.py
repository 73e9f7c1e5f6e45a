"""Sums of exponentials: logsumexp, softmax, log_softmax."""

from __future__ import annotations

import math
from collections.abc import Callable

from aotlite.ir.dtypes import DType
from aotlite.ir.geometry import sizes
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.dims import along
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.composed import composed, dims_of, floating
from aotlite.ir.ops.declare import to_float
from aotlite.ir.ops.elementwise.pointwise import conj
from aotlite.ir.ops.kinds import require_floating
from aotlite.ir.ops.precision import widened
from aotlite.ir.ops.reduce.dims import Dims, kept
from aotlite.ir.ops.reduction_rows import reduction


def _no_exponential(dtype: DType) -> float:
    return -math.inf


def _logsumexp_vjp(
    grad: Operand, self: Operand, result: Operand, dim: Dims, keepdim: bool
) -> Operand:
    total = kept(result, self.meta, dim, keepdim)
    return kept(grad, self.meta, dim, keepdim) * conj((self - total).exp())


def _logsumexp(self: Operand, dim: Dims, keepdim: bool = False) -> Operand:
    dims, final = dims_of(self, dim), floating(self)
    value = widened(self, final)
    if 0 in [self.shape[d] for d in dims]:
        return value.exp().sum(dims, keepdim).log().to(final)
    if self.is_complex():  # a shift by real numbers leaves the imaginary part in -pi to pi
        peak = value.real.amax(dims, True)
        peak = (peak.abs() == math.inf).where(0, peak)
        logs = (value - peak).exp().sum(dims, keepdim).log()
        return logs + peak.view(logs.shape)
    peak = value.amax(dims, True)
    # What is raised is never positive, which backends see; an infinite maximum is the result.
    logs = (value - peak).exp().sum(dims, keepdim).log()
    peak = peak.view(logs.shape)
    return (peak.abs() == math.inf).where(peak, logs + peak).to(final)


LOGSUMEXP = reduction(
    "logsumexp",
    "int[] dim, bool keepdim=False",
    result=lambda name, own: to_float(own),
    as_=_logsumexp,
    vjp=_logsumexp_vjp,
    neutral=_no_exponential,
)


def _softmax_op(name: str, vjp: Callable[..., object], as_: Callable[..., object]) -> PureOp:
    def rule(self: TensorMeta, dim: int, dtype: DType | None) -> TensorMeta:
        sizes.wrap_dim(dim, len(self.shape), op=name)
        dtype = require_floating(name, dtype or self.dtype)
        return tensor_meta(self.shape, None, dtype, self.device)

    return composed(
        f"{name}(Tensor self, int dim, dtype? dtype=None) -> Tensor",
        meta=rule,
        vjp={"self": vjp},
        cost=Cost.REDUCTION,
        dims=along("dim"),
        as_=as_,
        neutral=_no_exponential,
    )


def _softmax_vjp(grad: Operand, result: Operand, dim: int) -> Operand:
    weighted = grad * result
    return weighted - result * weighted.sum(dim, True)


def _log_softmax_vjp(grad: Operand, result: Operand, dim: int) -> Operand:
    return grad - result.exp() * grad.sum(dim, True)


def _shifted(x: Operand, dim: int, dtype: DType) -> Operand:
    """The operand less its maximum, so that no exponential overflows."""
    value = widened(x, dtype)
    return value - value.amax((dim,), True) if x.ndim else value - value


def _softmax(self: Operand, dim: int, dtype: DType | None = None) -> Operand:
    final = dtype or self.dtype
    if self.ndim and self.shape[dim] == 0:
        return self.to(final)
    raised = _shifted(self, dim, final).exp()
    return (raised / raised.sum((dim,) if self.ndim else None, True)).to(final)


def _log_softmax(self: Operand, dim: int, dtype: DType | None = None) -> Operand:
    final = dtype or self.dtype
    if self.ndim and self.shape[dim] == 0:
        return self.to(final)
    shifted = _shifted(self, dim, final)
    logs = shifted.exp().sum((dim,) if self.ndim else None, True).log()
    return (shifted - logs).to(final)


SOFTMAX = _softmax_op("softmax", _softmax_vjp, _softmax)
LOG_SOFTMAX = _softmax_op("log_softmax", _log_softmax_vjp, _log_softmax)
