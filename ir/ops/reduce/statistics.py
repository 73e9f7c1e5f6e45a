"""Spread and size: var, std, and both with the mean; linalg_vector_norm, norm."""

from __future__ import annotations

import math
from typing import cast

from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError, DTypeError
from aotlite.ir.geometry.sizes import as_tuple, is_symbolic, maximum
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.composite import composite
from aotlite.ir.op.dims import reduced_over
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.composed import composed, count_of, dims_of, over
from aotlite.ir.ops.declare import real_of
from aotlite.ir.ops.kinds import require_inexact
from aotlite.ir.ops.linalg.forms import linalg_matrix_norm
from aotlite.ir.ops.precision import widened
from aotlite.ir.ops.reduce.dims import Dims, count, kept, reduced, reduced_dims, refuse_empty
from aotlite.ir.ops.reduction_rows import Function, reduction


def _degrees(count: int, correction: float | None) -> tuple[float, int]:
    """(whole, parts) of the quotient that divides the sum of squares; never negative, so that too
    few elements give nan. A correction of halves, or the like, gives a whole number of these, which
    may be symbolic."""
    if correction is None:
        correction = 1
    if isinstance(correction, int) or is_symbolic((correction,)):
        return maximum(count - cast("int", correction), 0), 1
    if type(correction) is float and math.isfinite(correction):
        whole, parts = correction.as_integer_ratio()
        if parts <= _MOST_PARTS:
            return maximum(count * parts - whole, 0), parts
    return max(count - correction, 0), 1


_MOST_PARTS = 16
"""The least fraction of a correction that is no number of its own: a size is one, then."""


