"""Where the window of a convolution or of pooling stands on an image."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple, TypeVar

from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.errors import ArgumentError
from aotlite.ir.geometry import sizes
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op.parameter_types import Number
from aotlite.ir.ops.loops import Loops, LoopTensor, Place, Position
from aotlite.ir.scalar.expression import Scalar

Ints = tuple[int, ...]
Given = int | Sequence[int]
"""What users give for sizes: one number for all, or one each."""


SizeT = TypeVar("SizeT", bound=int | None)


def along_a_line(name: str, argument: str, value: int | Sequence[SizeT]) -> tuple[int | SizeT, ...]:
    """The one number of an argument of a function on lines."""
    given = sizes.as_tuple(value)
    if len(given) != 1:
        raise ArgumentError(f"{name}: argument '{argument}' is {value}, expected one number")
    return given


def pair(name: str, argument: str, value: Ints, least: int) -> tuple[int, int]:
    """The value for height and width, from one number or two."""
    both = value * 2 if len(value) == 1 else value
    if len(both) != 2 or any(n < least for n in both):
        raise ArgumentError(
            f"{name}: argument '{argument}' is {value}, expected 1 or 2 numbers of at least {least}"
        )
    return both[0], both[1]


class Window(NamedTuple):
    """Where a window stands on an image: all fields are (height, width), in pixels."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @property
    def extent(self) -> tuple[int, int]:
        """Pixels from the first to the last place of the window, both counted."""
        (kh, kw), (dh, dw) = self.kernel, self.dilation
        return dh * (kh - 1) + 1, dw * (kw - 1) + 1

    def places(self) -> list[tuple[int, int]]:
        """(row, column) of each place, from the window's first, in row-major order."""
        (kh, kw), (dh, dw) = self.kernel, self.dilation
        return [(i * dh, j * dw) for i in range(kh) for j in range(kw)]

    def seen(self, place: tuple[int, int], out: Ints) -> tuple[Any, ...]:
        """The index of the padded image's pixels that this place of the window meets."""
        steps = zip(place, out, self.stride, strict=True)
        return (..., *(slice(first, first + step * (n - 1) + 1, step) for first, n, step in steps))


def window_of(name: str, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Window:
    """The window of a call's arguments. Raises ArgumentError for what is none."""
    return Window(
        pair(name, "kernel_size", kernel, 1),
        pair(name, "stride", stride, 1),
        pair(name, "padding", padding, 0),
        pair(name, "dilation", dilation, 1),
    )


def _padded_sides(image: Ints, window: Window, out: Ints) -> Ints:
    """Height and width of an image with what its windows reach beside it."""
    sides = zip(window.padding, image, out, window.stride, window.extent, strict=True)
    return tuple([max(pad + size, (n - 1) * step + end) for pad, size, n, step, end in sides])


WINDOWS = "2 padded images + 16 places"


def held_by_windows(image: Ints, window: Window, out: Ints) -> int:
    """Elements of the padded image, twice, and for each place of a window 16: Python's numbers."""
    *planes, height, width = image
    padded = prod(planes) * prod(_padded_sides((height, width), window, out))
    return 2 * padded + 16 * prod(window.kernel)


def padded_image(xp: Namespace, image: Array, window: Window, out: Ints, value: Number) -> Array:
    """The image with `value` around it, as far as the windows reach."""
    height, width = image.shape[-2:]
    top, left = window.padding
    rows, columns = _padded_sides(image.shape[-2:], window, out)
    if (rows, columns) == (height, width):
        return image
    padded = xp.full((*image.shape[:-2], rows, columns), value, dtype=image.dtype)
    padded[..., top : top + height, left : left + width] = image
    return padded


def lines(xp: Namespace, count: int, step: int, first: int) -> Array:
    """Row (or column) of the image where place `first` of each window falls."""
    return xp.arange(count, dtype=xp.int64) * step + first


FEW = 25
"""Places of a window that are written out: 5 x 5."""


def _are_few(over: Ints) -> bool:
    """Whether the places of a window are written out: never where their number is a symbol."""
    count = sizes.numel(over)
    return type(count) is int and 0 < count <= FEW


Term = Callable[[Sequence[Place], Sequence[Place]], Scalar]
"""(positions in the result, place in the window) -> scalar."""
Candidate = Callable[[Sequence[Place], Sequence[Place]], tuple[Scalar, Scalar]]
"""The same -> (value, place)."""


def places_summed(
    k: Loops,
    meta: TensorMeta,
    over: Ints,
    term: Term,
    finish: Callable[[Scalar, Sequence[Place]], Scalar],
) -> LoopTensor:
    """The tensor of `finish(sum of terms, positions)`, cast to the result's dtype."""
    if _are_few(over):
        places = list(product(*map(range, over)))
        return k.map(meta, lambda *i: k.cast(finish(summed(term, i, places), i), meta.dtype))
    rows: list[Sequence[Place]] = []

    def seen(row: Sequence[Place], place: Sequence[Place]) -> Scalar:
        rows[:] = [row]
        return term(row, place)

    def finished(total: Scalar) -> Scalar:
        return k.cast(finish(total, rows[0]), meta.dtype)

    return k.reduce("sum", meta, over, seen, finish=finished)


def summed(term: Term, row: Sequence[Place], places: Iterable[Sequence[Place]]) -> Scalar:
    """The sum of the terms at these places, in order."""
    first, *rest = [term(row, place) for place in places]
    for each in rest:
        first = first + each
    return first


def places_best(
    k: Loops, metas: tuple[TensorMeta, TensorMeta], over: Ints, parts: Candidate, *, whole: bool
) -> tuple[LoopTensor, ...]:
    """The largest value of each window and its place, of (value, place); the first of equal ones,
    the last of nans. `whole`: no window has places beside the image.
    """
    if not _are_few(over):
        best: tuple[LoopTensor, ...] = k.reduce(
            "pool_max",
            metas,
            over,
            parts,
            finish=lambda value, place: (k.cast(value, metas[0].dtype), place),
        )
        return best
    outs = tuple([k.new(meta) for meta in metas])

    def element(*i: Position) -> tuple[Scalar, Scalar]:
        value, place = _best(k, [parts(i, at) for at in product(*map(range, over))], whole)
        return k.cast(value, metas[0].dtype), place

    k.stores(outs, element)
    return outs


def _best(k: Loops, candidates: list[tuple[Scalar, Scalar]], whole: bool) -> tuple[Scalar, Scalar]:
    (value, place), *rest = candidates
    for other, its in rest:
        wins = k.make("gt", other, value)
        if not whole:  # what is beside the image is the least, and comes after its equals
            wins = wins | (k.make("eq", other, value) & (its < place))
        if other.dtype.is_floating_point:
            wins = wins | k.make("ne", other, other)
        value, place = k.where(wins, other, value), k.where(wins, its, place)
    return value, place
