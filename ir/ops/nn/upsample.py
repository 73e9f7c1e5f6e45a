"""Images in another size: by the nearest pixel, or by what is between four. Linear, both ways.

Positions are computed in float32 (between pixels of float64 in float64), as PyTorch does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from aotlite.ir import dtypes
from aotlite.ir.arrays import NUMPY, Array, Namespace
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError
from aotlite.ir.geometry.sizes import Shape, Size, is_symbolic
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.composite import composite
from aotlite.ir.ops.declare import pure
from aotlite.ir.ops.index.positions import taken
from aotlite.ir.ops.loops import Loops, LoopTensor, Place, Position
from aotlite.ir.ops.nn.upsample_sizes import LoopTaps, spread, taps_of, whole_times
from aotlite.ir.ops.precision import OperandT, accumulator, cast, wide
from aotlite.ir.ops.shape.memory_format import image_like
from aotlite.ir.scalar.expression import Scalar

Scales = tuple[float | None, float | None]
Tap = tuple[Array, Array | None]
Taps = list[Tap]
"""(positions, shares or None) along an axis: the result is the sum of these elements."""


# ------------------------------------------------------------------------------------- positions
def _nearest(
    xp: Namespace, name: str, ends: tuple[int, int], scale: float | None, align: bool
) -> Taps:
    """Which pixel each of the result's is.

    As in PyTorch a scale does not count where the size is the same or twice as large.
    """
    size, count = ends
    if "exact" not in name and count in (size, 2 * size):
        scale = None
    step = xp.asarray(1.0 / scale if scale else size / max(count, 1), dtype=xp.float32)
    index = xp.astype(xp.arange(count, dtype=xp.int64), xp.float32)
    index = index + 0.5 if "exact" in name else index
    found = xp.astype(xp.floor(index * step), xp.int64)
    return [(xp.minimum(found, size - 1), None)]


def _linear(
    xp: Namespace, dtype: object, ends: tuple[int, int], scale: float | None, align: bool
) -> Taps:
    """Which two pixels each of the result's lies between, and their shares.

    As in PyTorch a scale does not count where the size is the same.
    """
    size, count = ends
    if size == count:
        return [(xp.arange(count, dtype=xp.int64), None)]
    index = xp.astype(xp.arange(count, dtype=xp.int64), dtype)
    if align:
        step = xp.asarray((size - 1) / (count - 1) if count > 1 else 0.0, dtype=dtype)
        place = index * step
    else:
        step = xp.asarray(1.0 / scale if scale else size / max(count, 1), dtype=dtype)
        place = xp.maximum((index + 0.5) * step - 0.5, 0)
    low = xp.minimum(xp.astype(xp.floor(place), xp.int64), size - 1)
    rest = xp.clip(place - xp.astype(low, dtype), 0, 1)
    return [(low, 1 - rest), (xp.minimum(low + 1, size - 1), rest)]


def _taps(
    xp: Namespace,
    name: str,
    dtype: object,
    ends: list[tuple[int, int]],
    options: tuple[bool, Scales],
) -> list[Taps]:
    """`Taps` of rows and columns; `ends` are (input's, result's) sizes of both."""
    align, scales = options
    if "nearest" in name:
        return [_nearest(xp, name, e, s, align) for e, s in zip(ends, scales, strict=True)]
    return [_linear(xp, dtype, e, s, align) for e, s in zip(ends, scales, strict=True)]


# ------------------------------------------------------------------------------- along one axis
def _gathered(xp: Namespace, a: Array, axis: int, taps: Taps) -> Array:
    total: Array | None = None
    for places, shares in taps:
        part = _shared(xp, taken(xp, a, places, axis), axis, shares)
        total = part if total is None else total + part
    assert total is not None
    return total


def _read(size: int, taps: Taps, xp: Namespace) -> tuple[Array, Taps]:
    """Which places of an axis to read, and the taps on these; all of them if taps read no fewer."""
    count = taps[0][0].shape[0]
    if len(taps) * count >= size:
        return xp.arange(size), taps
    begins = range(0, len(taps) * count, count)
    shares = [share for _, share in taps]
    renamed = [(xp.arange(n, n + count), s) for n, s in zip(begins, shares, strict=True)]
    return xp.concat([places for places, _ in taps]), renamed


def _scattered(xp: Namespace, grad: Array, axis: int, taps: Taps, size: int) -> Array:
    """The transpose of `_gathered`."""
    shape = list(grad.shape)
    shape[axis] = size
    total = xp.zeros(tuple(shape), dtype=grad.dtype)
    for places, shares in taps:
        xp.add.at(total, (*[slice(None)] * axis, places), _shared(xp, grad, axis, shares))
    return total


def _shared(xp: Namespace, a: Array, axis: int, shares: Array | None) -> Array:
    if shares is None:
        return a
    column = [1] * a.ndim
    column[axis] = -1
    return a * xp.reshape(shares, tuple(column))


def upsampled(k: Loops, meta: TensorMeta, a: LoopTensor, how: _Resized) -> LoopTensor:
    """Each place as the sum of what it reads."""
    times = how.times()
    if all(times):  # each pixel becomes a block: no position is computed
        out = k.new(meta)
        shape, stride = _blocks(meta, a.shape, times)
        k.store(out.view(shape, stride), lambda n, c, i, _, j, __: a[n, c, i, j])
        return out
    rows, columns = how.tables(k)

    def element(n: Position, c: Position, y: Position, x: Position) -> Scalar:
        def across(row: Place) -> Scalar:
            return _total(columns, x, lambda column: k.wide(a[n, c, row, column]))

        return k.cast(_total(rows, y, across), meta.dtype)

    return k.map(meta, element)


def upsampled_backward(k: Loops, meta: TensorMeta, grad: LoopTensor, how: _Resized) -> LoopTensor:
    """Each pixel as the sum of the places that read it."""
    times = how.times()
    if all(times):
        blocks = grad.view(*_blocks(grad.meta, meta.shape, times))

        def of_block(i: Sequence[Place], inner: Sequence[Place]) -> Scalar:
            return k.wide(blocks[i[0], i[1], i[2], inner[0], i[3], inner[1]])

        return k.reduce("sum", meta, times, of_block)
    if how.is_symbolic:
        return spread(k, meta, grad, *how.tables(k))
    pairs = zip(how.taps(), meta.shape[2:], strict=True)
    rows, columns = (_readers(k, *each) for each in pairs)

    def share(i: Sequence[Place], inner: Sequence[Place]) -> Scalar:
        (n, c, y, x), (r, s) = i, inner
        valid = rows.counts[y] > k.position(r), columns.counts[x] > k.position(s)
        value = k.wide(grad[n, c, rows.places[y, r], columns.places[x, s]])
        for table, at in ((rows.shares, (y, r)), (columns.shares, (x, s))):
            value = value if table is None else value * table[at]
        return k.where(k.all(*valid), value, 0)

    return k.reduce("sum", meta, (rows.most, columns.most), share)


# --------------------------------------------------------------------------------------- tables
def _whole_times(taps: Taps, size: int) -> int:
    """How often each pixel comes, one after the other; 0 if that differs."""
    if len(taps) > 1 or taps[0][1] is not None:
        return 0
    places = taps[0][0].tolist()
    times = len(places) // size
    return times if times and places == [x // times for x in range(size * times)] else 0


def _blocks(
    meta: TensorMeta, small: tuple[int, ...], times: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(shape, strides) of a large image whose places are in a block for each pixel of the small."""
    (h, w), (y, x) = small[2:], meta.stride[2:]
    shape = (*meta.shape[:2], h, times[0], w, times[1])
    return shape, (*meta.stride[:2], times[0] * y, y, times[1] * x, x)


