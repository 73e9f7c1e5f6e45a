"""`aotlite.decompositions`: ready-made decompositions, for backends that know few ops.

`core_table()` is what `compile(fn, decompositions=...)` takes. Each function is written in operand
methods, has the parameters of its op, and computes what the op's kernel computes up to rounding:
16-bit floats are computed in float32 and rounded once, infinities and nan come out alike.
Spec: `specs/s7_simplify.md`. Rules: DEC-1 to DEC-8.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from aotlite import ops
from aotlite.ir import dtypes, sizes
from aotlite.ir.dtypes import DType
from aotlite.ir.op import OPS, Op
from aotlite.ir.ops.declare import real_of
from aotlite.ir.ops.normalize import smallest
from aotlite.ir.ops.precision import accumulator

__all__ = ["core_table"]

Dims = tuple[int, ...] | None


def core_table() -> dict[Op, Callable[..., Any]]:
    """A new table of all decompositions of this module; entries may be taken out or replaced.

    >>> import aotlite as al
    >>> table = al.decompositions.core_table()
    >>> f = al.compile(lambda x: x.softmax(-1), decompositions=table)
    >>> _ = f(al.ones(2, 3))
    >>> [node.target.name for node in f.forward_graph.calls]
    ['amax', 'sub', 'exp', 'sum', 'div']
    """
    return {OPS[name]: function for name, function in _FUNCTIONS.items()}


# ----------------------------------------------------------------------------------- what is shared
def _dims(x: Any, dim: Dims) -> tuple[int, ...]:
    """The dimensions that are reduced: all for None and for an empty list."""
    return sizes.wrap_dims(dim, x.ndim) if dim and x.ndim else tuple(range(x.ndim))


def _count(x: Any, dims: tuple[int, ...]) -> int:
    return sizes.numel([x.shape[d] for d in dims])


def _wide(x: Any, dtype: DType | None = None) -> Any:
    """The operand in the dtype in which sums that end in `dtype` are formed."""
    return x.to(accumulator(dtype or x.dtype))


def _floating(x: Any) -> DType:
    """The operand's dtype; the default one for integers."""
    return x.dtype if x.dtype.is_differentiable else dtypes.default_dtype


def _total(x: Any, dims: tuple[int, ...], *, keepdim: bool = True) -> Any:
    return x.sum(dims, keepdim) if dims else x


def _over(x: Any, count: float) -> Any:
    """`x / count`, which is nan or infinite for 0: Python's division would raise."""
    return x / x.new_full((), count)


# ------------------------------------------------------------------------------------- pointwise
def _rsub(x: Any, other: Any) -> Any:
    return -x + other


def _rsqrt(x: Any) -> Any:
    return x.sqrt().reciprocal()


def _sigmoid(x: Any) -> Any:
    return ((-_wide(x, _floating(x))).exp() + 1).reciprocal().to(_floating(x))


def _relu(x: Any) -> Any:
    """A comparison that nan fails: nan stays."""
    return (x <= 0).where(0, x)


def _relu_backward(grad: Any, output: Any) -> Any:
    return (output <= 0).where(0, grad)


def _masked_fill(x: Any, mask: Any, value: Any) -> Any:
    value = value.to(x.dtype) if hasattr(value, "meta") else x.new_full((), value)
    return mask._do("where", value, x)


def _gelu(x: Any, tanh: bool = False) -> Any:
    wide = _wide(x)
    if tanh:
        inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide * wide * wide)
        return (0.5 * wide * (inner.tanh() + 1)).to(x.dtype)
    return (0.5 * wide * ((wide * math.sqrt(0.5)).erf() + 1)).to(x.dtype)


# ------------------------------------------------------------------------------------- reductions
def _mean(x: Any, dim: Dims = None, keepdim: bool = False, *, dtype: DType | None = None) -> Any:
    dims = _dims(x, dim)
    total = _total(_wide(x.to(dtype or x.dtype)), dims, keepdim=keepdim)
    return _over(total, _count(x, dims)).to(dtype or x.dtype)


