"""Order along a dimension: sort, argsort, msort, topk, kthvalue, median, mode, searchsorted; and
sets: unique, unique_consecutive, bincount, histc.

As in PyTorch, nan is greater than all else. All orders are stable, also where PyTorch leaves that
open (topk, kthvalue, median). The shapes of the results of the first three sets depend on values.
"""

from __future__ import annotations

from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError, DTypeError, IndexOutOfRangeError, ShapeError
from aotlite.ir.geometry import layout, sizes
from aotlite.ir.geometry.layout import contiguous_strides
from aotlite.ir.meta import Outline, TensorMeta, tensor_meta
from aotlite.ir.op import Cost, DataOp, PureOp
from aotlite.ir.op.composite import composite
from aotlite.ir.op.dims import along
from aotlite.ir.op.named_results import results_type
from aotlite.ir.op.operand import Operand
from aotlite.ir.op.workspace import OPERANDS, RESULTS
from aotlite.ir.ops.declare import common_device, pure
from aotlite.ir.ops.index.data_dependent import data_dependent
from aotlite.ir.ops.kinds import require_floating, require_real
from aotlite.ir.ops.precision import cast, wide
from aotlite.ir.ops.reduce.dims import reduced, refuse_empty
from aotlite.ir.ops.reduce.min_max import choosing, chosen_all_vjp, chosen_vjp, refuse_keepdim
from aotlite.ir.ops.reduction_rows import running

Two = tuple[TensorMeta, TensorMeta]


def _require_number(name: str, dtype: DType) -> DType:
    if dtype is dtypes.bool_:
        raise DTypeError(f"{name}: dtype is bool, expected one of numbers")
    return require_real(name, dtype)


def ordering(xp: Namespace, a: Array, dim: int, *, descending: bool = False) -> Array:
    """The indices along `dim` that put the elements in order; equal ones keep their order."""
    if not descending:
        return xp.argsort(a, axis=dim, stable=True)
    last = a.shape[dim] - 1
    return last - xp.flip(xp.argsort(xp.flip(a, axis=dim), axis=dim, stable=True), axis=dim)


def _picked_vjp(grad_values: Operand, indices: Operand, self_meta: TensorMeta, dim: int) -> Operand:
    return chosen_vjp(grad_values, indices, self_meta, dim, True)


# ------------------------------------------------------------------------------------ sort
def _sort_rule(self: TensorMeta, dim: int, descending: bool, stable: bool | None) -> Two:
    sizes.wrap_dim(dim, len(self.shape), op="sort")
    require_real("sort", self.dtype)
    values = self.with_stride(layout.clone_strides(self.shape, self.stride))
    return values, values.with_dtype(dtypes.int64)


def _sort_kernel(
    xp: Namespace,
    metas: tuple[TensorMeta, ...],
    a: Array,
    dim: int,
    descending: bool,
    stable: bool | None,
) -> tuple[Array, ...]:
    if not a.shape:
        return a, xp.zeros((), dtype=xp.int64)
    index = ordering(xp, wide(xp, a, metas[0].dtype), dim, descending=descending)
    return xp.take_along_axis(a, index, axis=dim), index


SORT: PureOp = pure(
    "sort(Tensor self, int dim=-1, bool descending=False, *, bool? stable=None)"
    " -> (Tensor values, Tensor indices)",
    meta=_sort_rule,
    kernel=_sort_kernel,
    vjp={"self": _picked_vjp},
    cost=Cost.REDUCTION,
    dims=along("dim"),
)
"""The sort is always stable."""


@composite(
    "argsort(Tensor self, int dim=-1, bool descending=False, *, bool stable=False) -> Tensor"
)
def argsort(self: Operand, dim: int, descending: bool, stable: bool) -> Operand:
    """The indices that put the elements along a dimension in order."""
    return self._do("sort", dim, descending, stable=stable)[1]


@composite("msort(Tensor self) -> Tensor")
def msort(self: Operand) -> Operand:
    """The elements in order along the first dimension."""
    return self._do("sort", 0)[0]


