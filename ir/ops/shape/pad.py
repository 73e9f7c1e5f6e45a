"""Padding: with one value (`constant_pad_nd`), or with what the tensor itself has.

A padding lists, from the last dimension on, how much is put before and behind; less than nothing
cuts off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.dtypes import bool_
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError
from aotlite.ir.geometry import layout, sizes
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.op.composite import composite
from aotlite.ir.op.dims import leading
from aotlite.ir.op.parameter_types import Number
from aotlite.ir.ops.declare import in_parts, pure
from aotlite.ir.ops.index.positions import taken
from aotlite.ir.ops.loops import Loops, LoopTensor, Place, Position
from aotlite.ir.ops.precision import OperandT, accumulator, cast, taken_by, wide
from aotlite.ir.ops.shape.memory_format import agreed_strides
from aotlite.ir.scalar.expression import Scalar

Padding = tuple[int, ...]


def _sides(name: str, shape: tuple[int, ...], padding: Padding) -> list[tuple[int, int]]:
    """What is put before and behind each dimension. Raises ShapeError."""
    count = len(padding) // 2
    if len(padding) % 2 or count > len(shape):
        raise ShapeError(
            f"{name}: argument 'pad' is {padding}, expected an even number of values, at most "
            f"{2 * len(shape)} for shape {shape}"
        )
    pairs = [(padding[2 * i], padding[2 * i + 1]) for i in range(count)]
    sides = [(0, 0)] * (len(shape) - count) + pairs[::-1]
    for size, (before, behind) in zip(shape, sides, strict=True):
        if size + min(before, 0) + min(behind, 0) < 0:
            raise ShapeError(
                f"{name}: argument 'pad' is {padding}, expected to cut off no more than there is "
                f"of shape {shape}"
            )
    return sides


def _padded_shape(shape: tuple[int, ...], sides: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    return tuple(n + before + behind for n, (before, behind) in zip(shape, sides, strict=True))


# ------------------------------------------------------------------------------- with one value
def _constant_rule(self: TensorMeta, pad: Padding, value: type) -> TensorMeta:
    name = "constant_pad_nd"
    shape = _padded_shape(self.shape, _sides(name, self.shape, pad))
    if value is complex and not self.dtype.is_complex:
        raise DTypeError(f"{name}: the value is complex, expected a real one for {self.dtype}")
    if all(n <= 0 for n in pad):  # a copy of a part
        stride = layout.clone_strides(shape, self.stride)
    else:
        stride = agreed_strides(shape, (self,))
    return tensor_meta(shape, stride, self.dtype, self.device)


def _constant_kernel(
    xp: Namespace, meta: TensorMeta, a: Array, pad: Padding, value: Number
) -> Array:
    result = xp.full(meta.shape, taken_by(meta.dtype, value), dtype=meta.dtype.numpy)
    source, target = [], []
    for n, (before, behind) in zip(a.shape, _sides("pad", a.shape, pad), strict=True):
        first, last = max(-before, 0), n + min(behind, 0)
        source.append(slice(first, last))
        target.append(slice(max(before, 0), max(before, 0) + last - first))
    result[tuple(target)] = a[tuple(source)]
    return result


def _constant_loops(
    k: Loops, meta: TensorMeta, a: LoopTensor, pad: Padding, value: Number
) -> LoopTensor:
    sides = _sides("pad", a.shape, pad)
    border = k.number(value, meta.dtype)

    def element(*i: Position) -> Scalar:
        at = tuple([x - before for x, (before, _) in zip(i, sides, strict=True)])
        inside = [k.inside(x, 0, n) for x, n in zip(at, a.shape, strict=True)]
        return k.where(k.all(*inside), a[at], border)

    return k.map(meta, element)


CONSTANT_PAD: PureOp = pure(
    "constant_pad_nd(Tensor self, int[] pad, Scalar value=0) -> Tensor",
    meta=_constant_rule,
    kernel=_constant_kernel,
    loops=_constant_loops,
    vjp={"self": lambda grad, pad: grad.constant_pad_nd(tuple([-n for n in pad]), 0)},
    cost=Cost.INDEXING,
    dims=lambda args, results: leading(len(args["pad"]) // 2)(args, results),
)


def _padded_parts(do: Any, x: Any, pad: Any, value: Any) -> Any:
    given = do("full", x.meta.shape, True, bool_, x.meta.device)
    inside = do("constant_pad_nd", given, pad, False)
    return do("where", inside, do("constant_pad_nd", x, pad, 0.0), value)


in_parts(CONSTANT_PAD, _padded_parts)


# ------------------------------------------------------------------------------- with the tensor
def _check_repeating(name: str, self: TensorMeta, padding: Padding) -> list[tuple[int, int]]:
    shape, count = self.shape, len(padding) // 2
    if len(padding) not in (2, 4, 6) or len(shape) - count not in (1, 2):
        raise ShapeError(
            f"{name}: argument 'padding' is {padding} for shape {shape}, expected a pair for each "
            "of the last 1 to 3 dimensions, with 1 or 2 dimensions before them"
        )
    if name != "circular_pad" and self.dtype is dtypes.bool_:
        raise DTypeError(f"{name}: dtype is {self.dtype}, expected one of numbers")
    sides = _sides(name, shape, padding)
    for dim, (size, pair) in enumerate(zip(shape, sides, strict=True)):
        if dim >= len(shape) - count:
            _check_side(name, size, pair, dim)
    return sides


def _check_side(name: str, size: int, pair: tuple[int, int], dim: int) -> None:
    most = {"reflection_pad": size - 1, "circular_pad": size}.get(name)
    if most is not None and max(pair) > most:
        raise ShapeError(
            f"{name}: the padding of dimension {dim} is {pair}, expected at most {most}, its size "
            f"being {size}"
        )
    if name == "circular_pad" and max(pair) > 0 and size + min(*pair, 0) < 1:
        raise ShapeError(
            f"{name}: the padding of dimension {dim} is {pair}, expected to leave something of its "
            f"size {size}"
        )
    if name != "circular_pad" and (size == 0 or size + sum(pair) < 1):
        raise ShapeError(
            f"{name}: the padding of dimension {dim} is {pair}, expected at least 1 element before "
            f"and after, its size being {size}"
        )


def _places(xp: Namespace, name: str, size: int, pair: tuple[int, int]) -> Array:
    """Where in a dimension each place of the padded one has its value from."""
    places = xp.arange(-pair[0], size + pair[1])
    if name == "circular_pad":  # what is cut off on one side does not come again on the other
        first, last = max(-pair[0], 0), size + min(pair[1], 0)
        return (places - first) % (last - first) + first
    if name == "replication_pad":
        return xp.clip(places, 0, size - 1)
    last = size - 1
    return last - xp.abs(last - xp.abs(places))


def _repeating_strides(name: str, shape: tuple[int, ...], meta: TensorMeta) -> tuple[int, ...]:
    if name == "circular_pad":  # PyTorch makes it of copies
        return layout.contiguous_strides(shape)
    return agreed_strides(shape, (meta,))


Sides = Callable[[tuple[int, ...], tuple[int, ...]], list[tuple[int, int]]]


class PadRun(NamedTuple):
    """Places first <= x < end of the padded dimension, which read slope * x + shift."""

    first: int
    end: int
    slope: int
    shift: int


def runs_of(name: str, size: int, pair: tuple[int, int]) -> list[PadRun]:
    """The runs of one dimension, in order. None is empty."""
    before, length = pair[0], size + sum(pair)
    if name == "circular_pad":
        first = max(-before, 0)
        period = size + min(pair[1], 0) - first
        origin = before + first
        ends = [origin + turn * period for turn in _turns(origin, period, length)]
        found = [PadRun(end, end + period, 1, first - end) for end in ends]
    elif name == "replication_pad":
        found = [
            PadRun(0, before, 0, 0),
            PadRun(before, before + size, 1, -before),
            PadRun(before + size, length, 0, size - 1),
        ]
    else:
        found = [
            PadRun(0, before, -1, before),
            PadRun(before, before + size, 1, -before),
            PadRun(before + size, length, -1, before + 2 * (size - 1)),
        ]
    cut = [run._replace(first=max(run.first, 0), end=min(run.end, length)) for run in found]
    return [run for run in cut if run.first < run.end]


def _turns(origin: int, period: int, length: int) -> range:
    """The turns, from origin + turn * period on, that cover 0 to length - 1."""
    if not period > 0:
        return range(0)
    first = 0
    while origin + first * period > 0:
        first -= 1
    end = first + 1
    while origin + end * period < length:
        end += 1
    return range(first, end)


def padded_loops(name: str, sides_of: Sides) -> Callable[..., object]:
    """The loops of a padding: each run of places is a branch."""

    def loops(k: Loops, meta: TensorMeta, a: LoopTensor, padding: tuple[int, ...]) -> LoopTensor:
        sides = sides_of(a.shape, padding)
        if 0 in meta.shape:
            return k.new(meta)
        runs = [runs_of(name, n, pair) for n, pair in zip(a.shape, sides, strict=True)]
        if not all(runs):  # a symbolic size of 0
            return k.new(meta)
        return k.map(meta, lambda *i: _chosen(k, a, i, (), runs))

    return loops


def _chosen(
    k: Loops,
    a: LoopTensor,
    i: tuple[Place, ...],
    found: tuple[Place, ...],
    runs: list[list[PadRun]],
) -> Scalar:
    """The element for the positions that are `found`, and those of the other dimensions."""
    if len(found) == len(runs):
        return a[found]
    value: Scalar | None = None
    x: Any = i[len(found)]
    for run in reversed(runs[len(found)]):
        here = _chosen(k, a, i, (*found, x * run.slope + run.shift), runs)
        value = here if value is None else k.where(x < run.end, here, value)
    assert value is not None
    return value


_UNROLLED = 16
"""So many places may read one element."""


def padding_backward_loops(name: str, sides_of: Sides) -> Callable[..., object]:
    """The loops of the gradient: each element sums the places that read it, in their order."""

    def loops(
        k: Loops,
        meta: TensorMeta,
        grad: LoopTensor,
        size: tuple[int, ...],
        padding: tuple[int, ...],
    ) -> LoopTensor | None:
        if 0 in grad.shape:
            return k.map(meta, lambda *i: 0)
        sides = sides_of(tuple(size), padding)
        runs = [_single(runs_of(name, n, pair)) for n, pair in zip(size, sides, strict=True)]
        if not all(runs):  # a symbolic size of 0
            return k.map(meta, lambda *i: 0)
        if any(len(each) > _UNROLLED for each in runs):
            return None
        zero = k.number(0, accumulator(meta.dtype))

        def total(i: Sequence[Place], found: tuple[Place, ...]) -> Scalar:
            """The sum over the dimensions that are left, the last one outermost."""
            dim = meta.ndim - 1 - len(found)
            if dim < 0:
                return k.wide(grad[found])
            value: Scalar | None = None
            for run in runs[dim]:
                place, condition = _reader(k, run, i[dim])
                part = k.where(condition, total(i, (place, *found)), zero)
                value = part if value is None else value + part
            assert value is not None
            return value

        return k.map(meta, lambda *i: k.cast(total(i, ()), meta.dtype))

    return loops


def _single(runs: list[PadRun]) -> list[PadRun]:
    """The runs, with those that read one element taken apart."""
    found = []
    for run in runs:
        if run.slope:
            found.append(run)
        else:
            found += [PadRun(x, x + 1, 0, run.shift) for x in range(run.first, run.end)]
    return found


def _reader(k: Loops, run: PadRun, y: Any) -> tuple[Place, Scalar]:
    """The place of the run that reads element y, and whether there is one."""
    if not run.slope:
        return run.first, y.equals(run.shift)
    place = (y - run.shift) * run.slope
    return place, k.inside(place, run.first, run.end)


def _repeating(name: str, formula: Callable[..., object]) -> tuple[PureOp, PureOp]:
    """Declares a padding with the tensor's own values, and the op that its gradient is."""

    def rule(self: TensorMeta, padding: Padding) -> TensorMeta:
        shape = _padded_shape(self.shape, _check_repeating(name, self, padding))
        stride = _repeating_strides(name, shape, self)
        return tensor_meta(shape, stride, self.dtype, self.device)

    def kernel(xp: Namespace, meta: TensorMeta, a: Array, padding: Padding) -> Array:
        if 0 in meta.shape:
            return xp.zeros(meta.shape, dtype=meta.dtype.numpy)
        for dim, pair in enumerate(_sides(name, a.shape, padding)):
            if any(pair):
                a = taken(xp, a, _places(xp, name, a.shape[dim], pair), dim)
        return a

    def backward_rule(self: TensorMeta, size: tuple[int, ...], padding: Padding) -> TensorMeta:
        whole = tensor_meta(size, None, self.dtype, self.device)
        expected = _padded_shape(size, _check_repeating(name, whole, padding))
        if not sizes.same_shape(self.shape, expected):
            raise ShapeError(
                f"{name}_backward: the gradient has shape {self.shape}, expected {expected}"
            )
        stride = _repeating_strides(name, size, self)
        return tensor_meta(size, stride, self.dtype, self.device)

    def backward_kernel(
        xp: Namespace, meta: TensorMeta, a: Array, size: Array, padding: Padding
    ) -> Array:
        if 0 in a.shape:
            return xp.zeros(meta.shape, dtype=meta.dtype.numpy)
        a = wide(xp, a, meta.dtype)
        for dim, pair in enumerate(_sides(name, tuple(size), padding)):
            if any(pair):
                rows = xp.moveaxis(a, dim, 0)
                total = xp.zeros((size[dim], *rows.shape[1:]), dtype=rows.dtype)
                xp.add.at(total, _places(xp, name, size[dim], pair), rows)
                a = xp.moveaxis(total, 0, dim)
        return cast(xp, a, meta.dtype)

    forward = pure(
        f"{name}(Tensor self, int[] padding) -> Tensor",
        meta=rule,
        kernel=kernel,
        loops=padded_loops(name, partial(_sides, name)),
        vjp={"self": formula},
        cost=Cost.INDEXING,
    )
    backward = pure(
        f"{name}_backward(Tensor self, int[] size, int[] padding) -> Tensor",
        meta=backward_rule,
        kernel=backward_kernel,
        loops=padding_backward_loops(name, partial(_sides, name)),
        vjp={"self": lambda grad, padding: grad._do(name, padding)},
        cost=Cost.INDEXING,
    )
    return forward, backward


