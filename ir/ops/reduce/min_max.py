"""Extremes, and where they lie: amax, amin, max, min, aminmax, argmax, argmin.

`x.max()` is the op `max`, `x.max(dim)` the op `max_dim`, and `x.max(other)` the op `maximum`; users
call one composite for the three.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError
from aotlite.ir.geometry import sizes
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Cost, PureOp, schema_of
from aotlite.ir.op.composite import composite
from aotlite.ir.op.dims import reduced_over
from aotlite.ir.op.named_results import results_type
from aotlite.ir.op.operand import Operand
from aotlite.ir.op.parameter_types import Number
from aotlite.ir.ops.composed import dims_of
from aotlite.ir.ops.declare import pure
from aotlite.ir.ops.kinds import require_real
from aotlite.ir.ops.loops import Loops, LoopTensor, Place
from aotlite.ir.ops.precision import accumulator, wide, widened
from aotlite.ir.ops.reduce.dims import (
    Dims,
    kept,
    reduced,
    reduced_dims,
    reduction_loops,
    refuse_empty,
)
from aotlite.ir.ops.reduction_rows import BY_MAX, BY_MIN, DIM, Call, Monoid, reduction
from aotlite.ir.scalar.expression import Scalar

Two = tuple[TensorMeta, TensorMeta]


# -------------------------------------------------------------------------- over dimensions
def _shared(grad: Operand, hits: Operand, dim: Dims) -> Operand:
    """Elements that tie share the gradient equally."""
    return grad * hits / hits.sum(dim, True)


def _extreme_vjp(
    grad: Operand, self: Operand, result: Operand, dim: Dims, keepdim: bool
) -> Operand:
    hits = self == kept(result, self.meta, dim, keepdim)
    return _shared(kept(grad, self.meta, dim, keepdim), hits, dim)


AMAX = reduction("amax", result=require_real, combiner=BY_MAX, vjp=_extreme_vjp)
AMIN = reduction("amin", result=require_real, combiner=BY_MIN, vjp=_extreme_vjp)


def _aminmax(
    self: Operand, *, dim: int | None = None, keepdim: bool = False
) -> tuple[Operand, Operand]:
    dims, value = dims_of(self, dim), widened(self)
    return value.amin(dims, keepdim).to(self.dtype), value.amax(dims, keepdim).to(self.dtype)


def _aminmax_vjp(
    self: Operand,
    min: Operand,
    max: Operand,
    dim: int | None,
    keepdim: bool,
    grad_min: Operand | None = None,
    grad_max: Operand | None = None,
) -> Operand:
    pairs = [(grad_min, min), (grad_max, max)]
    parts = [_extreme_vjp(g, self, end, dim, keepdim) for g, end in pairs if g is not None]
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


AMINMAX = reduction(
    "aminmax",
    "*, " + DIM,
    results="(Tensor min, Tensor max)",
    result=require_real,
    refuses_empty=True,
    as_=_aminmax,
    vjp=_aminmax_vjp,
)


# ---------------------------------------------------------------------------- of everything
def chosen_all_vjp(grad: Operand, self: Operand, result: Operand) -> Operand:
    """Elements equal to the result share the gradient; nans equal a nan, as in PyTorch."""
    hits = (self == result).logical_or(self.isnan().logical_and(result.isnan()))
    return _shared(grad, hits, None)


def _of_everything(name: str, combiner: Monoid) -> PureOp:
    return reduction(
        name,
        "",
        result=require_real,
        combiner=combiner,
        vjp=chosen_all_vjp,
        loops=None,
        expands=lambda self: self._do(f"a{name}"),
    )


MAX = _of_everything("max", BY_MAX)
MIN = _of_everything("min", BY_MIN)


# -------------------------------------------------------------------------------- positions
def _position(xp: Namespace, function: str, a: Array, dim: int | None, keepdim: bool) -> Array:
    """Where the first extreme, or the first nan, lies; `dim=None` counts in row-major order."""
    a = wide(xp, a, dtypes.from_numpy(a.dtype))
    if dim is None or not a.shape:
        index = getattr(xp, function)(xp.reshape(a, (-1,)), axis=0)
        return xp.reshape(index, (1,) * len(a.shape) if keepdim else ())
    return getattr(xp, function)(a, axis=dim, keepdims=keepdim)


def _position_namespaced(
    name: str, meta: TensorMeta, self: TensorMeta, dim: int | None, keepdim: bool
) -> Call | None:
    plain = accumulator(self.dtype) is self.dtype and bool(self.shape)
    return (name, {"axis": dim, "keepdims": keepdim}) if plain else None


def _position_loops(
    name: str, k: Loops, metas: Any, a: LoopTensor, dim: int | None
) -> LoopTensor | tuple[LoopTensor, LoopTensor]:
    """The first extreme, and where it lies along `dim`, or in row-major order; the latter alone for
    one meta.
    """
    several = type(metas) is tuple
    dims = reduced_dims(name, dim, a.ndim)
    if not dims:
        place = k.map(metas[1] if several else metas, lambda *i: k.number(0, dtypes.int64))
        return (k.map(metas[0], lambda *i: a[i]), place) if several else place

    def value(element: Scalar, at: Sequence[Place]) -> tuple[Scalar, Scalar]:
        place = sum((at[d] * sizes.numel([a.shape[e] for e in dims if e > d]) for d in dims), 0)
        return k.wide(element), k.position(place)

    def finish(best: Scalar, place: Scalar) -> Scalar | tuple[Scalar, Scalar]:
        return (k.cast(best, a.dtype), place) if several else place

    return reduction_loops(k, metas, a, (dims, name, value), finish)


def _of_positions(name: str, own: DType) -> DType:
    require_real(name, own)
    return dtypes.int64


def _position_op(name: str) -> PureOp:
    return reduction(
        name,
        DIM,
        result=_of_positions,
        refuses_empty=True,
        kernel=lambda xp, meta, a, dim, keepdim: _position(xp, name, a, dim, keepdim),
        vjp=None,
        namespaced=partial(_position_namespaced, name),
        loops=lambda k, meta, a, dim, keepdim: _position_loops(name, k, meta, a, dim),
    )


ARGMAX = _position_op("argmax")
ARGMIN = _position_op("argmin")


# ------------------------------------------------------------------------ values and indices
def chosen_vjp(
    grad_values: Operand, indices: Operand, self_meta: TensorMeta, dim: int, keepdim: bool
) -> Operand:
    """The gradient of the values, scattered to the chosen elements."""
    zeros = grad_values.new_zeros(self_meta.shape)
    if not keepdim and self_meta.shape:
        grad_values, indices = grad_values.unsqueeze(dim), indices.unsqueeze(dim)
    return zeros.scatter_add(dim, indices, grad_values)


def _picked(xp: Namespace, a: Array, index: Array, dim: int) -> Array:
    """The elements at an index along `dim`, without that dimension."""
    ndim = index.ndim
    places = [
        xp.reshape(xp.arange(n), (n, *(1,) * (ndim - 1 - i))) if i < ndim - 1 else xp.arange(n)
        for i, n in enumerate(index.shape)
    ]
    places.insert(dim % a.ndim, index)
    return a[tuple(places)]


def choosing(
    schema: str,
    place: Callable[..., Array],
    *,
    require: Callable[[str, DType], DType] = require_real,
    check: Callable[..., None] | None = None,
    loops: Callable[..., object] | None = None,
    workspace: Mapping[str, object] | None = None,
) -> PureOp:
    """Declares a reduction with results (values, indices): it chooses an element along `dim`.

    Its parameters are `self`, options, `dim` and `keepdim`. `place(xp, a, dim, *options)` returns
    the indices, without `dim`. `require` checks the dtype, `check` the options.
    """
    name = schema_of(schema).name

    def rule(self: TensorMeta, *args: Any) -> Two:
        *_, dim, keepdim = args
        dims = reduced_dims(name, dim, len(self.shape))
        refuse_empty(name, self, dims)
        values = reduced(self, dims, keepdim, require(name, self.dtype))
        if check is not None:
            check(self, *args)
        return values, values.with_dtype(dtypes.int64)

    def kernel(xp: Namespace, metas: Two, a: Array, *args: Any) -> tuple[Array, Array]:
        *options, dim, _ = args
        if not a.shape:
            return a, xp.zeros((), dtype=xp.int64)
        index = place(xp, wide(xp, a, metas[0].dtype), dim, *options)
        values = _picked(xp, a, index, dim)
        if index.shape == metas[0].shape:
            return values, index
        return xp.reshape(values, metas[0].shape), xp.reshape(index, metas[1].shape)

    return pure(
        schema,
        meta=rule,
        kernel=kernel,
        vjp={"self": chosen_vjp},
        cost=Cost.REDUCTION,
        dims=reduced_over(None),
        loops=loops,
        workspace=workspace,
    )


def _extreme_with_index(name: str, function: str) -> PureOp:
    return choosing(
        f"{name}(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
        lambda xp, a, dim: getattr(xp, function)(a, axis=dim),
        loops=lambda k, metas, a, dim, keepdim: _position_loops(function, k, metas, a, dim),
    )


MAX_DIM = _extreme_with_index("max_dim", "argmax")
"""`x.max(dim)`. The first of equal maxima gets the whole gradient."""
MIN_DIM = _extreme_with_index("min_dim", "argmin")


# ---------------------------------------------------------------------- what users meet
_FORMS = (
    "(Tensor self, Tensor|Scalar? dim=None, bool keepdim=False, *, Tensor? other=None) -> Tensor"
)
_MAX_RESULTS = results_type("max", "values", "indices")
_MIN_RESULTS = results_type("min", "values", "indices")


@composite("max" + _FORMS)
def max_(self: Operand, dim: Dims, keepdim: bool, other: Operand | Number) -> Operand:
    """The largest element; with a dim (values, indices) along it; with a tensor `maximum`."""
    return _form(self, "max", (dim, keepdim, other), _MAX_RESULTS)


@composite("min" + _FORMS)
def min_(self: Operand, dim: Dims, keepdim: bool, other: Operand | Number) -> Operand:
    """The smallest element; with a dim (values, indices) along it; with a tensor `minimum`."""
    return _form(self, "min", (dim, keepdim, other), _MIN_RESULTS)


def _form(
    self: Operand, name: str, args: tuple[object, bool, object], results: Callable[..., Operand]
) -> Operand:
    dim, keepdim, other = args
    other = dim if hasattr(dim, "meta") else other
    if other is not None:
        return self._do(f"{name}imum", other)
    if dim is not None:
        return results(*self._do(f"{name}_dim", dim, keepdim))
    refuse_keepdim(name, keepdim)
    return self._do(name)


def refuse_keepdim(name: str, keepdim: bool) -> None:
    """Raises ArgumentError for `keepdim` without `dim`, as in PyTorch."""
    if keepdim:
        raise ArgumentError(f"{name}: argument 'keepdim' is True without 'dim', expected a dim too")