# ------------------------------------------------------------------------------------ topk
def _topk_rule(self: TensorMeta, k: int, dim: int, largest: bool, sorted: bool) -> Two:
    dim = sizes.wrap_dim(dim, len(self.shape), op="topk")
    _require_number("topk", self.dtype)
    size = self.shape[dim] if self.shape else 1
    if k < 0 or size < k:
        raise IndexOutOfRangeError(f"topk: k is {k}, expected 0 to {size}")
    shape = tuple([k if i == dim else n for i, n in enumerate(self.shape)])
    values = tensor_meta(shape, None, self.dtype, self.device)
    return values, values.with_dtype(dtypes.int64)


def _topk_kernel(
    xp: Namespace, metas: tuple[TensorMeta, ...], a: Array, k: int, dim: int, largest: bool, _: bool
) -> tuple[Array, ...]:
    if not a.shape:
        return a, xp.zeros((), dtype=xp.int64)
    index = ordering(xp, wide(xp, a, metas[0].dtype), dim, descending=largest)
    first = xp.moveaxis(xp.moveaxis(index, dim, 0)[:k], 0, dim)
    return xp.take_along_axis(a, first, axis=dim), first


TOPK: PureOp = pure(
    "topk(Tensor self, int k, int dim=-1, bool largest=True, bool sorted=True)"
    " -> (Tensor values, Tensor indices)",
    meta=_topk_rule,
    kernel=_topk_kernel,
    vjp={"self": _picked_vjp},
    cost=Cost.REDUCTION,
    dims=along("dim"),
)
"""The k greatest (or least) elements along a dimension, always in order."""


# -------------------------------------------------------------------------- kthvalue, median
def _check_kth(self: TensorMeta, k: int, dim: int, keepdim: bool) -> None:
    size = self.shape[dim] if self.shape else 1
    if k < 1 or size < k:
        raise IndexOutOfRangeError(f"kthvalue: k is {k}, expected 1 to {size}")


def _at(xp: Namespace, order: Array, place: Array, dim: int) -> Array:
    """The index at position `place` of an order along `dim`; one for all lines, or one each."""
    shape = [1 if i == dim % order.ndim else n for i, n in enumerate(order.shape)]
    found = xp.take_along_axis(order, xp.broadcast_to(place, shape), axis=dim)
    return xp.squeeze(found, axis=dim)


def _kth(xp: Namespace, a: Array, dim: int, k: int) -> Array:
    return _at(xp, ordering(xp, a, dim), xp.asarray(k - 1), dim)


