"""Images in another size where sizes are symbols: kernels compute which pixels are read.

Known sizes have tables of the host (`upsample.py`). Positions and shares are the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType
from aotlite.ir.geometry.sizes import Size, always_equal, maximum, minimum
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.ops.loops import Loops, LoopTensor, Place, Position
from aotlite.ir.ops.precision import accumulator
from aotlite.ir.scalar.expression import Scalar

LoopTaps = list[tuple[LoopTensor, LoopTensor | None]]
"""(positions, shares or None) along an axis, as tensors of loops."""

EXACT = 2**23
"""Up to this position a half more is exact in float32."""


def taps_of(
    k: Loops, name: str, dtype: DType, ends: tuple[Size, Size], scale: float | None, align: bool
) -> LoopTaps:
    """The taps along an axis; `ends` are the input's and the result's size."""
    if "nearest" in name:
        return _nearest(k, "exact" in name, ends, scale)
    return _linear(k, dtype, ends, scale, align)


def _nearest(k: Loops, exact: bool, ends: tuple[Size, Size], scale: float | None) -> LoopTaps:
    size, count = ends
    if scale and not exact and (_is_same(size, count) or _is_same(2 * size, count)):
        scale = None
    step = _step(k, ends, scale, dtypes.float32)

    def place(i: Position) -> Scalar:
        index = k.cast(k.position(i), dtypes.float32)
        index = index + 0.5 if exact else index
        return _least(k, k.cast(k.make("floor", index * step), dtypes.int64), size - 1)

    return [(k.map(tensor_meta((count,), None, dtypes.int64), place), None)]


def _linear(
    k: Loops, dtype: DType, ends: tuple[Size, Size], scale: float | None, align: bool
) -> LoopTaps:
    size, count = ends
    line, shares = (tensor_meta((count,), None, each) for each in (dtypes.int64, dtype))
    if _is_same(size, count):
        return [(k.map(line, k.position), None)]
    step = _step(k, ends, scale, dtype)
    if align:
        step = _ratio(k, size - 1, count - 1, dtype) if count > 1 else k.number(0, dtype)

    def between(i: Place) -> Scalar:
        index = k.cast(k.position(i), dtype)
        place = index * step if align else (index + 0.5) * step - 0.5
        return place if align else k.where(place < 0, 0, place)

    def below(i: Place) -> Scalar:
        return _least(k, k.cast(k.make("floor", between(i)), dtypes.int64), size - 1)

    def rest(i: Place) -> Scalar:
        share = between(i) - k.cast(below(i), dtype)
        share = k.where(share < 0, 0, share)
        return k.where(share > 1, 1, share)

    near = k.map(line, below), k.map(shares, lambda i: 1 - rest(i))
    far = k.map(line, lambda i: _least(k, below(i) + 1, size - 1)), k.map(shares, rest)
    return [near, far]


def _step(k: Loops, ends: tuple[Size, Size], scale: float | None, dtype: DType) -> Scalar:
    return k.number(1.0 / scale, dtype) if scale else _ratio(k, *ends, dtype)


def _ratio(k: Loops, a: Size, b: Size, dtype: DType) -> Scalar:
    """a / b as Python computes it, in a dtype."""
    return k.cast(k.number(a, dtypes.float64) / k.number(b, dtypes.float64), dtype)


def _is_same(a: Size, b: Size) -> bool:
    """Whether both sizes are equal, asked as an order: unequal expressions may be equal sizes."""
    return maximum(a, b) <= minimum(a, b)


def _least(k: Loops, value: Scalar, most: Size) -> Scalar:
    return k.where(value < most, value, most)


def whole_times(name: str, ends: tuple[Size, Size], scale: float | None) -> int:
    """How often each pixel comes, one after the other, for every size; 0 if that is not known."""
    size, count = ends
    if "nearest" not in name or not count <= EXACT:
        return 0
    times = next((n for n in (1, 2, 4, 8) if always_equal(n * size, count)), 0)
    return times if scale is None or scale == times else 0


def spread(
    k: Loops, meta: TensorMeta, grad: LoopTensor, rows: LoopTaps, columns: LoopTaps
) -> LoopTensor:
    """Each pixel as the sum of what reads it: the gradient's elements are added to their places."""
    total = k.map(meta.with_dtype(accumulator(meta.dtype)), lambda *i: 0)
    for (y_at, y_share), (x_at, x_share) in product(rows, columns):
        part = _part(k, grad, (y_at, x_at), (y_share, x_share))
        k.scatter(total, grad.shape, part, ordered=(2, 3), combine="sum")
    if total.dtype is meta.dtype:
        return total
    return k.map(meta, lambda *i: k.cast(total[i], meta.dtype))


def _part(
    k: Loops,
    grad: LoopTensor,
    places: tuple[LoopTensor, LoopTensor],
    shares: tuple[LoopTensor | None, LoopTensor | None],
) -> Callable[..., tuple[tuple[Place, ...], Scalar]]:
    def element(*i: Position) -> tuple[tuple[Place, ...], Scalar]:
        value = k.wide(grad[i])
        for table, x in zip(shares, i[2:], strict=True):
            value = value if table is None else value * table[x]
        return (*i[:2], *[table[x] for table, x in zip(places, i[2:], strict=True)]), value

    return element
