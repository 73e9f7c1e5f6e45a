"""Ops that write elements to positions along a dimension: scatter, scatter_reduce.

Where positions repeat, `scatter` keeps the last element, and `scatter_reduce` reduces them.
"""

from __future__ import annotations

from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.errors import ArgumentError, DTypeError
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.composite import composite
from aotlite.ir.op.dims import along
from aotlite.ir.op.operand import Operand
from aotlite.ir.op.parameter_types import Number
from aotlite.ir.ops.declare import common_device, pure
from aotlite.ir.ops.index.gather import check_window, padded
from aotlite.ir.ops.index.positions import (
    adder,
    check_index_dtype,
    check_same_dtype,
    fits,
    flat_copy,
    line,
    places_in,
    values_at,
    write_at,
)
from aotlite.ir.ops.loops import Loops, LoopTensor
from aotlite.ir.ops.precision import taken_by
from aotlite.ir.ops.reduction_rows import BY_MAX, BY_MIN, BY_PROD, BY_SUM, Monoid
from aotlite.ir.scalar.expression import Scalar


# ------------------------------------------------------------------------------------- scatter
def _scatter_rule(
    self: TensorMeta, dim: int, index: TensorMeta, src: TensorMeta | type
) -> TensorMeta:
    check_index_dtype("scatter", index)
    metas = [self, index]
    if type(src) is TensorMeta:
        check_same_dtype("scatter", self, src, "src")
        check_window("scatter", self, dim, index, src)
        metas.append(src)
    else:
        check_window("scatter", self, dim, index)
        if src is complex and not self.dtype.is_complex:
            raise DTypeError(f"scatter: the value is complex, expected a real one for {self.dtype}")
    return tensor_meta(self.shape, None, self.dtype, common_device("scatter", metas))


def _scatter_kernel(
    xp: Namespace, meta: TensorMeta, a: Array, dim: int, index: Array, src: Any
) -> Array:
    flat, is_array = flat_copy(xp, a), hasattr(src, "dtype")
    if 0 not in index.shape:
        for part, places in places_in(xp, "scatter", a, dim, index):
            flat[places] = values_at(xp, index, src, part) if is_array else _cast(xp, meta, src)
    return xp.reshape(flat, meta.shape)


def _cast(xp: Namespace, meta: TensorMeta, number: Number) -> Array:
    return xp.full((), taken_by(meta.dtype, number), dtype=meta.dtype.numpy)


def _scatter_loops(
    k: Loops, meta: TensorMeta, a: LoopTensor, dim: int, index: LoopTensor, src: Any
) -> LoopTensor | None:
    if not hasattr(src, "meta") and not fits(meta.dtype, src):
        return None
    result = k.map(meta, lambda *i: a[i])
    if 0 in index.shape:
        return result
    if hasattr(src, "meta"):
        values = line(src)
        return write_at(k, result, (dim, index), lambda i: values[i])
    return write_at(k, result, (dim, index), lambda i: src)


SCATTER: PureOp = pure(
    "scatter(Tensor self, int dim, Tensor index, Tensor|Scalar src) -> Tensor",
    meta=_scatter_rule,
    kernel=_scatter_kernel,
    vjp={
        "self": lambda grad, dim, index: grad._do("scatter", dim, index, 0),
        "src": lambda grad, dim, index, src_meta: padded(grad.gather(dim, index), src_meta.shape),
    },
    cost=Cost.INDEXING,
    moves=("self", "src"),
    dims=along("dim"),
    inplace=True,
    loops=_scatter_loops,
)
"""A copy with `src` (elements, or one number) at positions `index` along `dim`."""


@composite(
    "scatter(Tensor self, int dim, Tensor index, Tensor|Scalar? src=None, Scalar? value=None, *, "
    "str? reduce=None) -> Tensor",
    inplace="Writes elements, or one value, to positions along a dimension, or reduces into them.",
)
def scatter(
    self: Operand,
    dim: int,
    index: Operand,
    src: Operand,
    value: Operand,
    reduce: str | None,
    end: str = "",
) -> Operand:
    """A copy with elements, or one value, written to (or reduced into) positions along `dim`."""
    if (src is None) == (value is None):
        raise ArgumentError(
            f"scatter: arguments 'src' and 'value' are {src!r} and {value!r}, expected one of them"
        )
    given = value if src is None else src
    if reduce is None:
        return self._do("scatter" + end, dim, index, given)
    if reduce not in ("add", "multiply"):
        raise ArgumentError(
            f"scatter: argument 'reduce' is {reduce!r}, expected 'add' or 'multiply'"
        )
    if not hasattr(given, "meta"):
        given = self.new_full(index.shape, given)
    if reduce == "add":
        return self._do("scatter_add" + end, dim, index, given)
    return self._do("scatter_reduce" + end, dim, index, given, "prod")


