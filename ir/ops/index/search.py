"""Binary search in sorted sequences (searchsorted, bucketize), and quantile, nanquantile."""

from __future__ import annotations

from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError
from aotlite.ir.geometry import sizes
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.composite import composite
from aotlite.ir.op.operand import Operand
from aotlite.ir.op.parameter_types import Number
from aotlite.ir.op.workspace import RESULTS
from aotlite.ir.ops.declare import common_device, common_dtype, pure
from aotlite.ir.ops.index.positions import check_range
from aotlite.ir.ops.precision import accumulator, cast, wide
from aotlite.ir.ops.views.forms import in_shape


# ---------------------------------------------------------------------------- searchsorted
def _search_rule(
    sorted_sequence: TensorMeta,
    self: TensorMeta | type,
    out_int32: bool,
    right: bool,
    side: str | None,
    sorter: TensorMeta | None,
) -> TensorMeta:
    _check_side(right, side)
    given = [meta for meta in (sorted_sequence, self, sorter) if isinstance(meta, TensorMeta)]
    device = common_device("searchsorted", given)
    shape = self.shape if isinstance(self, TensorMeta) else ()
    _check_shapes(sorted_sequence, shape)
    _check_dtype(common_dtype((sorted_sequence, self)), sizes.numel(shape))
    if sorter is not None:
        _check_sorter(sorted_sequence, sorter)
    return tensor_meta(shape, None, dtypes.int32 if out_int32 else dtypes.int64, device)


def _check_side(right: bool, side: str | None) -> None:
    if side not in (None, "left", "right"):
        raise ArgumentError(
            f"searchsorted: argument 'side' is {side!r}, expected 'left' or 'right'"
        )
    if right and side == "left":
        raise ArgumentError(
            "searchsorted: argument 'side' is 'left' and 'right' is True, expected one side"
        )


def _check_shapes(sequence: TensorMeta, shape: tuple[int, ...]) -> None:
    lines = sequence.shape[:-1]
    if (
        not sequence.shape
        or (lines and not sizes.same_shape(lines, shape[:-1]))
        or (lines and not shape)
    ):
        raise ShapeError(
            f"searchsorted: shapes are {sequence.shape} and {shape}, expected a sequence of 1 "
            "dimension, or the same sizes before the last"
        )


def _check_dtype(dtype: DType, count: int) -> None:
    if dtype.kind in (dtypes.BOOL, dtypes.COMPLEX) and count != 0:  # as PyTorch, with nothing to do
        raise DTypeError(f"searchsorted: dtype is {dtype}, expected one of real numbers")


def _check_sorter(sequence: TensorMeta, sorter: TensorMeta) -> None:
    if sorter.dtype is not dtypes.int64:
        raise DTypeError(f"searchsorted: the sorter has dtype {sorter.dtype}, expected int64")
    if not sizes.same_shape(sequence.shape, sorter.shape):
        raise ShapeError(
            f"searchsorted: the sorter has shape {sorter.shape}, expected {sequence.shape}, the "
            "sequence's"
        )


def _search_kernel(
    xp: Namespace, meta: TensorMeta, sequence: Array, values: object, *options: Any
) -> Array:
    _, right, side, sorter = options
    size = sequence.shape[-1]
    if sorter is not None:
        check_range(xp, "searchsorted", sorter, size)
        sequence = xp.take_along_axis(sequence, sorter, axis=-1)
    values = xp.asarray(values)
    values = wide(xp, values, dtypes.from_numpy(values.dtype))
    if values.size == 0 or size == 0:
        return xp.zeros(meta.shape, dtype=meta.dtype.numpy)
    right = right or side == "right"
    # NumPy copies a sequence that is not contiguous, and one of 16-bit floats would be widened. Its
    # search ends at a nan of the sequence; PyTorch's goes past it.
    dtype = dtypes.from_numpy(sequence.dtype)
    as_it_is = sequence.ndim == 1 and sequence.flags.c_contiguous and accumulator(dtype) is dtype
    if not as_it_is or bool(xp.isnan(xp.max(sequence))):
        lines = values if sequence.ndim > 1 else xp.reshape(values, (-1,))
        places = bisected(xp, sequence, lines, right=right)
        return cast(xp, xp.reshape(places, meta.shape), meta.dtype)
    places = xp.searchsorted(sequence, values, side="right" if right else "left")
    return cast(xp, xp.where(xp.isnan(values), size, places), meta.dtype)


def bisected(xp: Namespace, sequence: Array, values: Array, *, right: bool) -> Array:
    """For each value, the number of elements of its line before it, by bisection of all lines.

    As in PyTorch, the search goes on past an element that is nan, and for a nan past every element.
    """
    size = sequence.shape[-1]
    low = xp.zeros(values.shape, dtype=xp.int64)
    high = xp.full(values.shape, size, dtype=xp.int64)
    for _ in range(size.bit_length()):
        middle = (low + high) // 2
        inside = xp.take_along_axis(sequence, xp.minimum(middle, low * 0 + size - 1), axis=-1)
        inside = wide(xp, inside, dtypes.from_numpy(inside.dtype))
        after = inside > values if right else inside >= values
        before = xp.logical_and(low < high, xp.logical_not(after))
        high = xp.where(xp.logical_and(low < high, after), middle, high)
        low = xp.where(before, middle + 1, low)
    return low


