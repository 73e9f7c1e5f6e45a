"""Reductions and scans: sum .. argmax, any, all, var, cumsum, logsumexp, softmax.

`dim=None` means all dimensions, and so does an empty list where PyTorch says so. Results are
contiguous. What the gradients save follows PyTorch's table, except that `prod` saves its operand
alone: its gradient never divides by the result, so that it is right with zeros and at every order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotlite.ir import dtypes, sizes
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import DTypeError, IndexOutOfRangeError
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import OPS, Cost, PureOp
from aotlite.ir.ops.declare import Formulas, pure, real_of, to_float
from aotlite.ir.ops.pointwise import conj
from aotlite.ir.ops.precision import cast, wide

Dims = tuple[int, ...] | int | None


# --------------------------------------------------------------------------------- dimensions
def reduced_dims(name: str, dim: Dims, ndim: int, *, empty_is_all: bool = True) -> tuple[int, ...]:
    """The dimensions that are reduced, ascending. A 0-d tensor takes dim 0 and -1 and has none."""
    if dim is None or (dim == () and empty_is_all):
        return tuple(range(ndim))
    given = (dim,) if isinstance(dim, int) else dim
    wrapped = sizes.wrap_dims(given, ndim, op=name)
    return tuple(sorted(wrapped)) if ndim else ()


def _reduced(self: TensorMeta, dims: tuple[int, ...], keepdim: bool, dtype: DType) -> TensorMeta:
    shape = _with_ones(self.shape, dims) if keepdim else _without(self.shape, dims)
    return tensor_meta(shape, None, dtype, self.device)


def _with_ones(shape: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([1 if i in dims else n for i, n in enumerate(shape)])


def _without(shape: tuple[int, ...], dims: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([n for i, n in enumerate(shape) if i not in dims])


def _kept(value: Any, self_meta: TensorMeta, dim: Dims, keepdim: bool) -> Any:
    """A reduction's result, or its gradient, with the reduced dimensions there with size 1."""
    dims = reduced_dims("reduction", dim, len(self_meta.shape))
    return value if keepdim or not dims else value.view(_with_ones(self_meta.shape, dims))


def _spread(grad: Any, self_meta: TensorMeta, dim: Dims, keepdim: bool) -> Any:
    """A reduction's gradient expanded to the operand's shape."""
    return _kept(grad, self_meta, dim, keepdim).expand(self_meta.shape)


def _count(self_meta: TensorMeta, dim: Dims) -> int:
    """Elements that each result is made of."""
    dims = reduced_dims("reduction", dim, len(self_meta.shape))
    return sizes.numel([self_meta.shape[i] for i in dims])


def _refuse_empty(name: str, self: TensorMeta, dims: tuple[int, ...]) -> None:
    """For reductions without a neutral element."""
    for i in dims:
        if sizes.known_equal(self.shape[i], 0):
            raise IndexOutOfRangeError(
                f"{name}: dimension {i} of shape {self.shape} has size 0, expected at least 1"
            )


# --------------------------------------------------------------------------------- dtypes
def _summed(dtype: DType) -> DType:
    """Sums and products of bool and integers are int64."""
    return dtype if dtype.is_differentiable else dtypes.int64


def _require_float(name: str, dtype: DType) -> DType:
    if not dtype.is_differentiable:
        raise DTypeError(f"{name}: dtype is {dtype}, expected a floating or complex one")
    return dtype


def _require_real(name: str, dtype: DType) -> DType:
    if dtype.is_complex:
        raise DTypeError(f"{name}: dtype is {dtype}, expected a real one: complex has no order")
    return dtype


# ------------------------------------------------------------------------------ sums and products
def _sum_rule(self: TensorMeta, dim: Dims, keepdim: bool, dtype: DType | None) -> TensorMeta:
    dims = reduced_dims("sum", dim, len(self.shape))
    return _reduced(self, dims, keepdim, dtype or _summed(self.dtype))


def _sum_kernel(xp: Any, meta: TensorMeta, a: Any, dim: Dims, keepdim: bool, dtype: Any) -> Any:
    axes = reduced_dims("sum", dim, len(a.shape))
    return cast(xp, xp.sum(wide(xp, a, meta.dtype), axis=axes, keepdims=keepdim), meta.dtype)


