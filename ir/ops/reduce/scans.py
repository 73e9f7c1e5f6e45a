"""Scans along a dimension: cumsum, cumprod, cummax, cummin, logcumsumexp.

Where an array library has no function for a scan, it takes log2(n) steps; each combines every
element with one before it, at a distance that doubles from step to step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.geometry import sizes
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import OPS, Cost, PureOp
from aotlite.ir.op.dims import along
from aotlite.ir.ops.declare import pure
from aotlite.ir.ops.elementwise.pointwise import conj
from aotlite.ir.ops.kinds import require_inexact, require_real
from aotlite.ir.ops.precision import accumulator, cast, wide
from aotlite.ir.ops.reduce.dims import summed


# -------------------------------------------------------------------------------- cumsum, cumprod
def _scan_rule(name: str) -> Callable[..., TensorMeta]:
    def rule(self: TensorMeta, dim: int, dtype: DType | None) -> TensorMeta:
        sizes.wrap_dim(dim, len(self.shape), op=name)
        return tensor_meta(self.shape, None, dtype or summed(self.dtype), self.device)

    return rule


def _scan_kernel(name: str) -> Callable[..., Any]:
    def kernel(xp: Any, meta: TensorMeta, a: Any, dim: int, dtype: Any) -> Any:
        a = wide(xp, a, meta.dtype)
        return cast(xp, getattr(xp, name)(a, axis=dim) if a.shape else a, meta.dtype)

    return kernel


def _scan_namespaced(name: str) -> Callable[..., tuple[str, dict[str, Any]] | None]:
    def found(
        meta: TensorMeta, self: TensorMeta, dim: int, dtype: DType | None
    ) -> tuple[str, dict[str, Any]] | None:
        plain = accumulator(meta.dtype) is self.dtype and bool(self.shape)
        return (name, {"axis": dim}) if plain else None

    return found


def _scan_loops(kind: str) -> Callable[..., Any]:
    def loops(k: Any, meta: TensorMeta, a: Any, dim: int, dtype: Any) -> Any:
        formed = accumulator(meta.dtype)
        if not a.ndim:
            return k.map(meta, lambda *i: k.cast(k.cast(a[i], formed), meta.dtype))
        return k.scan(
            kind,
            meta,
            dim % a.ndim,
            lambda *i: k.cast(a[i], formed),
            finish=lambda total: k.cast(total, meta.dtype),
        )

    return loops


CUMSUM: PureOp = pure(
    "cumsum(Tensor self, int dim, *, dtype? dtype=None) -> Tensor",
    meta=_scan_rule("cumsum"),
    kernel=_scan_kernel("cumsum"),
    vjp={"self": lambda grad, dim: grad.flip((dim,)).cumsum(dim).flip((dim,))},
    cost=Cost.REDUCTION,
    dims=along("dim"),
    linear=(("self",),),
    additive=True,
    inplace=True,
    namespaced=_scan_namespaced("cumsum"),
    loops=_scan_loops("sum"),
)


def _cumprod_vjp(grad: Any, self: Any, result: Any, dim: int) -> Any:
    """Of x_k: the products before it, times the sum of what follows. Never divides: right at 0."""
    if not self.shape:
        return grad
    values = conj(self.to(grad.dtype))  # for a cumprod with a dtype of its own
    before = _moved(conj(result), dim, 1)
    return before * _tail_sums(grad, _moved(values, dim, -1), dim)


def _moved(x: Any, dim: int, by: int) -> Any:
    """The elements moved one place on (1) or back (-1) along `dim`; a one comes in."""
    size = x.shape[dim]
    if size == 0:
        return x
    ones = x.new_ones(_with_size(x.shape, dim, 1))
    kept = x.narrow(dim, 0 if by > 0 else 1, size - 1)
    return _joined(dim, ones, kept) if by > 0 else _joined(dim, kept, ones)


def _with_size(shape: tuple[int, ...], dim: int, size: int) -> tuple[int, ...]:
    place = sizes.wrap_dim(dim, len(shape))
    return (*shape[:place], size, *shape[place + 1 :])


def _joined(dim: int, *parts: Any) -> Any:
    return parts[0]._apply(OPS["cat"], (parts, dim))


def _tail_sums(values: Any, factors: Any, dim: int) -> Any:
    """S of S_k = values_k + factors_k * S_(k+1) along `dim`, in log2(n) steps."""
    size, step = values.shape[dim], 1
    while step < size:
        rest = size - step  # those that have somebody ahead
        near, done = values.split((rest, step), dim)
        reach, over = factors.split((rest, step), dim)
        values = _joined(dim, near + reach * values.narrow(dim, step, rest), done)
        factors = _joined(dim, reach * factors.narrow(dim, step, rest), over)
        step *= 2
    return values


CUMPROD: PureOp = pure(
    "cumprod(Tensor self, int dim, *, dtype? dtype=None) -> Tensor",
    meta=_scan_rule("cumprod"),
    kernel=_scan_kernel("cumprod"),
    vjp={"self": _cumprod_vjp},
    cost=Cost.REDUCTION,
    dims=along("dim"),
    inplace=True,
    namespaced=_scan_namespaced("cumprod"),
    loops=_scan_loops("prod"),
)


# ------------------------------------------------------------------------------ running extremes
def running(xp: Any, join: Callable[[Any, Any], Any], a: Any, dim: int) -> Any:
    """The inclusive scan of an associative `join` along `dim`."""
    accumulate = getattr(join, "accumulate", None)
    if accumulate is not None:  # a ufunc of NumPy, which has a scan for each
        return accumulate(a, axis=dim)
    a = xp.moveaxis(a, dim, -1)
    size, step = a.shape[-1], 1
    while step < size:
        a = xp.concat([a[..., :step], join(a[..., step:], a[..., :-step])], axis=-1)
        step *= 2
    return xp.moveaxis(a, -1, dim)


def _running_extreme(name: str, function: str) -> PureOp:
    def rule(self: TensorMeta, dim: int) -> tuple[TensorMeta, TensorMeta]:
        sizes.wrap_dim(dim, len(self.shape), op=name)
        values = tensor_meta(self.shape, None, require_real(name, self.dtype), self.device)
        return values, values.with_dtype(dtypes.int64)

    def kernel(xp: Any, metas: Any, a: Any, dim: int) -> tuple[Any, Any]:
        if not a.shape:
            return a, xp.zeros((), dtype=xp.int64)
        a = wide(xp, a, metas[0].dtype)
        values = running(xp, getattr(xp, function), a, dim)
        places = xp.arange(a.shape[dim], dtype=xp.int64)
        places = xp.reshape(places, [-1 if i == dim % a.ndim else 1 for i in range(a.ndim)])
        # The last of equal extremes, and each nan, take the lead.
        leads = xp.where(xp.logical_or(a == values, xp.isnan(a)), places, xp.zeros_like(places))
        return cast(xp, values, metas[0].dtype), running(xp, xp.maximum, leads, dim)

    def loops(k: Any, metas: Any, a: Any, dim: int) -> Any:
        if not a.ndim:
            zero = k.map(metas[1], lambda *i: k.number(0, dtypes.int64))
            return k.map(metas[0], lambda *i: a[i]), zero
        dim %= a.ndim
        return k.scan(
            f"last_{function[:3]}",
            metas,
            dim,
            lambda *i: (k.wide(a[i]), k.position(i[dim])),
            finish=lambda value, place: (k.cast(value, a.dtype), place),
        )

    return pure(
        f"{name}(Tensor self, int dim) -> (Tensor values, Tensor indices)",
        meta=rule,
        kernel=kernel,
        vjp={"self": _running_vjp},
        cost=Cost.REDUCTION,
        dims=along("dim"),
        loops=loops,
    )


def _running_vjp(grad_values: Any, self: Any, indices: Any, dim: int) -> Any:
    return grad_values.new_zeros(self.shape).scatter_add(dim, indices, grad_values)


CUMMAX = _running_extreme("cummax", "maximum")
CUMMIN = _running_extreme("cummin", "minimum")


# --------------------------------------------------------------------------- exponential sums
def _logcumsumexp_rule(self: TensorMeta, dim: int) -> TensorMeta:
    sizes.wrap_dim(dim, len(self.shape), op="logcumsumexp")
    dtype = require_inexact("logcumsumexp", self.dtype)
    return tensor_meta(self.shape, None, dtype, self.device)


def _logcumsumexp_kernel(xp: Any, meta: TensorMeta, a: Any, dim: int) -> Any:
    a = wide(xp, a, meta.dtype)

    def join(later: Any, before: Any) -> Any:
        first = xp.real(later) >= xp.real(before)
        greater, less = xp.where(first, later, before), xp.where(first, before, later)
        return greater + xp.log1p(xp.exp(less - greater))

    if not a.shape:
        return cast(xp, a, meta.dtype)
    chosen = join if meta.dtype.is_complex else xp.logaddexp
    return cast(xp, running(xp, chosen, a, dim), meta.dtype)


def _logcumsumexp_vjp(grad: Any, self: Any, result: Any, dim: int) -> Any:
    """exp(x_k - r_k) times the sum of g_j exp(r_k - r_j) for j >= k: no exponent is above 0."""
    if not self.shape:
        return grad
    weights = conj((self - result).exp())
    size = self.shape[dim]
    if size == 0:
        return grad * weights
    here, next_ = result.narrow(dim, 0, size - 1), result.narrow(dim, 1, size - 1)
    infinite = (here == next_).logical_and(here.abs() == float("inf"))  # where inf - inf is no step
    steps = (here - next_).masked_fill(infinite, 0)
    last = result.new_zeros(_with_size(result.shape, dim, 1))
    return weights * _tail_sums(grad, conj(_joined(dim, steps.exp(), last)), dim)


def _logcumsumexp_loops(k: Any, meta: TensorMeta, a: Any, dim: int) -> Any:
    if not a.ndim:
        return k.map(meta, lambda *i: a[i])

    def parts(*i: Any) -> tuple[Any, Any]:
        value = k.wide(a[i])
        return value, k.number(1, value.dtype)

    def finish(peak: Any, whole: Any) -> Any:
        return k.cast(k.call("log", whole) + peak, meta.dtype)

    return k.scan("sum_exp", meta, dim % a.ndim, parts, finish=finish)


LOGCUMSUMEXP: PureOp = pure(
    "logcumsumexp(Tensor self, int dim) -> Tensor",
    meta=_logcumsumexp_rule,
    kernel=_logcumsumexp_kernel,
    vjp={"self": _logcumsumexp_vjp},
    cost=Cost.REDUCTION,
    dims=along("dim"),
    loops=_logcumsumexp_loops,
)
