"""Helpers of ops that read and write by position: checks of an index, and addresses.

An index out of range raises before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

from aotlite.ir import dtypes
from aotlite.ir.arrays import Array, Namespace
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import DTypeError, IndexOutOfRangeError
from aotlite.ir.geometry import layout, sizes
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import workspace
from aotlite.ir.ops.loops import Element, Loops, LoopTensor, Place, Position
from aotlite.ir.ops.precision import accumulator, number_in
from aotlite.ir.scalar.expression import Scalar

INDEX_DTYPES = (dtypes.int64, dtypes.int32)


def check_index_dtype(name: str, index: TensorMeta) -> None:
    if index.dtype not in INDEX_DTYPES:
        raise DTypeError(f"{name}: the index has dtype {index.dtype}, expected int64 or int32")


def check_same_dtype(name: str, self: TensorMeta, other: TensorMeta, argument: str) -> None:
    if self.dtype is not other.dtype:
        raise DTypeError(
            f"{name}: argument '{argument}' has dtype {other.dtype}, expected {self.dtype}"
        )


_FEW = 64


def check_range(
    xp: Namespace, name: str, index: Array, size: int, *, negative: bool = False
) -> None:
    """Raises IndexOutOfRangeError, which names the first index outside 0 <= index < size.

    With `negative`, the range begins at -size.
    """
    least = -size if negative else 0
    if sizes.numel(index.shape) <= _FEW:  # a loop over Python numbers is cheaper
        flat = index if len(index.shape) == 1 else xp.reshape(index, (-1,))
        places = flat.tolist()
        if not places or (min(places) >= least and max(places) < size):
            return
    elif bool(xp.min(index) >= least) and bool(xp.max(index) < size):
        return
    raise IndexOutOfRangeError(
        f"{name}: an index is {_first_outside(xp, index, least, size)}, expected {least} <= index "
        f"< {size}, the size of the dimension"
    )


def _first_outside(xp: Namespace, index: Array, least: int, size: int) -> int:
    """The first index in row-major order that is not in the range."""
    for part in blocks(index.shape):
        flat = xp.reshape(index[part], (-1,))
        wrong = xp.logical_or(flat < least, flat >= size)
        if bool(xp.any(wrong)):
            break
    found: int = flat[xp.argmax(wrong)].tolist()
    return found


def check_room(name: str, size: int, index: tuple[int, ...]) -> None:
    """Raises IndexOutOfRangeError for a nonempty index into a dimension of size 0.

    Meta rules check this, as a captured write to an empty tensor is removed from the graph.
    """
    if len(index) == 1:  # one question, also of a size and a count
        is_beyond = size < sizes.minimum(1, index[0])
    else:
        is_beyond = size == 0 and 0 not in index
    if is_beyond:
        raise IndexOutOfRangeError(
            f"{name}: the index has shape {index}, expected an empty one for a dimension of size 0"
        )


def extents(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape with a 0-d tensor counted as one of size 1, as index ops see it."""
    return shape or (1,)


def replaced(shape: tuple[int, ...], dim: int, size: int) -> tuple[int, ...]:
    return (*shape[:dim], size, *shape[dim + 1 :])


# ---------------------------------------------------------------------------------------- blocks
Part = tuple[slice, ...]


def blocks(shape: tuple[int, ...]) -> Iterator[Part]:
    """Index keys of the blocks of a shape, in row-major order, of at most `BLOCK` elements each."""
    dim, inner = 0, sizes.numel(shape)
    if inner <= workspace.BLOCK:
        yield ()
        return
    while inner > workspace.BLOCK:  # dimensions before `dim` go one by one, those behind it whole
        inner //= shape[dim]
        dim += 1
    step = workspace.BLOCK // inner
    for head in product(*map(range, shape[: dim - 1])):
        ones = [slice(i, i + 1) for i in head]
        for begin in range(0, shape[dim - 1], step):
            yield (*ones, slice(begin, begin + step))


def flat_blocks(count: int) -> Iterator[tuple[int, int]]:
    """(begin, end) of consecutive blocks of `count` elements."""
    for begin in range(0, count, workspace.BLOCK):
        yield begin, min(begin + workspace.BLOCK, count)


def placed(
    xp: Namespace, index: Array, dim: int, shape: tuple[int, ...]
) -> Iterator[tuple[Part, Array]]:
    """(block of an index, flat row-major addresses in `shape` of its elements)."""
    for part in blocks(index.shape):
        begin = [cut.start for cut in part] + [0] * len(index.shape)
        yield part, xp.reshape(_addresses(xp, index[part], dim, shape, begin), (-1,))


def places_in(
    xp: Namespace, name: str, a: Array, dim: int, index: Array
) -> Iterator[tuple[Part, Array]]:
    """`placed` for an index into `a`, whose range is checked. Raises IndexOutOfRangeError."""
    shape, lookup = extents(a.shape), xp.reshape(index, extents(index.shape))
    dim %= len(shape)
    check_range(xp, name, lookup, shape[dim])
    return placed(xp, lookup, dim, shape)


def values_at(xp: Namespace, index: Array, src: Array, part: Part) -> Array:
    """The elements of `src` for a block of the index, flat."""
    window = tuple(slice(0, n) for n in extents(index.shape))
    return xp.reshape(xp.reshape(src, extents(src.shape))[window][part], (-1,))


def _addresses(
    xp: Namespace, index: Array, dim: int, shape: tuple[int, ...], begin: list[int]
) -> Array:
    """The row-major address in `shape` of each element: its position, with `index` along `dim`."""
    total = xp.zeros((), dtype=xp.int64)
    for i, step in enumerate(layout.contiguous_strides(shape)):
        if i == dim:
            place = xp.astype(index, xp.int64)
        else:
            ones = [1] * len(shape)
            ones[i] = index.shape[i]
            own = xp.arange(begin[i], begin[i] + index.shape[i], dtype=xp.int64)
            place = xp.reshape(own, tuple(ones))
        total = total + place * step
    return total