def _tables(k: Loops, tap: Tap) -> tuple[LoopTensor, LoopTensor | None]:
    places, shares = tap
    return k.table(places), None if shares is None else k.table(shares)


def _total(
    taps: list[tuple[LoopTensor, LoopTensor | None]],
    x: Position,
    element: Callable[[Scalar], Scalar],
) -> Scalar:
    total: Scalar | None = None
    for places, shares in taps:
        part = element(places[x])
        part = part if shares is None else part * shares[x]
        total = part if total is None else total + part
    assert total is not None
    return total


class _Readers(NamedTuple):
    """Which places read each pixel, with which shares: tables as wide as the longest list."""

    most: int
    counts: Any
    places: Any
    shares: Any


def _readers(k: Loops, taps: Taps, size: int) -> _Readers:
    found: list[list[tuple[int, float]]] = [[] for _ in range(size)]
    for places, shares in taps:
        for x, place in enumerate(places.tolist()):
            found[place].append((x, 1.0 if shares is None else shares.tolist()[x]))
    most = max(map(len, found))
    padded = [[*each, *[(0, 0.0)] * (most - len(each))] for each in found]
    counts = k.table([len(each) for each in found])
    at = k.table([[x for x, _ in each] for each in padded])
    if taps[0][1] is None:
        return _Readers(most, counts, at, None)
    kind = taps[0][1].dtype.type
    return _Readers(
        most, counts, at, k.table(kind([[share for _, share in each] for each in padded]))
    )