# ------------------------------------------------------------------------------------- reducing
REDUCTIONS: dict[str, Monoid] = {
    "sum": BY_SUM,
    "mean": BY_SUM,
    "prod": BY_PROD,
    "amax": BY_MAX,
    "amin": BY_MIN,
}


def _scatter_reduce_rule(
    self: TensorMeta, dim: int, index: TensorMeta, src: TensorMeta, reduce: str, include_self: bool
) -> TensorMeta:
    name = "scatter_reduce"
    if reduce not in REDUCTIONS:
        raise ArgumentError(
            f"{name}: argument 'reduce' is {reduce!r}, expected one of {', '.join(REDUCTIONS)}"
        )
    check_index_dtype(name, index)
    check_same_dtype(name, self, src, "src")
    check_window(name, self, dim, index, src)
    ordered = reduce in ("amax", "amin")
    if self.dtype.is_complex if ordered else reduce == "mean" and self.dtype is dtypes.bool_:
        raise DTypeError(f"{name}: dtype is {self.dtype}, expected another one for {reduce!r}")
    return tensor_meta(self.shape, None, self.dtype, common_device(name, [self, index, src]))


def _scatter_reduce_kernel(
    xp: Namespace,
    meta: TensorMeta,
    a: Array,
    dim: int,
    index: Array,
    src: Array,
    reduce: str,
    include_self: bool,
) -> Array:
    flat, combine = flat_copy(xp, a), getattr(xp, REDUCTIONS[reduce].pairs)
    if 0 in index.shape:
        return xp.reshape(flat, meta.shape)
    if not include_self:
        for _, places in places_in(xp, "scatter_reduce", a, dim, index):
            flat[places] = REDUCTIONS[reduce].neutral(meta.dtype)
    count = xp.full(flat.shape if reduce == "mean" else (0,), int(include_self), dtype=xp.int64)
    for part, places in places_in(xp, "scatter_reduce", a, dim, index):
        combine.at(flat, places, values_at(xp, index, src, part))
        if reduce == "mean":
            xp.add.at(count, places, 1)
    if reduce == "mean":
        flat = _divided(xp, meta, flat, xp.maximum(count, 1))
    return xp.reshape(flat, meta.shape)