def flat_part(xp: Namespace, a: Array, begin: int, end: int) -> Array:
    """The elements `begin:end` in row-major order; a view if the array is contiguous."""
    if a.flags.c_contiguous:
        return xp.reshape(a, (-1,))[begin:end]
    return elements(xp, a, xp.arange(begin, end))


def elements(xp: Namespace, a: Array, places: Array) -> Array:
    """The elements at row-major positions, negative ones from the end; without a copy of `a`."""
    if a.flags.c_contiguous:
        return xp.reshape(a, (-1,))[places]
    return a[xp.unravel_index(places % a.size, a.shape)]


def taken(xp: Namespace, a: Array, index: Array, axis: int) -> Array:
    """`xp.take`, for which NumPy copies an operand that is not contiguous."""
    if a.flags.c_contiguous:
        return xp.take(a, index, axis=axis)
    key: list[Any] = [slice(None)] * (axis % a.ndim)
    return a[(*key, index)]


def flat_copy(xp: Namespace, a: Array) -> Array:
    """A copy in row-major order."""
    # Not `a + 0`, which would turn -0.0 into 0.0.
    return xp.reshape(xp.array(a, order="C", copy=True), (-1,))


# ------------------------------------------------------------------------------------------ loops
def line(a: LoopTensor) -> LoopTensor:
    """The operand, with a dimension of size 1 if it is 0-d."""
    return a if a.ndim else a.view((1,), (1,))


def place_of(k: Loops, index: Scalar, size: int, *, negative: bool = False) -> Scalar:
    """The position of an index, clamped to the dimension, so that no address is out of bounds.

    `check_index` of the kernel builder must check the range as well.
    """
    found = k.cast(index, dtypes.int64)
    if negative:
        found = k.where(found < 0, found + size, found)
    return k.where(k.inside(found, 0, size), found, 0)


def put(at: tuple[Place, ...], dim: int, position: Place) -> tuple[Place, ...]:
    """Positions with another one along `dim`."""
    return (*at[:dim], position, *at[dim + 1 :])


def read_at(
    k: Loops,
    meta: TensorMeta,
    a: LoopTensor,
    dim: int,
    index: LoopTensor,
    lookup: Callable[[tuple[Place, ...]], Scalar],
) -> LoopTensor:
    """The elements of `a` with `lookup(positions)`, an element of the index, along `dim`."""
    source = line(a)
    dim %= source.ndim
    size = source.shape[dim]
    k.check_index(index, 0, size)

    def element(*i: Position) -> Scalar:
        at = i or (0,)
        return source[put(at, dim, place_of(k, lookup(at), size))]

    return k.map(meta, element)


def write_at(
    k: Loops,
    result: LoopTensor,
    place: tuple[int, LoopTensor],
    value: Callable[[tuple[Place, ...]], Element],
    combine: str | None = None,
    *,
    rows: bool = False,
    negative: bool = False,
) -> LoopTensor:
    """Writes `value(positions)` into `result` at `place`, (dim, index); returns the result.

    The index has an element for each position; with `rows` one for each slice along `dim`.
    """
    dim, index = place
    out, lookup = line(result), line(index)
    dim %= out.ndim
    size = out.shape[dim]
    k.check_index(index, -size if negative else 0, size)

    def element(*i: Position) -> tuple[Sequence[Place], Element]:
        found = lookup[i[dim] if rows else i]
        return put(i, dim, place_of(k, found, size, negative=negative)), value(i)

    extent = replaced(out.shape, dim, lookup.shape[0]) if rows else lookup.shape
    k.scatter(out, extent, element, ordered=(dim,), combine=combine)
    return result


def fits(dtype: DType, number: Any) -> bool:
    """Whether loops can write the number into elements of this dtype as the kernel does."""
    kind = dtypes.dtype_of_scalar(number).kind
    return kind <= dtype.kind and bool(number_in(dtype, number) == number)


def adder(dtype: DType) -> str | None:
    """The loop combiner that equals `np.add.at`; None for 16-bit floats, whose partial sums NumPy
    rounds."""
    if dtype is dtypes.bool_:
        return "any"
    return "sum" if accumulator(dtype) is dtype else None


def numbered(k: Loops, a: LoopTensor, number: Place) -> tuple[LoopTensor, tuple[Place, ...]]:
    """(operand, positions) of the element with this number in row-major order."""
    if a.meta.contiguous:
        return a.view((a.meta.numel,), (1,)), (number,)
    affine = hasattr(number, "extents")
    found: list[Place] = []
    for size, step in zip(a.shape, layout.contiguous_strides(a.shape), strict=True):
        at: Any = number
        if step != 1:
            at = at // step if affine else k.make("idiv", at, step)
        if found:
            at = at % size if hasattr(at, "extents") else k.make("irem", at, size)
        found.append(at)
    return a, tuple(found)


def without_leading_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """What the error names. An assignment leaves out leading ones that are numbers and keeps those
    that are symbols: the text may not tell which of both it was."""
    return shape[next((at for at, n in enumerate(shape) if n != 1), len(shape)) :]


def spreads(given: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether a value of the given shape can be broadcast to `shape`."""
    behind = shape[len(shape) - len(given) :] if len(given) <= len(shape) else ()
    return len(behind) == len(given) and all(
        n == 1 or n == m for n, m in zip(given, behind, strict=True)
    )