# -------------------------------------------------------------------------------------- the ops
_SCALES = "float? scales_h=None, float? scales_w=None"


def _image(name: str, self: TensorMeta, size: Shape) -> TensorMeta:
    if len(self.shape) != 4 or 0 in self.shape[1:]:
        raise ShapeError(
            f"{name}: the tensor has shape {self.shape}, expected 4 dimensions, all but the batch "
            "of at least 1"
        )
    if len(size) != 2 or any(n < 1 for n in size):
        raise ShapeError(
            f"{name}: argument 'output_size' is {size}, expected two sizes of at least 1"
        )
    is_image = self.dtype.is_floating_point or ("nearest" in name and self.dtype is dtypes.uint8)
    if not is_image:
        raise DTypeError(f"{name}: dtype is {self.dtype}, expected a floating one")
    return image_like(self, (*self.shape[:2], *size))


def _gradient_image(
    name: str, grad_output: TensorMeta, output_size: Shape, input_size: Shape
) -> TensorMeta:
    if grad_output.shape != (*input_size[:2], *output_size):
        raise ShapeError(
            f"{name}: argument 'grad_output' has shape {grad_output.shape}, expected "
            f"{(*input_size[:2], *output_size)}"
        )
    _image(name, grad_output, output_size)
    if any(n < 1 for n in input_size[2:]):
        raise ShapeError(
            f"{name}: argument 'input_size' is {input_size}, expected sizes of at least 1"
        )
    return image_like(grad_output, input_size)


def _settled(align: str, rest: tuple[Any, ...]) -> tuple[bool, Scales]:
    """(align_corners, scales) of the arguments behind the sizes."""
    return (rest[0] if align else False), (rest[-2], rest[-1])


class _Resized(NamedTuple):
    """How an image gets another size; `ends` are (small, large) sizes of rows and columns."""

    name: str
    dtype: DType
    ends: tuple[tuple[int, int], ...]
    align: bool
    scales: Scales

    @property
    def is_symbolic(self) -> bool:
        return any(map(is_symbolic, self.ends))

    def taps(self) -> list[Taps]:
        """The taps of known sizes, as arrays of NumPy."""
        options = self.align, self.scales
        return _taps(NUMPY.namespace, self.name, self.dtype.numpy, list(self.ends), options)

    def times(self) -> list[int]:
        """How often each pixel comes along rows and columns; 0 if that differs."""
        if self.is_symbolic:
            return [
                whole_times(self.name, *each) for each in zip(self.ends, self.scales, strict=True)
            ]
        sizes = [small for small, _ in self.ends]
        return list(map(_whole_times, self.taps(), sizes))

    def tables(self, k: Loops) -> list[LoopTaps]:
        """The taps as tensors of loops."""
        if not self.is_symbolic:
            return [[_tables(k, tap) for tap in each] for each in self.taps()]
        return [
            taps_of(k, self.name, self.dtype, ends, scale, self.align)
            for ends, scale in zip(self.ends, self.scales, strict=True)
        ]