# PyTorch saves self for its shape, but not for `circular`, which it makes of copies.
REFLECTION_PAD, REFLECTION_PAD_BACKWARD = _repeating(
    "reflection_pad",
    lambda grad, self, padding: grad.reflection_pad_backward(self.shape, padding),
)
REPLICATION_PAD, REPLICATION_PAD_BACKWARD = _repeating(
    "replication_pad",
    lambda grad, self, padding: grad.replication_pad_backward(self.shape, padding),
)
CIRCULAR_PAD, CIRCULAR_PAD_BACKWARD = _repeating(
    "circular_pad",
    lambda grad, self_meta, padding: grad.circular_pad_backward(self_meta.shape, padding),
)

_MODES = {"reflect": "reflection_pad", "replicate": "replication_pad", "circular": "circular_pad"}


@composite(is_method=False)
def pad(
    input: OperandT, pad: Sequence[int], mode: str = "constant", value: Number | None = None
) -> OperandT:
    """The tensor with `pad[0]` and `pad[1]` more at the ends of its last dimension, `pad[2]` ... .

    `mode` says with what: `constant` with `value` (0), or with the tensor's own elements:
    `reflect`, `replicate`, `circular`.
    """
    pad = tuple(pad)
    if mode == "constant":
        return input.constant_pad_nd(pad, 0 if value is None else value)
    if mode not in _MODES:
        raise ArgumentError(
            f"pad: argument 'mode' is {mode!r}, expected constant, {', '.join(_MODES)}"
        )
    if value is not None and value != 0:
        raise ArgumentError(f"pad: argument 'value' is {value!r}, expected none for mode {mode!r}")
    return input._do(_MODES[mode], pad)
