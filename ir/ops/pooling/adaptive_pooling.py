"""Pooling of windows that cover an image evenly, as many as the result has elements."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import ShapeError
from aotlite.ir.geometry.sizes import always_equal, ceil_div, is_symbolic
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.composite import composite
from aotlite.ir.op.dims import leading
from aotlite.ir.op.workspace import OPERANDS, RESULTS
from aotlite.ir.ops.declare import pure
from aotlite.ir.ops.index.positions import taken
from aotlite.ir.ops.kinds import require_floating
from aotlite.ir.ops.loops import Loops, LoopTensor, Place
from aotlite.ir.ops.nn.window import FEW, Ints, along_a_line, places_best, places_summed, summed
from aotlite.ir.ops.pooling.windows import (
    candidate,
    check_grad,
    check_line,
    lowest,
    plane_of,
    to_maxima,
    with_indices,
)
from aotlite.ir.ops.precision import OperandT, accumulator, cast, wide
from aotlite.ir.ops.shape.memory_format import formatted_like, image_like
from aotlite.ir.scalar.expression import Scalar
from aotlite.ir.symbols.symint import SymInt

Wished = int | Sequence[int | None]
"""A size for all dimensions or one each; None keeps the input's."""


def _image(name: str, self: TensorMeta, output_size: Ints) -> TensorMeta:
    """The meta of the result: an image like the operand, of this height and width."""
    _check_image(name, self.shape)
    require_floating(name, self.dtype)
    return image_like(self, (*self.shape[:-2], *_checked_size(name, output_size)))


def _check_image(name: str, shape: Ints) -> None:
    """Raises ShapeError unless it is (*, c, h, w), height and width not 0."""
    if len(shape) not in (3, 4) or 0 in shape[-2:]:
        raise ShapeError(
            f"{name}: the tensor has shape {shape}, expected 3 or 4 dimensions, height and width "
            "of at least 1"
        )


def _checked_size(name: str, output_size: Ints) -> Ints:
    """(height, width) of the result, from one number or two."""
    size = output_size * 2 if len(output_size) == 1 else output_size
    if len(size) != 2 or any(n < 0 for n in size):
        raise ShapeError(
            f"{name}: argument 'output_size' is {output_size}, expected 1 or 2 sizes of at least 0"
        )
    return size


def _covered(xp: Namespace, count: int, size: int) -> tuple[Array, Array]:
    """First and end of each of `count` stretches that cover `size` places evenly."""
    index = xp.arange(count, dtype=xp.int64)
    return index * size // max(count, 1), -(-(index + 1) * size // max(count, 1))


def _longest(xp: Namespace, stretch: tuple[Array, Array]) -> int:
    """Places of the longest of some stretches, given by their first places and ends."""
    first, end = stretch
    return int(xp.max(end - first)) if first.size else 0


def _filled_in(output_size: Wished, own: Ints) -> Ints:
    """The sizes asked for, the own ones in the places of None."""
    if isinstance(output_size, (int, SymInt)):
        output_size = (output_size,) * len(own)
    if len(output_size) != len(own):
        return tuple([-1 if size is None else size for size in output_size])
    return tuple([n if size is None else size for size, n in zip(output_size, own, strict=True)])


# -------------------------------------------------------------------------------------- the mean
def _stretch_sums(xp: Namespace, a: Array, axis: int, count: int) -> Array:
    """Sums over `count` stretches that cover an axis evenly; they may share their ends."""
    size = a.shape[axis]
    first, end = _covered(xp, count, size)
    shape = list(a.shape)
    shape[axis] = count
    total = xp.zeros(tuple(shape), dtype=a.dtype)
    column = [1] * a.ndim
    column[axis] = count
    for step in range(_longest(xp, (first, end))):
        inside = xp.reshape(first + step < end, tuple(column))
        piece = taken(xp, a, xp.minimum(first + step, size - 1), axis)
        total = total + xp.where(inside, piece, xp.zeros((), dtype=a.dtype))
    return total


def _areas(xp: Namespace, out: Ints, image: Ints, dtype: object) -> Array:
    """(outH, outW): how many places each window covers."""
    rows, columns = (_covered(xp, *sides) for sides in zip(out, image, strict=True))
    return xp.astype((rows[1] - rows[0])[:, None] * (columns[1] - columns[0]), dtype)


def _both_sums(xp: Namespace, a: Array, out: Ints) -> Array:
    return _stretch_sums(xp, _stretch_sums(xp, a, a.ndim - 1, out[1]), a.ndim - 2, out[0])


# ----------------------------------------------------------------------- windows that cover evenly
def _stretch(i: Any, count: int, size: int) -> tuple[Any, Any]:
    """First and end of stretch i of `count` that cover `size` places evenly."""
    return i * size // count, ((i + 1) * size + count - 1) // count


def _divide(counts: Ints) -> bool:
    """Whether there is a stretch along each axis; of symbols, an order that is asked."""
    return all(count > 0 for count in counts)


