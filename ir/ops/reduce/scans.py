"""Scans along a dimension: cumsum, cumprod, cummax, cummin, logcumsumexp."""

from __future__ import annotations

import math
from collections.abc import Callable

from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.dtypes import DType
from aotlite.ir.geometry import sizes
from aotlite.ir.op import OPS
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.elementwise.pointwise import conj
from aotlite.ir.ops.kinds import require_inexact, require_real
from aotlite.ir.ops.reduce.dims import summed
from aotlite.ir.ops.reduction_rows import BY_PROD, BY_SUM, DTYPE, Monoid, highest, lowest, scan

# -------------------------------------------------------------------------------- cumsum, cumprod
CUMSUM = scan(
    "cumsum",
    "int dim" + DTYPE,
    result=summed,
    combiner=BY_SUM,
    function="cumsum",
    vjp=lambda grad, dim: grad.flip((dim,)).cumsum(dim).flip((dim,)),
    linear=(("self",),),
    inplace=True,
)


def _cumprod_vjp(grad: Operand, self: Operand, result: Operand, dim: int) -> Operand:
    """Of x_k: the products before it, times the sum of what follows. Never divides: right at 0."""
    if not self.shape:
        return grad
    values = conj(self.to(grad.dtype))  # for a cumprod with a dtype of its own
    before = moved(conj(result), dim, 1)
    return before * _tail_sums(grad, moved(values, dim, -1), dim)


def moved(x: Operand, dim: int, by: int) -> Operand:
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


def _joined(dim: int, *parts: Operand) -> Operand:
    return parts[0]._apply(OPS["cat"], (parts, dim))


def _tail_sums(values: Operand, factors: Operand, dim: int) -> Operand:
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


CUMPROD = scan(
    "cumprod",
    "int dim" + DTYPE,
    result=summed,
    combiner=BY_PROD,
    function="cumprod",
    vjp=_cumprod_vjp,
    inplace=True,
)


# ------------------------------------------------------------------------------ running extremes
def _running_vjp(grad_values: Operand, self: Operand, indices: Operand, dim: int) -> Operand:
    return grad_values.new_zeros(self.shape).scatter_add(dim, indices, grad_values)


CUMMAX = scan(
    "cummax",
    result=require_real,
    combiner=Monoid("last_max", "maximum", lowest),
    vjp=_running_vjp,
    indexed=True,
)
CUMMIN = scan(
    "cummin",
    result=require_real,
    combiner=Monoid("last_min", "minimum", highest),
    vjp=_running_vjp,
    indexed=True,
)


# --------------------------------------------------------------------------- exponential sums
def _joined_logs(xp: Namespace, dtype: DType) -> Callable[[Array, Array], Array]:
    """log(exp(a) + exp(b)) of arrays; the array library's is of real numbers."""

    def join(later: Array, before: Array) -> Array:
        first = xp.real(later) >= xp.real(before)
        greater, less = xp.where(first, later, before), xp.where(first, before, later)
        unknown = xp.logical_or(xp.isnan(less), xp.isnan(greater))
        # Infinities of one sign have no difference, and those below no angle that counts.
        low, high = xp.real(greater) == -xp.inf, xp.real(less) == xp.inf
        found = xp.where(xp.logical_or(low, high), 0, less - greater)
        found = xp.log1p(xp.exp(found)) + xp.where(low, less, greater)
        found = xp.where(high, xp.log(xp.exp(less) + xp.exp(greater)), found)
        return xp.where(unknown, xp.nan, found)

    return join if dtype.is_complex else xp.logaddexp


def _logcumsumexp_vjp(grad: Operand, self: Operand, result: Operand, dim: int) -> Operand:
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


LOGCUMSUMEXP = scan(
    "logcumsumexp",
    result=require_inexact,
    combiner=Monoid("sum_exp", "logaddexp", lambda dtype: -math.inf),
    join=_joined_logs,
    parts=lambda k, value: (k.number(1, value.dtype),),
    finish=lambda k, peak, whole: k.call("log", whole) + peak,
    vjp=_logcumsumexp_vjp,
)