def _divided(xp: Namespace, meta: TensorMeta, total: Array, count: Array) -> Array:
    if meta.dtype.is_differentiable:
        return xp.astype(total / xp.astype(count, total.dtype), meta.dtype.numpy)
    return xp.astype(total // count, meta.dtype.numpy)


Both = tuple[Any, Any]


def _gradients(
    grad: Operand, operands: tuple[Any, Any, Any], place: tuple[int, Any], reduce: str, own: bool
) -> Both:
    """The gradients of self and of the part of src that the index spans, as PyTorch has them."""
    self, src, result = operands
    dim, index = place
    if reduce == "sum":
        first, second = grad, grad.gather(dim, index)
    elif reduce == "mean":
        ones = grad.new_ones(index.shape)
        count = (grad.new_ones if own else grad.new_zeros)(grad.shape)
        count = count.scatter_add(dim, index, ones)
        share = grad / (count == 0).where(1, count)
        first, second = share, share.gather(dim, index)
    elif reduce == "prod":
        first, second = _of_product(grad, (self, src, result), place, own)
    else:
        first, second = _of_extreme(grad, (self, src, result), place, own)
    return (first if own else first._do("scatter", dim, index, 0)), second


def _of_product(
    grad: Operand, operands: tuple[Any, Any, Any], place: tuple[int, object], own: bool
) -> Both:
    """Where one factor is 0, its gradient is the product of the others."""
    self, src, result = operands
    dim, index = place
    filled = (self == 0).where(1, self)
    first = grad * filled.scatter_reduce(dim, index, src, "prod", include_self=own) / filled
    zero = src == 0
    zeros = grad.new_zeros(grad.shape).scatter_add(dim, index, zero.to(grad.dtype))
    lone = zero & (zeros.gather(dim, index) == 1)
    others = self.scatter_reduce(dim, index, lone.where(1, src), "prod", include_self=own)
    plain = (grad * result).gather(dim, index) / zero.where(1, src)
    return first, lone.where((grad * others).gather(dim, index), plain)


def _of_extreme(
    grad: Operand, operands: tuple[Any, Any, Any], place: tuple[int, object], own: bool
) -> Both:
    """Shared among those that are the extreme."""
    self, src, result = operands
    dim, index = place
    mine = (self == result).to(grad.dtype)
    its = (src == result.gather(dim, index)).to(grad.dtype)
    if own:  # of none that is nan: the gradient is nan too
        share = grad / mine.scatter_add(dim, index, its)
        return mine * share, its * share.gather(dim, index)
    untouched = grad.new_ones(grad.shape)._do("scatter", dim, index, 0)
    share = grad / untouched.scatter_add(dim, index, its)
    return grad, its * share.gather(dim, index)


def _reduced_self(
    grad: Operand,
    self: Operand,
    dim: int,
    index: Operand,
    src: Operand,
    result: Operand,
    reduce: str,
    include_self: bool,
) -> Operand:
    src = _spanned(src, index)
    return _gradients(grad, (self, src, result), (dim, index), reduce, include_self)[0]


def _reduced_src(
    grad: Operand,
    self: Operand,
    dim: int,
    index: Operand,
    src: Operand,
    result: Operand,
    reduce: str,
    include_self: bool,
) -> Operand:
    part = _spanned(src, index)
    found = _gradients(grad, (self, part, result), (dim, index), reduce, include_self)[1]
    return padded(found, src.shape)


def _spanned(src: Operand, index: Operand) -> Operand:
    """The part of `src` that the index spans."""
    if len(src.shape) != len(index.shape):
        if index.numel() == 0:  # of any rank
            return src.new_zeros(index.shape)
        return src.unsqueeze(0) if index.shape else src.select(0, 0)
    for dim, (have, wanted) in enumerate(zip(src.shape, index.shape, strict=True)):
        if have != wanted:
            src = src._do("slice", dim, 0, wanted, 1)
    return src


def _scatter_reduce_loops(
    k: Loops,
    meta: TensorMeta,
    a: LoopTensor,
    dim: int,
    index: LoopTensor,
    src: LoopTensor,
    reduce: str,
    include_self: bool,
) -> LoopTensor | None:
    if adder(meta.dtype) != "sum":
        return None
    result = k.map(meta, lambda *i: a[i])
    if 0 in index.shape:
        return result
    at, values, kind = (dim, index), line(src), REDUCTIONS[reduce].name
    if not include_self:
        neutral = REDUCTIONS[reduce].neutral(meta.dtype)
        write_at(k, result, at, lambda i: neutral)
    write_at(k, result, at, lambda i: values[i], kind)
    if reduce != "mean":
        return result
    whole = meta.with_dtype(dtypes.int64)
    count = k.map(whole, lambda *i: int(include_self))
    write_at(k, count, at, lambda i: 1, "sum")
    return k.map(meta, lambda *i: _mean_of(k, result[i], count[i]))


def _mean_of(k: Loops, whole: Scalar, count: Scalar) -> Scalar:
    parts = k.where(count < 1, 1, count)
    if whole.dtype.is_differentiable:
        return whole / k.cast(parts, whole.dtype)
    wide = k.cast(whole, dtypes.int64)
    below = k.where(wide < 0, parts - 1, 0)  # rounded down, as `//` does
    return k.cast(k.make("idiv", wide - below, parts), whole.dtype)


SCATTER_REDUCE: PureOp = pure(
    "scatter_reduce(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, "
    "bool include_self=True) -> Tensor",
    meta=_scatter_reduce_rule,
    kernel=_scatter_reduce_kernel,
    vjp={"self": _reduced_self, "src": _reduced_src},
    cost=Cost.INDEXING,
    inplace=True,
    loops=_scatter_reduce_loops,
)
"""A copy in which elements of `src` are reduced into positions `index` along `dim`. With
`include_self=False` the old values there do not count."""