def _var(
    self: Operand, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> Operand:
    return _variance_of(self, dim, correction, keepdim).to_kind(real_of(self.dtype))


def _std(
    self: Operand, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> Operand:
    return _variance_of(self, dim, correction, keepdim).sqrt().to_kind(real_of(self.dtype))


def _variance_of(self: Operand, dim: Dims, correction: float | None, keepdim: bool) -> Operand:
    """The variance of an operand, in the dtype in which it is formed."""
    dims, value = dims_of(self, dim), widened(self)
    size = count_of(self, dims)
    off = value - over(value.sum(dims, True), size)
    if off.is_complex():
        off = off.abs()
    degrees, parts = _degrees(size, correction)
    total = (off * off).sum(dims, keepdim)
    return over(total if parts == 1 else total * parts, degrees)


def _var_vjp(
    grad: Operand, self: Operand, dim: Dims, correction: float | None, keepdim: bool
) -> Operand:
    degrees, parts = _degrees(count(self.meta, dim), correction)
    grad = kept(grad, self.meta, dim, keepdim)
    # No degree of freedom gives nan. So does a division by 0 where one element is its own mean.
    is_one: object = correction is None or correction <= 1
    scaled = grad * (2 * parts) / degrees if is_one is True or degrees else grad * float("nan")
    return scaled * (self - self.mean(dim, True))


def _std_vjp(
    grad: Operand,
    self: Operand,
    result: Operand,
    dim: Dims,
    correction: float | None,
    keepdim: bool,
) -> Operand:
    """Zero where nothing is spread, as in PyTorch: the root has no derivative there."""
    of_variance = (grad / (result * 2)).masked_fill(result == 0, 0)
    return _var_vjp(of_variance, self, dim, correction, keepdim)


def _spread_op(name: str, as_: Function, vjp: Function) -> PureOp:
    return reduction(
        name,
        "int[]? dim=None, *, Scalar? correction=None, bool keepdim=False",
        result=lambda name, own: real_of(require_inexact(name, own)),
        as_=as_,
        vjp=vjp,
    )


VAR = _spread_op("var", _var, _var_vjp)
"""Mean squared distance from the mean, divided by n - correction (default 1)."""
STD = _spread_op("std", _std, _std_vjp)
"""The root of the variance."""


# ------------------------------------------------------------------------------ all forms
def _settled(
    name: str, dim: Dims, unbiased: bool | None, correction: float | None
) -> tuple[Dims, float | None]:
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
        self: Operand,
        dim: Dims = None,
        unbiased: bool | None = None,
        keepdim: bool = False,
        *,
        correction: float | None = None,
    ) -> Operand | tuple[Operand, Operand]:
        dim, correction = _settled(name, dim, unbiased, correction)
        spread = self._do(op, dim, correction=correction, keepdim=keepdim)
        return (spread, self._do("mean", dim, keepdim)) if with_mean else spread

    face.__doc__ = doc
    composite(name=name, is_method=not with_mean)(face)


_face("var", "The mean squared distance from the mean, divided by n - correction (default 1).")
_face("std", "The root of the variance, whose sum is divided by n - correction (default 1).")
_face("var", "(variance, mean).", with_mean=True)
_face("std", "(standard deviation, mean).", with_mean=True)

_NAME = "linalg_vector_norm"


# ---------------------------------------------------------------------------------- the rule
def _norm_rule(
    self: TensorMeta, ord: float, dim: Dims, keepdim: bool, dtype: DType | None
) -> TensorMeta:
    dims = reduced_dims(_NAME, dim, len(self.shape))
    computed = _computed_dtype(self.dtype, dtype)
    if ord < 0 or ord == math.inf:
        refuse_empty(_NAME, self, dims)
    return reduced(self, dims, keepdim, real_of(computed))


def _computed_dtype(own: DType, dtype: DType | None) -> DType:
    require_inexact(_NAME, own)
    if dtype is None:
        return own
    wider = dtypes.promote(own, dtype) is dtype and dtype.is_complex == own.is_complex
    if not wider:
        kind = "complex" if own.is_complex else "floating"
        raise DTypeError(
            f"{_NAME}: argument 'dtype' is {dtype}, expected a {kind} one that holds {own}"
        )
    return dtype


# ------------------------------------------------------------------------------ the gradient
def _norm_vjp(
    grad: Operand,
    self: Operand,
    result: Operand,
    ord: float,
    dim: Dims,
    keepdim: bool,
    dtype: DType | None,
) -> Operand:
    if dtype is not None:
        self = self.to(dtype)
    norm = kept(result, self.meta, dim, keepdim)
    grad = kept(grad, self.meta, dim, keepdim)
    if ord == 0:
        return (grad * 0).expand(self.shape)
    if ord == 1:
        return _direction(self) * grad
    if math.isinf(ord):
        return _direction(self) * _shares(self, norm, dim) * grad
    some = norm.masked_fill(norm == 0, 1)  # where the norm is 0, so is each element
    if ord == 2:
        return self * (grad / some)
    if ord < 1:
        scale = (grad * some.pow(1 - ord)).masked_fill(norm == 0, 0)
        return self * _abs_or_one(self).pow(ord - 2) * scale
    scale = (grad / some.pow(ord - 1)).masked_fill(norm == 0, 0)
    if ord < 2:
        return _direction(self) * self.abs().pow(ord - 1) * scale
    return self * self.abs().pow(ord - 2) * scale


def _abs_or_one(self: Operand) -> Operand:
    return self.abs().masked_fill(self == 0, 1)


def _direction(self: Operand) -> Operand:
    """The sign, or the complex number of size 1 in the same direction; 0 of 0."""
    return self / _abs_or_one(self) if self.is_complex() else self.sign()


def _shares(self: Operand, norm: Operand, dim: Dims) -> Operand:
    """Elements that tie share the gradient equally; nans equal a nan."""
    size = self.abs()
    hits = (size == norm).logical_or(size.isnan().logical_and(norm.isnan()))
    return hits.to(norm.dtype) / hits.sum(dim, True)


def _norm(
    self: Operand,
    ord: float = 2.0,
    dim: Dims = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
) -> Operand:
    value = widened(self if dtype is None else self.to(dtype)).abs()
    final, dims = real_of(dtype or self.dtype), dims_of(self, dim)
    if math.isinf(ord):
        extreme = value.amax if ord > 0 else value.amin
        return (extreme(dims, keepdim) if dims else value).to(final)
    whole = _powers_of(value, ord).sum(dims, keepdim)
    if ord == 2:
        whole = whole.sqrt()
    elif ord not in (0, 1):
        whole = whole.pow(1 / ord)
    return whole.to(final)


def _powers_of(size: Operand, ord: float) -> Operand:
    if ord == 0:
        return (size != 0).to(size.dtype)
    if ord == 1:
        return size
    return size * size if ord == 2 else size.pow(ord)


VECTOR_NORM: PureOp = composed(
    "linalg_vector_norm(Tensor self, float ord=2.0, int[]? dim=None, bool keepdim=False, *,"
    " dtype? dtype=None) -> Tensor",
    meta=_norm_rule,
    vjp={"self": _norm_vjp},
    cost=Cost.REDUCTION,
    dims=reduced_over(None),
    as_=_norm,
)
"""(sum |x|**ord) ** (1 / ord); for ord = inf the greatest |x|, for -inf the least, for 0 how many
are not 0."""


# ---------------------------------------------------------------------------------- the face
@composite()
def norm(
    self: Operand,
    p: float | str = "fro",
    dim: Dims = None,
    keepdim: bool = False,
    dtype: DType | None = None,
) -> Operand:
    """The p-norm over all or some dimensions; "fro" is 2, and "nuc" sums the singular values."""
    if p == "nuc":
        pair = range(self.ndim) if dim is None else dim
        return linalg_matrix_norm(self, "nuc", as_tuple(pair), keepdim, dtype=dtype)
    if isinstance(p, str) and p != "fro":
        raise ArgumentError(f"norm: argument 'p' is {p!r}, expected a number, 'fro' or 'nuc'")
    return self._do(_NAME, 2 if p in (None, "fro") else p, dim, keepdim, dtype=dtype)