def _most_places(count: int, size: int) -> int:
    """Places of the longest stretch; of symbols, at least as many."""
    if is_symbolic((count, size)):
        if count >= size:
            return 1 if always_equal(count, size) else 2
        return size if always_equal(count, 1) else ceil_div(size, count) + 1
    return max([end - first for first, end in (_stretch(i, count, size) for i in range(count))])


def even_maxima(
    k: Loops, metas: tuple[TensorMeta, TensorMeta], a: LoopTensor
) -> tuple[LoopTensor, ...]:
    """The largest element of each window and its place in the plane."""
    image, out = a.shape[-2:], metas[0].shape[-2:]
    if 0 in metas[0].shape or not _divide(out):
        return k.new(metas[0]), k.new(metas[1])

    def parts(row: Sequence[Place], inner: Sequence[Place]) -> tuple[Scalar, Scalar]:
        plane, *at = plane_of(row)
        places, inside = _stretched(k, at, inner, (out, image))
        return candidate(k, a, (*plane, *places), inside)

    whole = all(always_equal(size % count, 0) for count, size in zip(out, image, strict=True))
    return places_best(k, metas, tuple(map(_most_places, out, image)), parts, whole=whole)


def _stretched(
    k: Loops, at: Sequence[Place], inner: Sequence[Place], sides: tuple[Ints, Ints]
) -> tuple[list[Place], Scalar]:
    """(row and column at a place of the window at these positions, whether it has that place)."""
    places, inside = [], []
    for i, step, count, size in zip(at, inner, *sides, strict=True):
        first, end = _stretch(i, count, size)
        places.append(step + first)
        inside.append(k.position(step + first) < k.position(end))
    return places, k.all(*inside)


def even_means(k: Loops, meta: TensorMeta, a: LoopTensor, *, backward: bool = False) -> LoopTensor:
    """The mean of each window; or what windows with these values give to each pixel."""
    formed, here, there = accumulator(meta.dtype), meta.shape[-2:], a.shape[-2:]
    if 0 in meta.shape or 0 in a.shape or not _divide((*here, *there)):
        return k.map(meta, lambda *i: 0)

    def term(row: Sequence[Place], inner: Sequence[Place]) -> Scalar:
        plane, *at = plane_of(row)
        places, inside = _stretched(k, at, inner, (here, there))
        value = k.cast(a[(*plane, *places)], formed)
        if backward:
            value = value / _area(k, places, (there, here), formed)
        return k.where(inside, value, 0)

    def finish(total: Scalar, row: Sequence[Place]) -> Scalar:
        return total if backward else total / _area(k, row[-2:], (here, there), formed)

    rows, columns = map(_most_places, here, there)
    if is_symbolic((rows, columns)) or rows * columns > FEW:
        return places_summed(k, meta, (rows, columns), term, finish)

    def line(
        row: Sequence[Place], inner: Sequence[Place]
    ) -> Scalar:  # as the kernel does, which sums lines first
        return summed(term, row, [(*inner, step) for step in range(columns)])

    return places_summed(k, meta, (rows,), line, finish)


def _area(k: Loops, at: Sequence[Place], sides: tuple[Ints, Ints], dtype: DType) -> Scalar:
    """How many places the window at these positions covers."""
    lengths = []
    for i, count, size in zip(at, *sides, strict=True):
        affine = hasattr(i, "extents")
        first, end = (_stretch if affine else partial(_of_scalar, k))(i, count, size)
        lengths.append(k.position(end) - k.position(first))
    return k.cast(lengths[0] * lengths[1], dtype)


def _of_scalar(k: Loops, i: Any, count: int, size: int) -> tuple[Scalar, Scalar]:
    last = (i + 1) * size + (count - 1)
    return k.make("idiv", i * size, count), k.make("idiv", last, count)


def _mean_kernel(xp: Namespace, meta: TensorMeta, a: Array, output_size: Ints) -> Array:
    a, out = wide(xp, a, meta.dtype), meta.shape[-2:]
    result = _both_sums(xp, a, out) / _areas(xp, out, a.shape[-2:], a.dtype)
    return cast(xp, result, meta.dtype)


ADAPTIVE_AVG_POOL2D: PureOp = pure(
    "adaptive_avg_pool2d(Tensor self, int[] output_size) -> Tensor",
    meta=lambda self, output_size: _image("adaptive_avg_pool2d", self, output_size),
    kernel=_mean_kernel,
    # PyTorch saves self for its shape.
    vjp={"self": lambda grad, self: grad._do("adaptive_avg_pool2d_backward", self)},
    cost=Cost.REDUCTION,
    dims=leading(2),
    loops=lambda k, meta, a, output_size: even_means(k, meta, a),
)
"""The means of windows that cover the image evenly, as many as the result has elements."""


def _mean_back_rule(grad_output: TensorMeta, self: TensorMeta) -> TensorMeta:
    name = "adaptive_avg_pool2d_backward"
    if len(grad_output.shape) != len(self.shape):
        raise ShapeError(
            f"{name}: argument 'grad_output' has shape {grad_output.shape}, expected "
            f"{len(self.shape)} dimensions"
        )
    check_grad(name, grad_output, _image(name, self, grad_output.shape[-2:]))
    return image_like(self, self.shape)


