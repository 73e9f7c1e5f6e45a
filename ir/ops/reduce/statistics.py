"""Spread: var, std, and both with the mean."""

from __future__ import annotations

from typing import Any

from aotlite.ir.errors import ArgumentError
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.composite import composite
from aotlite.ir.op.dims import reduced_over
from aotlite.ir.ops.composed import composed
from aotlite.ir.ops.declare import real_of
from aotlite.ir.ops.expansions import count_of, dims_of, over, total
from aotlite.ir.ops.kinds import require_inexact
from aotlite.ir.ops.precision import widened
from aotlite.ir.ops.reduce.dims import Dims, count, kept, reduced, reduced_dims


def _degrees(count: Any, correction: Any) -> Any:
    """What the sum of squares is divided by; never negative, so that too few elements give nan."""
    return max(count - (1 if correction is None else correction), 0)


def _var(self: Any, dim: Dims = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    return _variance_of(self, dim, correction, keepdim).to_kind(real_of(self.dtype))


def _std(self: Any, dim: Dims = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    return _variance_of(self, dim, correction, keepdim).sqrt().to_kind(real_of(self.dtype))


def _variance_of(self: Any, dim: Dims, correction: Any, keepdim: bool) -> Any:
    """The variance of an operand, in the dtype in which it is formed."""
    dims, value = dims_of(self, dim), widened(self)
    size = count_of(self, dims)
    off = value - over(total(value, dims), size)
    if off.is_complex():
        off = off.abs()
    return over(total(off * off, dims, keepdim=keepdim), _degrees(size, correction))


def _var_vjp(grad: Any, self: Any, dim: Dims, correction: Any, keepdim: bool) -> Any:
    degrees = _degrees(count(self.meta, dim), correction)
    scale = 2 / degrees if degrees else float("nan")
    return kept(grad, self.meta, dim, keepdim) * scale * (self - self.mean(dim, True))


def _std_vjp(grad: Any, self: Any, result: Any, dim: Dims, correction: Any, keepdim: bool) -> Any:
    """Zero where nothing is spread, as in PyTorch: the root has no derivative there."""
    of_variance = (grad / (result * 2)).masked_fill(result == 0, 0)
    return _var_vjp(of_variance, self, dim, correction, keepdim)


def _spread_op(name: str, as_: Any, vjp: Any) -> PureOp:
    def rule(self: TensorMeta, dim: Dims, correction: type | None, keepdim: bool) -> TensorMeta:
        dims = reduced_dims(name, dim, len(self.shape))
        return reduced(self, dims, keepdim, real_of(require_inexact(name, self.dtype)))

    return composed(
        f"{name}(Tensor self, int[]? dim=None, *, Scalar? correction=None, bool keepdim=False)"
        " -> Tensor",
        meta=rule,
        vjp={"self": vjp},
        cost=Cost.REDUCTION,
        dims=reduced_over(None),
        as_=as_,
    )


VAR = _spread_op("var", _var, _var_vjp)
"""Mean squared distance from the mean, divided by n - correction (default 1)."""
STD = _spread_op("std", _std, _std_vjp)
"""The root of the variance."""


# ------------------------------------------------------------------------------ all forms
def _settled(name: str, dim: Any, unbiased: Any, correction: Any) -> tuple[Any, Any]:
    """(dim, correction) of `f(unbiased)`, `f(dim, unbiased)` and `f(dim, correction=...)`."""
    if isinstance(dim, bool):
        if unbiased is not None:
            raise ArgumentError(f"{name}: argument 'dim' is {dim}, expected int[]?")
        dim, unbiased = None, dim
    if unbiased is None:
        return dim, correction
    if not isinstance(unbiased, bool) or correction is not None:
        got = f"{unbiased!r}" if correction is None else f"{unbiased!r} beside 'correction'"
        raise ArgumentError(f"{name}: argument 'unbiased' is {got}, expected a bool alone")
    return dim, int(unbiased)


def _face(op: str, doc: str, *, with_mean: bool = False) -> None:
    """Declares what users meet, which takes all forms; with the mean it gives a pair."""
    name = f"{op}_mean" if with_mean else op

    def face(
        self: Any,
        dim: Any = None,
        unbiased: Any = None,
        keepdim: Any = False,
        *,
        correction: Any = None,
    ) -> Any:
        dim, correction = _settled(name, dim, unbiased, correction)
        spread = self._do(op, dim, correction=correction, keepdim=keepdim)
        return (spread, self._do("mean", dim, keepdim)) if with_mean else spread

    face.__doc__ = doc
    composite(name=name, is_method=not with_mean)(face)


_face("var", "The mean squared distance from the mean, divided by n - correction (default 1).")
_face("std", "The root of the variance, whose sum is divided by n - correction (default 1).")
_face("var", "(variance, mean).", with_mean=True)
_face("std", "(standard deviation, mean).", with_mean=True)