SUM: PureOp = pure(
    "sum(Tensor self, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
    meta=_sum_rule,
    kernel=_sum_kernel,
    vjp={"self": lambda grad, self_meta, dim, keepdim: _spread(grad, self_meta, dim, keepdim)},
    cost=Cost.REDUCTION,
    additive=True,
)


def _mean_rule(self: TensorMeta, dim: Dims, keepdim: bool, dtype: DType | None) -> TensorMeta:
    dims = reduced_dims("mean", dim, len(self.shape))
    return _reduced(self, dims, keepdim, _require_float("mean", dtype or self.dtype))


def _mean_kernel(xp: Any, meta: TensorMeta, a: Any, dim: Dims, keepdim: bool, dtype: Any) -> Any:
    axes = reduced_dims("mean", dim, len(a.shape))
    total = xp.sum(wide(xp, a, meta.dtype), axis=axes, keepdims=keepdim)
    # An array, not the bare number: an empty mean is nan, and a Python 0 would raise.
    count = xp.full((), sizes.numel([a.shape[i] for i in axes]), dtype=total.dtype)
    return cast(xp, xp.divide(total, count), meta.dtype)


def _mean_vjp(grad: Any, self_meta: TensorMeta, dim: Dims, keepdim: bool) -> Any:
    return _spread(grad, self_meta, dim, keepdim) / _count(self_meta, dim)


MEAN: PureOp = pure(
    "mean(Tensor self, int[]? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
    meta=_mean_rule,
    kernel=_mean_kernel,
    vjp={"self": _mean_vjp},
    cost=Cost.REDUCTION,
    additive=True,
)


def _prod_rule(self: TensorMeta, dim: int | None, keepdim: bool, dtype: DType | None) -> TensorMeta:
    dims = reduced_dims("prod", dim, len(self.shape))
    return _reduced(self, dims, keepdim, dtype or _summed(self.dtype))


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
    return _spread(grad, self.meta, dim, keepdim) * conj(others)


