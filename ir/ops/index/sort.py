"""Order along a dimension: sort, argsort, msort, topk, kthvalue, median, mode, searchsorted.

As in PyTorch, nan is greater than all else. All orders are stable, also where PyTorch leaves that
open (topk, kthvalue, median).
"""

from __future__ import annotations

from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import DTypeError, IndexOutOfRangeError
from aotlite.ir.geometry import layout, sizes
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.composite import composite
from aotlite.ir.op.dims import along
from aotlite.ir.op.named_results import results_type
from aotlite.ir.op.workspace import OPERANDS, RESULTS
from aotlite.ir.ops.declare import pure
from aotlite.ir.ops.kinds import require_real
from aotlite.ir.ops.precision import wide
from aotlite.ir.ops.reduce.dims import reduced, refuse_empty
from aotlite.ir.ops.reduce.min_max import choosing, chosen_all_vjp, chosen_vjp, refuse_keepdim
from aotlite.ir.ops.reduce.scans import running

Two = tuple[TensorMeta, TensorMeta]


def _require_number(name: str, dtype: DType) -> DType:
    if dtype is dtypes.bool_:
        raise DTypeError(f"{name}: dtype is bool, expected one of numbers")
    return require_real(name, dtype)


def ordering(xp: Any, a: Any, dim: int, *, descending: bool = False) -> Any:
    """The indices along `dim` that put the elements in order; equal ones keep their order."""
    if not descending:
        return xp.argsort(a, axis=dim, stable=True)
    last = a.shape[dim] - 1
    return last - xp.flip(xp.argsort(xp.flip(a, axis=dim), axis=dim, stable=True), axis=dim)


def _picked_vjp(grad_values: Any, indices: Any, self_meta: TensorMeta, dim: int) -> Any:
    return chosen_vjp(grad_values, indices, self_meta, dim, True)


# ------------------------------------------------------------------------------------ sort
def _sort_rule(self: TensorMeta, dim: int, descending: bool, stable: bool | None) -> Two:
    sizes.wrap_dim(dim, len(self.shape), op="sort")
    require_real("sort", self.dtype)
    values = self.with_stride(layout.clone_strides(self.shape, self.stride))
    return values, values.with_dtype(dtypes.int64)


def _sort_kernel(xp: Any, metas: Any, a: Any, dim: int, descending: bool, stable: Any) -> Any:
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
def argsort(self: Any, dim: int, descending: bool, stable: bool) -> Any:
    """The indices that put the elements along a dimension in order."""
    return self._do("sort", dim, descending, stable=stable)[1]


@composite("msort(Tensor self) -> Tensor")
def msort(self: Any) -> Any:
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


def _topk_kernel(xp: Any, metas: Any, a: Any, k: int, dim: int, largest: bool, _: bool) -> Any:
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


def _at(xp: Any, order: Any, place: Any, dim: int) -> Any:
    """The index at position `place` of an order along `dim`; one for all lines, or one each."""
    shape = [1 if i == dim % order.ndim else n for i, n in enumerate(order.shape)]
    found = xp.take_along_axis(order, xp.broadcast_to(place, shape), axis=dim)
    return xp.squeeze(found, axis=dim)


def _kth(xp: Any, a: Any, dim: int, k: int) -> Any:
    return _at(xp, ordering(xp, a, dim), xp.asarray(k - 1), dim)


def _middle(xp: Any, a: Any, dim: int) -> Any:
    """The lower of two middles; the first nan where there is one."""
    missing = xp.isnan(a)
    middle = _at(xp, ordering(xp, a, dim), xp.asarray((a.shape[dim] - 1) // 2), dim)
    return xp.where(xp.any(missing, axis=dim), xp.argmax(missing, axis=dim), middle)


def _middle_of_numbers(xp: Any, a: Any, dim: int) -> Any:
    """The lower middle of the elements that are not nan; the first element where all are nan."""
    found = xp.sum(xp.astype(~xp.isnan(a), xp.int64), axis=dim, keepdims=True)
    return _at(xp, ordering(xp, a, dim), xp.maximum(found - 1, xp.zeros_like(found)) // 2, dim)


def _most_frequent(xp: Any, a: Any, dim: int) -> Any:
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

    def kernel(xp: Any, meta: TensorMeta, a: Any) -> Any:
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
def median(self: Any, dim: int | None, keepdim: bool) -> Any:
    """The lower of two middle elements; with a dim (values, indices) along it."""
    if dim is not None:
        return _RESULTS(*self._do("median_dim", dim, keepdim))
    refuse_keepdim("median", keepdim)
    return self._do("median")


@composite("nanmedian(Tensor self, int? dim=None, bool keepdim=False) -> Tensor")
def nanmedian(self: Any, dim: int | None, keepdim: bool) -> Any:
    """`median` of what is not nan."""
    if dim is not None:
        return _NAN_RESULTS(*self._do("nanmedian_dim", dim, keepdim))
    refuse_keepdim("nanmedian", keepdim)
    return self._do("nanmedian")