def _resized(
    name: str, a: LoopTensor, small: Shape, large: Shape, options: tuple[bool, Scales]
) -> _Resized:
    ends = tuple(zip(small[2:], large[2:], strict=True))
    return _Resized(name, accumulator(a.dtype), ends, *options)


def _declare(name: str, align: str) -> PureOp:
    """The op `name`; `align` is the text of its parameter `align_corners`, if it has one."""

    def rule(self: TensorMeta, output_size: Shape, *rest: object) -> TensorMeta:
        return _image(name, self, output_size)

    def kernel(xp: Namespace, meta: TensorMeta, a: Array, output_size: Shape, *rest: Any) -> Array:
        ends = list(zip(a.shape[2:], meta.shape[2:], strict=True))
        options = _settled(align, rest)
        rows, columns = _taps(xp, name, accumulator(meta.dtype).numpy, ends, options)
        (y, rows), (x, columns) = _read(a.shape[2], rows, xp), _read(a.shape[3], columns, xp)
        if (len(y), len(x)) != a.shape[2:]:
            a = a[:, :, y[:, None], x]
        a = wide(xp, a, meta.dtype)
        return cast(xp, _gathered(xp, _gathered(xp, a, 3, columns), 2, rows), meta.dtype)

    def loops(
        k: Loops, meta: TensorMeta, a: LoopTensor, output_size: Shape, *rest: object
    ) -> LoopTensor:
        how = _resized(name, a, a.shape, meta.shape, _settled(align, rest))
        return upsampled(k, meta, a, how)

    return pure(
        f"{name}(Tensor self, int[] output_size, {align}{_SCALES}) -> Tensor",
        meta=rule,
        kernel=kernel,
        loops=loops,
        vjp={"self": _formula(f"{name}_backward", align, "grad, output_size, self_meta.shape")},
        cost=Cost.INDEXING,
    )


def _declare_backward(name: str, align: str) -> PureOp:
    """The op that computes the gradient of the op `name`."""
    backward = f"{name}_backward"

    def rule(
        grad_output: TensorMeta, output_size: Shape, input_size: Shape, *rest: object
    ) -> TensorMeta:
        return _gradient_image(backward, grad_output, output_size, input_size)

    def kernel(
        xp: Namespace,
        meta: TensorMeta,
        grad: Array,
        output_size: Shape,
        input_size: Shape,
        *rest: object,
    ) -> Array:
        grad = wide(xp, grad, meta.dtype)
        ends = list(zip(input_size[2:], output_size, strict=True))
        rows, columns = _taps(xp, name, grad.dtype, ends, _settled(align, rest))
        inner = _scattered(xp, grad, 2, rows, input_size[2])
        return cast(xp, _scattered(xp, inner, 3, columns, input_size[3]), meta.dtype)

    def loops(
        k: Loops,
        meta: TensorMeta,
        grad: LoopTensor,
        output_size: Shape,
        input_size: Shape,
        *rest: object,
    ) -> LoopTensor:
        how = _resized(name, grad, meta.shape, grad.shape, _settled(align, rest))
        return upsampled_backward(k, meta, grad, how)

    return pure(
        f"{backward}(Tensor grad_output, int[] output_size, int[] input_size, {align}{_SCALES}) "
        "-> Tensor",
        meta=rule,
        kernel=kernel,
        loops=loops,
        vjp={"grad_output": _formula(name, align, "grad, output_size")},
        cost=Cost.INDEXING,
    )