def _others(x: Any) -> Any:
    """For each element, the product of the others along the last dimension.

    Neighbours are multiplied in pairs, the products of the other pairs found by recursion, and each
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


PROD: PureOp = pure(
    "prod(Tensor self, int? dim=None, bool keepdim=False, *, dtype? dtype=None) -> Tensor",
    meta=_prod_rule,
    kernel=_prod_kernel,
    vjp={"self": _prod_vjp},
    cost=Cost.REDUCTION,
)


# ------------------------------------------------------------------------------------- extremes
def _extreme_vjp(grad: Any, self: Any, result: Any, dim: Dims, keepdim: bool) -> Any:
    """Elements that tie share the gradient equally."""
    hits = self == _kept(result, self.meta, dim, keepdim)
    return _kept(grad, self.meta, dim, keepdim) * hits / hits.sum(dim, True)


def _extreme(name: str, function: str) -> PureOp:
    def rule(self: TensorMeta, dim: Dims, keepdim: bool) -> TensorMeta:
        dims = reduced_dims(name, dim, len(self.shape))
        _refuse_empty(name, self, dims)
        return _reduced(self, dims, keepdim, _require_real(name, self.dtype))

    def kernel(xp: Any, meta: TensorMeta, a: Any, dim: Dims, keepdim: bool) -> Any:
        axes = reduced_dims(name, dim, len(a.shape))
        a = wide(xp, a, meta.dtype)
        return cast(xp, getattr(xp, function)(a, axis=axes, keepdims=keepdim), meta.dtype)

    return pure(
        f"{name}(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor",
        meta=rule,
        kernel=kernel,
        vjp={"self": _extreme_vjp},
        cost=Cost.REDUCTION,
    )


AMAX = _extreme("amax", "max")
AMIN = _extreme("amin", "min")


def _position(xp: Any, function: str, a: Any, dim: int | None, keepdim: bool) -> Any:
    """Where the first extreme, or the first nan, lies; `dim=None` counts in row-major order."""
    a = wide(xp, a, dtypes.from_numpy(a.dtype))
    if dim is None or not a.shape:
        index = getattr(xp, function)(xp.reshape(a, (-1,)), axis=0)
        return xp.reshape(index, (1,) * len(a.shape) if keepdim else ())
    return getattr(xp, function)(a, axis=dim, keepdims=keepdim)


def _position_op(name: str) -> PureOp:
    def rule(self: TensorMeta, dim: int | None, keepdim: bool) -> TensorMeta:
        dims = reduced_dims(name, dim, len(self.shape))
        _refuse_empty(name, self, dims)
        _require_real(name, self.dtype)
        return _reduced(self, dims, keepdim, dtypes.int64)

    return pure(
        f"{name}(Tensor self, int? dim=None, bool keepdim=False) -> Tensor",
        meta=rule,
        kernel=lambda xp, meta, a, dim, keepdim: _position(xp, name, a, dim, keepdim),
        vjp=None,
        cost=Cost.REDUCTION,
    )


ARGMAX = _position_op("argmax")
ARGMIN = _position_op("argmin")


def _chosen_vjp(
    grad_values: Any, indices: Any, self_meta: TensorMeta, dim: int, keepdim: bool
) -> Any:
    zeros = grad_values.new_zeros(self_meta.shape)
    if not keepdim and self_meta.shape:
        grad_values, indices = grad_values.unsqueeze(dim), indices.unsqueeze(dim)
    return zeros.scatter_add(dim, indices, grad_values)


def _extreme_with_index(name: str, function: str) -> PureOp:
    def rule(self: TensorMeta, dim: int, keepdim: bool) -> tuple[TensorMeta, TensorMeta]:
        dims = reduced_dims(name, dim, len(self.shape))
        _refuse_empty(name, self, dims)
        values = _reduced(self, dims, keepdim, _require_real(name, self.dtype))
        return values, values.with_dtype(dtypes.int64)

    def kernel(xp: Any, metas: Any, a: Any, dim: int, keepdim: bool) -> tuple[Any, Any]:
        if not a.shape:
            return a, xp.zeros((), dtype=xp.int64)
        index = _position(xp, function, a, dim, True)
        values = xp.take_along_axis(a, index, axis=dim)
        return xp.reshape(values, metas[0].shape), xp.reshape(index, metas[1].shape)

    return pure(
        f"{name}(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
        meta=rule,
        kernel=kernel,
        vjp={"self": _chosen_vjp},
        cost=Cost.REDUCTION,
    )


MAX_DIM = _extreme_with_index("max_dim", "argmax")
"""`x.max(dim)`: the first of equal maxima takes the whole gradient."""
MIN_DIM = _extreme_with_index("min_dim", "argmin")


# ---------------------------------------------------------------------------------------- truth
def _truth(name: str) -> PureOp:
    def rule(self: TensorMeta, dim: Dims, keepdim: bool) -> TensorMeta:
        dims = reduced_dims(name, dim, len(self.shape), empty_is_all=False)
        # PyTorch keeps its old byte masks alive: uint8 in, uint8 out.
        dtype = self.dtype if self.dtype is dtypes.uint8 else dtypes.bool_
        return _reduced(self, dims, keepdim, dtype)

    def kernel(xp: Any, meta: TensorMeta, a: Any, dim: Dims, keepdim: bool) -> Any:
        axes = reduced_dims(name, dim, len(a.shape), empty_is_all=False)
        truth = getattr(xp, name)(cast(xp, a, dtypes.bool_), axis=axes, keepdims=keepdim)
        return cast(xp, truth, meta.dtype)

    return pure(
        f"{name}(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor",
        meta=rule,
        kernel=kernel,
        vjp=None,
        cost=Cost.REDUCTION,
    )


ANY = _truth("any")
ALL = _truth("all")


# ------------------------------------------------------------------------------------- variance
def _var_rule(self: TensorMeta, dim: Dims, correction: type | None, keepdim: bool) -> TensorMeta:
    dims = reduced_dims("var", dim, len(self.shape))
    return _reduced(self, dims, keepdim, real_of(_require_float("var", self.dtype)))


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
    degrees = _degrees(_count(self.meta, dim), correction)
    scale = 2 / degrees if degrees else float("nan")
    return _kept(grad, self.meta, dim, keepdim) * scale * (self - self.mean(dim, True))


VAR: PureOp = pure(
    "var(Tensor self, int[]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> Tensor",
    meta=_var_rule,
    kernel=_var_kernel,
    vjp={"self": _var_vjp},
    cost=Cost.REDUCTION,
)
"""Mean squared distance from the mean, divided by n - correction (default 1)."""


# ----------------------------------------------------------------------------------------- scans
def _cumsum_rule(self: TensorMeta, dim: int, dtype: DType | None) -> TensorMeta:
    sizes.wrap_dim(dim, len(self.shape), op="cumsum")
    return tensor_meta(self.shape, None, dtype or _summed(self.dtype), self.device)


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


# ---------------------------------------------------------------------------- exponential sums
def _peak(xp: Any, a: Any, axes: tuple[int, ...]) -> Any:
    """The maximum, which is taken out before exponentials; 0 for an infinite one: no inf - inf."""
    peak = xp.max(a, axis=axes, keepdims=True)
    return xp.where(xp.isinf(peak), xp.zeros_like(peak), peak)


def _logsumexp_rule(self: TensorMeta, dim: Dims, keepdim: bool) -> TensorMeta:
    dims = reduced_dims("logsumexp", dim, len(self.shape))
    return _reduced(self, dims, keepdim, to_float(self.dtype))


def _logsumexp_kernel(xp: Any, meta: TensorMeta, a: Any, dim: Dims, keepdim: bool) -> Any:
    axes = reduced_dims("logsumexp", dim, len(a.shape))
    a = wide(xp, a, meta.dtype)
    if 0 in a.shape:
        total = xp.log(xp.sum(xp.exp(a), axis=axes, keepdims=True))
    else:
        peak = _peak(xp, a, axes)
        total = xp.log(xp.sum(xp.exp(a - peak), axis=axes, keepdims=True)) + peak
    return cast(xp, xp.reshape(total, meta.shape), meta.dtype)


def _logsumexp_vjp(grad: Any, self: Any, result: Any, dim: Dims, keepdim: bool) -> Any:
    total = _kept(result, self.meta, dim, keepdim)
    return _kept(grad, self.meta, dim, keepdim) * (self - total).exp()


LOGSUMEXP: PureOp = pure(
    "logsumexp(Tensor self, int[] dim, bool keepdim=False) -> Tensor",
    meta=_logsumexp_rule,
    kernel=_logsumexp_kernel,
    vjp={"self": _logsumexp_vjp},
    cost=Cost.REDUCTION,
)


def _softmax_op(name: str, compute: Callable[..., Any], vjp: Formulas) -> PureOp:
    def rule(self: TensorMeta, dim: int, dtype: DType | None) -> TensorMeta:
        sizes.wrap_dim(dim, len(self.shape), op=name)
        dtype = dtype or self.dtype
        if not dtype.is_floating_point:
            raise DTypeError(f"{name}: dtype is {dtype}, expected a floating one")
        return tensor_meta(self.shape, None, dtype, self.device)

    def kernel(xp: Any, meta: TensorMeta, a: Any, dim: int, dtype: Any) -> Any:
        a = wide(xp, a, meta.dtype)
        if 0 in a.shape:
            return cast(xp, a, meta.dtype)
        axes = (dim,) if a.shape else ()
        shifted = a - xp.max(a, axis=axes, keepdims=True)
        return cast(xp, compute(xp, shifted, axes), meta.dtype)

    return pure(
        f"{name}(Tensor self, int dim, *, dtype? dtype=None) -> Tensor",
        meta=rule,
        kernel=kernel,
        vjp=vjp,
        cost=Cost.REDUCTION,
    )


def _softmax(xp: Any, shifted: Any, axes: Sequence[int]) -> Any:
    raised = xp.exp(shifted)
    return raised / xp.sum(raised, axis=axes, keepdims=True)


def _log_softmax(xp: Any, shifted: Any, axes: Sequence[int]) -> Any:
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=axes, keepdims=True))


def _softmax_vjp(grad: Any, result: Any, dim: int) -> Any:
    weighted = grad * result
    return weighted - result * weighted.sum(dim, True)


def _log_softmax_vjp(grad: Any, result: Any, dim: int) -> Any:
    return grad - result.exp() * grad.sum(dim, True)


SOFTMAX = _softmax_op("softmax", _softmax, {"self": _softmax_vjp})
LOG_SOFTMAX = _softmax_op("log_softmax", _log_softmax, {"self": _log_softmax_vjp})