def _middle(xp: Namespace, a: Array, dim: int) -> Array:
    """The lower of two middles; the first nan where there is one."""
    missing = xp.isnan(a)
    middle = _at(xp, ordering(xp, a, dim), xp.asarray((a.shape[dim] - 1) // 2), dim)
    return xp.where(xp.any(missing, axis=dim), xp.argmax(missing, axis=dim), middle)


def _middle_of_numbers(xp: Namespace, a: Array, dim: int) -> Array:
    """The lower middle of the elements that are not nan; the first element where all are nan."""
    found = xp.sum(xp.astype(~xp.isnan(a), xp.int64), axis=dim, keepdims=True)
    return _at(xp, ordering(xp, a, dim), xp.maximum(found - 1, xp.zeros_like(found)) // 2, dim)


def _most_frequent(xp: Namespace, a: Array, dim: int) -> Array:
    """The last position of the most frequent element; of several, of the least one."""
    order = ordering(xp, a, dim)
    values = xp.moveaxis(xp.take_along_axis(a, order, axis=dim), dim, -1)
    places = xp.broadcast_to(xp.arange(values.shape[-1], dtype=xp.int64), values.shape)
    # After sorting, equal elements are adjacent: each finds where its run starts.
    starts = xp.concat(
        [xp.ones_like(values[..., :1], dtype=xp.bool), values[..., 1:] != values[..., :-1]], axis=-1
    )
    first = running(xp, xp.maximum, xp.where(starts, places, xp.zeros_like(places)), -1)
    end = xp.argmax(places - first, axis=-1, keepdims=True)
    return _at(xp, order, xp.moveaxis(end, -1, dim), dim)


KTHVALUE = choosing(
    "kthvalue(Tensor self, int k, int dim=-1, bool keepdim=False)"
    " -> (Tensor values, Tensor indices)",
    _kth,
    require=_require_number,
    check=_check_kth,
)
MEDIAN_DIM = choosing(
    "median_dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
    _middle,
    require=_require_number,
)
NANMEDIAN_DIM = choosing(
    "nanmedian_dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
    _middle_of_numbers,
    require=_require_number,
)
MODE = choosing(
    "mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
    _most_frequent,
    workspace={RESULTS: 4, OPERANDS: 6},  # lengths of runs of the sorted elements
)
"""The most frequent element (of several, the least) and its last position."""


def _median_of_everything(name: str, place: Any) -> PureOp:
    def rule(self: TensorMeta) -> TensorMeta:
        dims = tuple(range(len(self.shape)))
        _require_number(name, self.dtype)
        if not self.dtype.is_floating_point:
            refuse_empty(name, self, dims)  # nan, which it is of nothing, is a floating number
        return reduced(self, dims, False, self.dtype)

    def kernel(xp: Namespace, meta: TensorMeta, a: Array) -> Array:
        a = xp.reshape(a, (-1,))
        if not a.shape[0]:
            return xp.full((), float("nan"), dtype=meta.dtype.numpy)
        return xp.reshape(a[place(xp, wide(xp, a, meta.dtype), 0)], ())

    return pure(
        f"{name}(Tensor self) -> Tensor",
        meta=rule,
        kernel=kernel,
        vjp={"self": chosen_all_vjp},
        cost=Cost.REDUCTION,
    )


MEDIAN = _median_of_everything("median", _middle)
NANMEDIAN = _median_of_everything("nanmedian", _middle_of_numbers)

_RESULTS = results_type("median", "values", "indices")
_NAN_RESULTS = results_type("nanmedian", "values", "indices")


@composite("median(Tensor self, int? dim=None, bool keepdim=False) -> Tensor")
def median(self: Operand, dim: int | None, keepdim: bool) -> Operand:
    """The lower of two middle elements; with a dim (values, indices) along it."""
    if dim is not None:
        return _RESULTS(*self._do("median_dim", dim, keepdim))
    refuse_keepdim("median", keepdim)
    return self._do("median")


@composite("nanmedian(Tensor self, int? dim=None, bool keepdim=False) -> Tensor")
def nanmedian(self: Operand, dim: int | None, keepdim: bool) -> Operand:
    """`median` of what is not nan."""
    if dim is not None:
        return _NAN_RESULTS(*self._do("nanmedian_dim", dim, keepdim))
    refuse_keepdim("nanmedian", keepdim)
    return self._do("nanmedian")


# ------------------------------------------------------------------------------------ unique
def _unique_outline(self: TensorMeta, dim: int | None, consecutive: bool) -> tuple[Outline, ...]:
    name = "unique_consecutive" if consecutive else "unique"
    dtype, ndim = require_real(name, self.dtype), len(self.shape)
    counts = Outline(1, dtypes.int64, device=self.device)
    if dim is None:
        inverse = Outline(ndim, dtypes.int64, device=self.device)
        return Outline(1, dtype, device=self.device), inverse, counts
    if not self.shape:
        raise IndexOutOfRangeError(f"{name}: dimension is {dim}, expected none: self is 0-d")
    dim = sizes.wrap_dim(dim, ndim, op=name)
    if any(n == 0 for i, n in enumerate(self.shape) if i != dim):
        raise ShapeError(
            f"{name}: self has shape {self.shape}, expected no size 0 beside dimension {dim}"
        )
    found = Outline(ndim, dtype, device=self.device, strides=lambda shape: _slices(shape, dim))
    return found, counts, counts


def _slices(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    """The strides of slices that are stacked one after the other; contiguous for no `dim`."""
    if 0 in shape:
        return contiguous_strides(shape)
    rest = [i for i in range(len(shape)) if i != dim]
    steps = contiguous_strides((shape[dim], *[shape[i] for i in rest]))
    of = dict(zip((dim, *rest), steps, strict=True))
    return tuple([of[i] for i in range(len(shape))])


def _runs(
    xp: Namespace, a: Array, dtype: DType, dim: int | None, consecutive: bool
) -> tuple[Array, Array, Array]:
    """(the slices, their order, where in that order a slice differs from the one before)."""
    a = xp.reshape(a, (-1,)) if dim is None else xp.moveaxis(a, dim, 0)
    lines = xp.reshape(wide(xp, a, dtype), (a.shape[0], -1 if a.size else 0))
    count = a.shape[0]
    places = xp.arange(count, dtype=xp.int64)
    order = places if consecutive or not count else xp.lexsort(xp.flip(lines.T, axis=0))
    ordered = lines[order]
    starts = xp.ones((count,), dtype=xp.bool)
    if count:
        starts = xp.concat([starts[:1], xp.any(ordered[1:] != ordered[:-1], axis=1)])
    return a, order, starts


def _unique_count(xp: Namespace, a: Array, dim: int | None, consecutive: bool) -> Array:
    _, _, starts = _runs(xp, a, dtypes.from_numpy(a.dtype), dim, consecutive)
    return xp.asarray(xp.count_nonzero(starts), dtype=xp.int64)


def _unique_shapes(
    n: int, self: TensorMeta, dim: int | None, consecutive: bool
) -> tuple[tuple[int, ...], ...]:
    if dim is None:
        return (n,), self.shape, (n,)
    dim = sizes.wrap_dim(dim, len(self.shape))
    return (*self.shape[:dim], n, *self.shape[dim + 1 :]), (self.shape[dim],), (n,)


def _unique_kernel(
    xp: Namespace, known: tuple[Outline, ...], a: Array, dim: int | None, consecutive: bool
) -> tuple[Array, Array, Array]:
    shape = a.shape if dim is None else (a.shape[dim],)
    a, order, starts = _runs(xp, a, known[0].dtype, dim, consecutive)
    count = a.shape[0]
    places = xp.arange(count, dtype=xp.int64)
    group = xp.cumsum(xp.astype(starts, xp.int64)) - 1
    inverse = xp.reshape(group[xp.argsort(order)], shape)
    counts = xp.diff(xp.concat([places[starts], xp.full((1,), count, dtype=xp.int64)]))
    found = a[order[starts]]
    return (found if dim is None else xp.moveaxis(found, 0, dim)), inverse, counts


UNIQUE: DataOp = data_dependent(
    "unique_slices(Tensor self, int? dim=None, bool consecutive=False)"
    " -> (Tensor output, Tensor inverse, Tensor counts)",
    outline=_unique_outline,
    kernel=_unique_kernel,
    count=_unique_count,
    count_workspace={OPERANDS: 7},
    shapes=_unique_shapes,
    vjp=None,
    cost=Cost.REDUCTION,
    advice="sort, and compare neighbors",
)
"""(values, inverse, counts): the distinct elements (or slices along `dim`) in order, or those that
differ from the one before; for each element, the index of its value; and how often each occurs.
nans count as distinct."""


def _asked(results: Operand, inverse: bool, counts: bool) -> Any:
    asked = [r for r, wanted in zip(results, (True, inverse, counts), strict=True) if wanted]
    return asked[0] if len(asked) == 1 else tuple(asked)


@composite(
    "unique(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False,"
    " int? dim=None) -> Tensor"
)
def unique(
    self: Operand, sorted: bool, return_inverse: bool, return_counts: bool, dim: int | None
) -> Operand:
    """The distinct elements, or slices of a dimension, always sorted.

    `return_inverse` adds the index of each element's value, `return_counts` how often each occurs.
    """
    return _asked(self._do("unique_slices", dim, False), return_inverse, return_counts)


@composite(
    "unique_consecutive(Tensor self, bool return_inverse=False, bool return_counts=False,"
    " int? dim=None) -> Tensor"
)
def unique_consecutive(
    self: Operand, return_inverse: bool, return_counts: bool, dim: int | None
) -> Operand:
    """The elements, or slices of a dimension, that differ from the one before."""
    return _asked(self._do("unique_slices", dim, True), return_inverse, return_counts)


# ---------------------------------------------------------------------------------- bincount
def _bincount_outline(self: TensorMeta, weights: TensorMeta | None, minlength: int) -> Outline:
    if self.dtype.kind != dtypes.INTEGER:
        raise DTypeError(f"bincount: dtype is {self.dtype}, expected one of integers")
    if len(self.shape) != 1:
        raise ShapeError(f"bincount: self has shape {self.shape}, expected 1 dimension")
    if minlength < 0:
        raise ShapeError(f"bincount: argument 'minlength' is {minlength}, expected at least 0")
    # PyTorch counts in int64 where there is nothing to count, whatever the weights are.
    if weights is None or self.numel == 0:
        return Outline(1, dtypes.int64, device=self.device)
    device = common_device("bincount", [self, weights])
    if not sizes.same_shape(self.shape, weights.shape):
        raise ShapeError(
            f"bincount: argument 'weights' has shape {weights.shape}, expected {self.shape}"
        )
    return Outline(1, _weighed_dtype(weights.dtype), device=device)


def _weighed_dtype(dtype: DType) -> DType:
    if dtype.is_complex:
        raise DTypeError(f"bincount: argument 'weights' has dtype {dtype}, expected a real one")
    return dtype if dtype is dtypes.float32 else dtypes.float64


_LARGEST = (1 << 63) - 1


def _bincount_length(xp: Namespace, a: Array, minlength: int) -> int:
    if not a.shape[0]:
        return minlength
    least = int(xp.min(a))
    if least < 0:
        raise IndexOutOfRangeError(f"bincount: an element is {least}, expected at least 0")
    largest = int(xp.max(a))
    if largest >= _LARGEST:  # of which NumPy would write beyond its result
        raise IndexOutOfRangeError(f"bincount: an element is {largest}, expected under {_LARGEST}")
    return max(largest + 1, minlength)


def _bincount_count(xp: Namespace, a: Array, weights: Array | None, minlength: int) -> Array:
    return xp.asarray(_bincount_length(xp, a, minlength), dtype=xp.int64)


def _bincount_kernel(
    xp: Namespace, known: Outline, a: Array, weights: Array | None, minlength: int
) -> Array:
    if not a.shape[0]:
        return xp.zeros((minlength,), dtype=xp.int64)
    _bincount_length(xp, a, minlength)
    if weights is not None:
        weights = cast(xp, weights, dtypes.float64)
    return cast(xp, xp.bincount(cast(xp, a, dtypes.int64), weights, minlength), known.dtype)


BINCOUNT: DataOp = data_dependent(
    "bincount(Tensor self, Tensor? weights=None, int minlength=0) -> Tensor",
    outline=_bincount_outline,
    kernel=_bincount_kernel,
    count=_bincount_count,
    shapes=lambda n, self, weights, minlength: ((n,),),
    vjp=None,
    cost=Cost.REDUCTION,
    advice="zeros(length).index_add(0, self, weights), with a length that is known",
)
"""How often each integer from 0 on occurs, or the sum of its weights."""


# ------------------------------------------------------------------------------------- histc
def _histc_rule(self: TensorMeta, bins: int, min: float, max: float) -> TensorMeta:
    require_floating("histc", self.dtype)
    if bins < 1:
        raise ShapeError(f"histc: argument 'bins' is {bins}, expected at least 1")
    if not min <= max:
        raise ArgumentError(f"histc: argument 'max' is {max}, expected at least {min}, the least")
    return tensor_meta((bins,), None, self.dtype, self.device)


def _histc_kernel(
    xp: Namespace, meta: TensorMeta, a: Array, bins: int, min: float, max: float
) -> Array:
    a = wide(xp, xp.reshape(a, (-1,)), meta.dtype)
    if min == max and a.shape[0]:
        min, max = float(xp.min(a)), float(xp.max(a))
    if min == max:
        min, max = min - 1, max + 1
    if not abs(max - min) < float("inf"):
        raise ArgumentError(f"histc: the range is {min} to {max}, expected a finite one")
    inside = a[xp.logical_and(a >= min, a <= max)]
    places = xp.astype((inside - min) * bins / (max - min), xp.int64)
    places = xp.minimum(places, places * 0 + bins - 1)  # the last bin holds its end too
    return cast(xp, xp.bincount(places, None, bins), meta.dtype)


HISTC: PureOp = pure(
    "histc(Tensor self, int bins=100, float min=0.0, float max=0.0) -> Tensor",
    meta=_histc_rule,
    kernel=_histc_kernel,
    vjp=None,
    cost=Cost.REDUCTION,
    workspace={RESULTS: 2, OPERANDS: 5},  # places of elements, of those inside of the range
)
"""The number of elements in each of `bins` equal bins of a range, by default the elements' own."""