def _formula(called: str, align: str, begin: str) -> Callable[..., object]:
    """A formula with the parameters that `begin` and the op's options name."""
    rest = ("align_corners, " if align else "") + "scales_h, scales_w"
    names = begin.replace(".shape", "")
    scope: dict[str, Any] = {}
    # A formula's parameter names say what it reads, and they differ with `align_corners`.
    exec(
        f"def formula({names}, {rest}):\n"
        f"    return grad._do({called!r}, {begin.removeprefix('grad, ')}, {rest})\n",
        scope,
    )
    made: Callable[..., Any] = scope["formula"]
    return made


def _both(name: str, align: str = "") -> tuple[PureOp, PureOp]:
    return _declare(name, align), _declare_backward(name, align)


UPSAMPLE_NEAREST2D = _both("upsample_nearest2d")
UPSAMPLE_NEAREST_EXACT2D = _both("upsample_nearest_exact2d")
UPSAMPLE_BILINEAR2D = _both("upsample_bilinear2d", "bool align_corners, ")


# -------------------------------------------------------------------------------- what users call
_OPS = {
    ("nearest", 1): "upsample_nearest2d",
    ("nearest", 2): "upsample_nearest2d",
    ("nearest-exact", 1): "upsample_nearest_exact2d",
    ("nearest-exact", 2): "upsample_nearest_exact2d",
    ("linear", 1): "upsample_bilinear2d",
    ("bilinear", 2): "upsample_bilinear2d",
}


@composite(is_method=False)
def interpolate(
    input: OperandT,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
) -> OperandT:
    """Lines (n, c, l) or images (n, c, h, w) in another size, given as such or as a factor.

    `mode` is "nearest", "nearest-exact", "linear" for lines or "bilinear" for images.
    """
    rank = input.ndim - 2
    name = _OPS.get((mode, rank))
    if name is None:
        raise ArgumentError(
            f"interpolate: mode is {mode!r} for shape {input.shape}, expected 'nearest' or "
            "'nearest-exact' with 3 or 4 dimensions, 'linear' with 3, 'bilinear' with 4"
        )
    if align_corners is not None and "nearest" in mode:
        raise ArgumentError(
            f"interpolate: align_corners is {align_corners} with mode {mode!r}, expected None"
        )
    output, scales = _asked_for(input.shape[2:], size, scale_factor)
    if recompute_scale_factor or size is not None:
        scales = (None,) * rank
    image = input.unsqueeze(-2) if rank == 1 else input
    options = () if "nearest" in mode else (bool(align_corners),)
    if rank == 1:
        output, scales = (1, *output), (None, *scales)
    result = image._do(name, output, *options, *scales)
    return result.squeeze(-2) if rank == 1 else result


def _asked_for(shape: Shape, size: Any, scale_factor: Any) -> tuple[Shape, tuple[object, ...]]:
    """The result's sizes, and the factors."""
    if (size is None) == (scale_factor is None):
        raise ArgumentError(
            f"interpolate: size is {size} and scale_factor {scale_factor}, expected one of them"
        )
    rank = len(shape)
    given = scale_factor if size is None else size
    each = tuple(given) if isinstance(given, (tuple, list)) else (given,) * rank
    if len(each) != rank:
        raise ArgumentError(f"interpolate: {given} is given for shape {shape}, expected {rank}")
    if size is not None:
        return each, (None,) * rank
    factors = tuple([float(factor) for factor in each])
    return tuple(map(_times, shape, factors)), factors


def _times(size: Size, factor: float) -> Size:
    """int(size * factor); of a symbol an expression, if the factor is a short fraction."""
    if is_symbolic((size,)) and math.isfinite(factor):
        above, below = factor.as_integer_ratio()
        if 0 < above < SHORT:  # the product is exact
            return size * above // below
    return int(size * factor)


SHORT = 2**20
"""Fractions with a smaller numerator are exact products with sizes below 2^33."""