SEARCHSORTED: PureOp = pure(
    "searchsorted(Tensor sorted_sequence, Tensor|Scalar self, *, bool out_int32=False,"
    " bool right=False, str? side=None, Tensor? sorter=None) -> Tensor",
    meta=_search_rule,
    kernel=_search_kernel,
    vjp=None,
    cost=Cost.INDEXING,
    workspace={RESULTS: 8, "sorter": 2},
)
"""The position at which each value would keep the sorted sequence (of its line) sorted."""


@composite(
    "bucketize(Tensor|Scalar self, Tensor boundaries, *, bool out_int32=False, bool right=False)"
    " -> Tensor",
    is_method=False,
)
def bucketize(self: Operand | Number, boundaries: Operand, out_int32: bool, right: bool) -> Operand:
    """The index of the bucket of each value, between sorted boundaries."""
    if boundaries.ndim != 1:
        raise ShapeError(
            f"bucketize: the boundaries have shape {boundaries.shape}, expected 1 dimension"
        )
    args = SEARCHSORTED.bind((boundaries, self), {"out_int32": out_int32, "right": right})
    return boundaries._apply(SEARCHSORTED, args)


# -------------------------------------------------------------------------------- quantiles
_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")
_QUANTILE = (
    "(Tensor self, Tensor|Scalar q, int? dim=None, bool keepdim=False, *,"
    " str interpolation='linear') -> Tensor"
)


@composite("quantile" + _QUANTILE)
def quantile(
    self: Operand, q: object, dim: int | None, keepdim: bool, interpolation: str
) -> Operand:
    """The q-quantiles along a dimension, first in the result; nan where there is a nan."""
    q = _checked("quantile", self, q, interpolation)
    lines = _lines("quantile", self, dim)
    last = lines.shape[-1] - 1
    ranks = (q * last).masked_fill(lines.isnan().any(-1, True), last)
    return _shaped(self, _between(lines, ranks, interpolation), q, dim, keepdim)


@composite("nanquantile" + _QUANTILE)
def nanquantile(
    self: Operand, q: object, dim: int | None, keepdim: bool, interpolation: str
) -> Operand:
    """The q-quantiles of what is not nan."""
    q = _checked("nanquantile", self, q, interpolation)
    lines = _lines("nanquantile", self, dim)
    found = lines.isnan().logical_not().sum(-1, True)
    ranks = (q * (found - 1)).clamp(0)
    return _shaped(self, _between(lines, ranks, interpolation), q, dim, keepdim)


def _checked(name: str, self: Operand, q: Any, interpolation: str) -> Operand:
    """q as a tensor of the operand's dtype."""
    if self.dtype not in (dtypes.float32, dtypes.float64):
        raise DTypeError(f"{name}: dtype is {self.dtype}, expected float32 or float64")
    if interpolation not in _INTERPOLATIONS:
        raise ArgumentError(
            f"{name}: argument 'interpolation' is {interpolation!r}, expected one of "
            f"{', '.join(_INTERPOLATIONS)}"
        )
    if not hasattr(q, "meta"):
        if isinstance(q, complex) or not 0 <= q <= 1:
            raise ArgumentError(f"{name}: argument 'q' is {q}, expected 0 <= q <= 1")
        return self.new_full((), q)
    if q.dtype is not self.dtype:
        raise DTypeError(f"{name}: argument 'q' has dtype {q.dtype}, expected {self.dtype}")
    if q.ndim > 1:
        raise ShapeError(f"{name}: argument 'q' has shape {q.shape}, expected at most 1 dimension")
    return q


def _lines(name: str, self: Operand, dim: int | None) -> Operand:
    """The operand sorted along what is reduced, moved last, with a dimension of size 1 there."""
    if self.meta.numel == 0:
        raise ShapeError(f"{name}: the operand has shape {self.shape}, expected no empty one")
    if dim is not None:
        dim = sizes.wrap_dim(dim, self.ndim, op=name)
    if dim is None or not self.shape:
        line = in_shape(self, (*(1,) * self.ndim, sizes.numel(self.shape)))
        return line.sort()[0]
    return self.unsqueeze(-1).transpose(dim, -1).sort()[0]


def _between(lines: object, ranks: Any, interpolation: str) -> Any:
    """The values at the ranks along the last dimension."""
    rounded = {"higher": "ceil", "nearest": "round"}.get(interpolation)
    if rounded is not None:
        return _at(lines, getattr(ranks, rounded)())
    low = ranks.floor()
    below = _at(lines, low)
    if interpolation == "lower":
        return below
    above = _at(lines, ranks.ceil())
    return below.lerp(above, ranks - low if interpolation == "linear" else 0.5)


def _at(lines: Any, ranks: Any) -> Any:
    index = ranks.long()
    return lines.gather(-1, index.expand((*lines.shape[:-1], index.shape[-1])))


def _shaped(self: Operand, found: Any, q: Any, dim: int | None, keepdim: bool) -> Operand:
    """The quantiles first, then what is kept."""
    found = found.unsqueeze(0).transpose(0, -1).squeeze(-1)
    if not keepdim and self.shape:
        reduced = range(self.ndim) if dim is None else (dim % self.ndim,)
        for i in reversed(reduced):
            found = found.squeeze(i + 1)
    return found if q.shape else found.squeeze(0)