def _var(x: Any, dim: Dims = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    dims = _dims(x, dim)
    wide = _wide(x)
    count = _count(x, dims)
    off = (wide - _over(_total(wide, dims), count)).abs()
    degrees = max(count - (1 if correction is None else correction), 0)
    return _over(_total(off * off, dims, keepdim=keepdim), degrees).to_kind(real_of(x.dtype))


def _logsumexp(x: Any, dim: tuple[int, ...], keepdim: bool = False) -> Any:
    dims = _dims(x, dim)
    final = _floating(x)
    wide = _wide(x, final)
    if 0 in x.shape or not dims:
        total = _total(wide.exp(), dims, keepdim=keepdim).log()
        return total.to(final)
    peak = wide.amax(dims, True)
    peak = (peak.abs() == math.inf).where(0, peak)
    total = (wide - peak).exp().sum(dims, keepdim).log()
    return (total + peak.view(total.shape)).to(final)


def _shifted(x: Any, dim: int, dtype: DType | None) -> Any:
    """The operand less its maximum, so that no exponential overflows."""
    wide = _wide(x.to(dtype or x.dtype))
    return wide - wide.amax((dim,), True) if x.ndim else wide - wide


def _softmax(x: Any, dim: int, dtype: DType | None = None) -> Any:
    if 0 in x.shape:
        return x.to(dtype or x.dtype)
    raised = _shifted(x, dim, dtype).exp()
    return (raised / raised.sum((dim,) if x.ndim else None, True)).to(dtype or x.dtype)


def _log_softmax(x: Any, dim: int, dtype: DType | None = None) -> Any:
    if 0 in x.shape:
        return x.to(dtype or x.dtype)
    shifted = _shifted(x, dim, dtype)
    total = shifted.exp().sum((dim,) if x.ndim else None, True)
    return (shifted - total.log()).to(dtype or x.dtype)


def _standard(wide: Any, dims: tuple[int, ...], eps: float) -> tuple[Any, Any, Any]:
    """The operand with mean 0 and variance 1 over these dimensions, and what these were."""
    count = _count(wide, dims)
    mean = _over(wide.sum(dims, True), count)
    centered = wide - mean
    var = _over((centered * centered).sum(dims, True), count)
    return centered * (var + eps).sqrt().reciprocal(), mean, var


def _affine(unit: Any, weight: Any, bias: Any) -> Any:
    unit = unit if weight is None else unit * _wide(weight)
    return unit if bias is None else unit + _wide(bias)


def _layer_norm(
    x: Any, shape: tuple[int, ...], weight: Any = None, bias: Any = None, eps: float = 1e-05
) -> Any:
    dims = tuple(range(x.ndim - len(shape), x.ndim))
    return _affine(_standard(_wide(x), dims, eps)[0], weight, bias).to(x.dtype)


def _rms_norm(x: Any, shape: tuple[int, ...], weight: Any = None, eps: float | None = None) -> Any:
    dims = tuple(range(x.ndim - len(shape), x.ndim))
    wide = _wide(x)
    squares = _over((wide * wide).sum(dims, True), sizes.numel(shape))
    scale = (squares + smallest(x.dtype, eps)).sqrt().reciprocal()
    return _affine(wide * scale, weight, None).to(x.dtype)


def _group_norm(
    x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-05
) -> Any:
    batch, channels, *rest = x.shape
    rows = _wide(x).reshape(batch, groups, channels // groups * sizes.numel(rest))
    unit = _standard(rows, (2,), eps)[0].view(x.shape)
    return _affine(unit, *_by_channel(x, weight, bias)).to(x.dtype)


def _by_channel(x: Any, *values: Any) -> list[Any]:
    """(c,) -> (1, c, 1, ...) each, to go with `x`; None stays."""
    return [None if v is None else v.view(1, -1, *[1] * (x.ndim - 2)) for v in values]


def _batch_norm_train(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-05) -> Any:
    unit, mean, var = _standard(_wide(x), (0, *range(2, x.ndim)), eps)
    result = _affine(unit, *_by_channel(x, weight, bias)).to(x.dtype)
    return result, mean.view(x.shape[1:2]), var.view(x.shape[1:2])


def _batch_norm_eval(
    x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, eps: float = 1e-05
) -> Any:
    scale = (_wide(var) + eps).sqrt().reciprocal()
    mean, scale, weight, bias = _by_channel(x, _wide(mean), scale, weight, bias)
    return _affine((_wide(x) - mean) * scale, weight, bias).to(x.dtype)


# --------------------------------------------------------------------------------------- indexing
def _embedding(
    weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False
) -> Any:
    """What the last two change is the gradient, which is not decomposed."""
    rows = weight.index_select(0, indices.reshape(-1))
    return rows.view((*indices.shape, *weight.shape[1:]))


def _stack(tensors: tuple[Any, ...], dim: int = 0) -> Any:
    return ops.cat(tuple([x.unsqueeze(dim) for x in tensors]), dim)


def _roll(x: Any, shifts: tuple[int, ...], dims: tuple[int, ...] = ()) -> Any:
    if not dims:
        return _rolled(x.reshape(-1), shifts[0], 0).view(x.shape) if x.numel() else x
    for shift, dim in zip(shifts, dims, strict=True):
        x = _rolled(x, shift, dim) if x.numel() and x.ndim else x
    return x


def _rolled(x: Any, shift: int, dim: int) -> Any:
    size = x.size(dim)
    first = -shift % size
    return ops.cat((x.narrow(dim, first, size - first), x.narrow(dim, 0, first)), dim)


def _tril(x: Any, diagonal: int = 0) -> Any:
    return ops.where(_diagonal_of(x) <= diagonal, x, x.new_full((), 0))


def _triu(x: Any, diagonal: int = 0) -> Any:
    return ops.where(_diagonal_of(x) >= diagonal, x, x.new_full((), 0))


def _diagonal_of(x: Any) -> Any:
    """The number of the diagonal on which each element of a matrix lies, 0 for the main one."""
    rows, columns = (
        x._apply(OPS["arange_of"], (n, 0, 1, dtypes.int64, x.device)) for n in x.shape[-2:]
    )
    return columns - rows.unsqueeze(1)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "rsub": _rsub,
    "rsqrt": _rsqrt,
    "sigmoid": _sigmoid,
    "relu": _relu,
    "relu_backward": _relu_backward,
    "masked_fill": _masked_fill,
    "gelu": _gelu,
    "mean": _mean,
    "var": _var,
    "logsumexp": _logsumexp,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "batch_norm_train": _batch_norm_train,
    "batch_norm_eval": _batch_norm_eval,
    "embedding": _embedding,
    "stack": _stack,
    "roll": _roll,
    "tril": _tril,
    "triu": _triu,
}