def _mean_back_kernel(xp: Namespace, meta: TensorMeta, grad: Array, a: Array) -> Array:
    grad = wide(xp, grad, meta.dtype)
    share = grad / _areas(xp, grad.shape[-2:], a.shape[-2:], grad.dtype)
    # A place lies in window i exactly if i lies in the place's stretch of the windows.
    return cast(xp, _both_sums(xp, share, a.shape[-2:]), meta.dtype)


ADAPTIVE_AVG_POOL2D_BACKWARD: PureOp = pure(
    "adaptive_avg_pool2d_backward(Tensor grad_output, Tensor self) -> Tensor",
    meta=_mean_back_rule,
    kernel=_mean_back_kernel,
    vjp={
        "grad_output": lambda grad, grad_output_meta: grad._do(
            "adaptive_avg_pool2d", grad_output_meta.shape[-2:]
        ),
        "self": lambda grad: grad.new_zeros(grad.shape),
    },
    cost=Cost.REDUCTION,
    dims=leading(2),
    loops=lambda k, meta, grad, a: even_means(k, meta, grad, backward=True),
    workspace={RESULTS: 4, OPERANDS: 6},  # shares of the gradient, along one axis after the other
)
"""The gradient of adaptive_avg_pool2d towards `self`, which is read for its geometry alone."""


@composite(is_method=False)
def adaptive_avg_pool2d(input: OperandT, output_size: Wished) -> OperandT:
    """The means of windows that cover the image evenly: (n, c, h, w) -> (n, c, *output_size).

    None in the place of a size keeps the input's.
    """
    name = "adaptive_avg_pool2d"
    size = _checked_size(name, _filled_in(output_size, input.shape[-2:]))
    if size != (1, 1) or input.ndim not in (3, 4):
        return input._do(name, size)
    # As in PyTorch, whose mean saves nothing.
    return formatted_like(input.mean((-1, -2), True), input.meta)


@composite(is_method=False)
def adaptive_avg_pool1d(input: OperandT, output_size: Wished) -> OperandT:
    """The means of stretches that cover the line evenly: (n, c, l) -> (n, c, output_size)."""
    check_line("adaptive_avg_pool1d", input)
    (size,) = along_a_line("adaptive_avg_pool1d", "output_size", output_size)
    return adaptive_avg_pool2d(input.unsqueeze(-2), (1, size)).squeeze(-2)


# ----------------------------------------------------------------------------------- the maximum
def _max_rule(self: TensorMeta, output_size: Ints) -> tuple[TensorMeta, TensorMeta]:
    values = _image("adaptive_max_pool2d", self, output_size)
    return values, values.with_dtype(dtypes.int64)


def _max_kernel(
    xp: Namespace, metas: tuple[TensorMeta, TensorMeta], a: Array, output_size: Ints
) -> tuple[Array, Array]:
    a, shape = wide(xp, a, metas[0].dtype), metas[0].shape
    (height, width), out = a.shape[-2:], shape[-2:]
    rows, columns = _covered(xp, out[0], height), _covered(xp, out[1], width)
    best = xp.full(shape, lowest(xp, a.dtype), dtype=a.dtype)
    where = xp.broadcast_to(rows[0][:, None] * width + columns[0], shape)
    for i in range(_longest(xp, rows)):
        row = xp.minimum(rows[0] + i, rows[1] - 1)
        line = taken(xp, a, row, -2)
        for j in range(_longest(xp, columns)):
            # Past its end a window sees its last place again, which changes nothing.
            column = xp.minimum(columns[0] + j, columns[1] - 1)
            seen = taken(xp, line, column, -1)
            better = xp.logical_or(seen > best, seen != seen)
            best = xp.where(better, seen, best)
            where = xp.where(better, row[:, None] * width + column, where)
    return cast(xp, best, metas[0].dtype), where


ADAPTIVE_MAX_POOL2D: PureOp = pure(
    "adaptive_max_pool2d(Tensor self, int[] output_size) -> (Tensor values, Tensor indices)",
    meta=_max_rule,
    kernel=_max_kernel,
    # PyTorch saves self for its shape.
    vjp={"self": to_maxima},
    cost=Cost.REDUCTION,
    dims=leading(2),
    loops=lambda k, metas, a, output_size: even_maxima(k, metas, a),
)
"""The maxima and their places in the plane (row-major); the first of equal ones."""


@composite(is_method=False)
def adaptive_max_pool2d(
    input: OperandT, output_size: Wished, return_indices: bool = False
) -> OperandT:
    """The maxima of windows that cover the image evenly: (n, c, h, w) -> (n, c, *output_size).

    None in the place of a size keeps the input's; with indices, a pair.
    """
    size = _filled_in(output_size, input.shape[-2:])
    pair = input._do("adaptive_max_pool2d", size)
    return with_indices(pair[0], pair[1]) if return_indices else pair[0]
