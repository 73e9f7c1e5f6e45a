"""Arithmetic on sizes and shapes that works for ints and for symbolic ints.

Ground floor. A size is a Python int or a `SymInt` (`specs/symbols.md`). Code that computes with
sizes is written once for both, with Python's operators. A branch on a symbolic comparison is
decided by the hints, and logged as an assumption. Two kinds of functions avoid that:

    always_equal(a, b), ...      True only if that holds for all values; logs nothing
    minimum, maximum, ...        give an expression, where Python's `min` and `max` would compare
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from operator import eq, is_
from typing import TypeAlias, TypeVar, cast

from aotlite.ir.errors import ArgumentError, IndexOutOfRangeError, ShapeError
from aotlite.ir.symbols import cases
from aotlite.ir.symbols.cases import fewest, runs_by_cases
from aotlite.ir.symbols.cases.parts import Open, raise_open
from aotlite.ir.symbols.symint import SymInt
from aotlite.ir.symbols.table import table_of

__all__ = [
    "Shape",
    "Size",
    "Stride",
    "always_equal",
    "always_same",
    "as_size",
    "as_tuple",
    "asks_first",
    "at_least_one",
    "broadcast_shapes",
    "ceil_div",
    "hint_of",
    "infer_size",
    "is_symbolic",
    "maximum",
    "minimum",
    "needed",
    "needless",
    "numel",
    "recast",
    "same_shape",
    "settled",
    "slice_bounds",
    "unasked",
    "wrap_dim",
    "wrap_dims",
]

T = TypeVar("T")
Given = TypeVar("Given")

# Symbols are int to type checkers: rules are written for ints, and symbols do what ints do.
Size: TypeAlias = int
Shape: TypeAlias = tuple[Size, ...]
Stride: TypeAlias = tuple[Size, ...]


def as_size(value: object) -> Size | None:
    """`value` as a size if it is an integer of any type but bool; else None.

    >>> as_size(3), as_size(True), as_size(3.0)
    (3, None, None)
    """
    if type(value) is int:
        return value
    if type(value) is SymInt:
        return value  # type: ignore[return-value]  # not by its __index__, which asks for the value
    index = getattr(type(value), "__index__", None)
    if index is None or isinstance(value, bool):
        return None
    try:
        found = index(value)  # C would refuse a symbol that a user's class returns
        return found if type(found) in (int, SymInt) else operator.index(found)
    except TypeError:
        return None


def as_tuple(value: Size | Sequence[Given]) -> tuple[Size | Given, ...]:
    """The sizes that users give as one number or as several.

    >>> as_tuple(3), as_tuple([2, 3])
    ((3,), (2, 3))
    """
    return (value,) if isinstance(value, (int, SymInt)) else tuple(value)


def numel(shape: Iterable[Size]) -> Size:
    """The number of elements of a tensor of this shape.

    >>> numel((2, 3)), numel(())
    (6, 1)
    """
    return math.prod(shape)


def is_symbolic(values: Iterable[object]) -> bool:
    """Whether there is a symbolic size among these values."""
    for value in values:  # a loop: `any` would cost more than the rest of a contiguous meta
        if type(value) is SymInt:
            return True
    return False


def same_shape(a: Sequence[Size], b: Sequence[Size]) -> bool:
    """Whether both shapes are equal; a known difference decides before any assumption is made."""
    if len(a) != len(b):
        return False
    if is_symbolic(a) or is_symbolic(b):
        if all(map(is_, a, b)):
            return True
        return not any((x != y) is True for x, y in zip(a, b, strict=True)) and all(map(eq, a, b))
    return tuple(a) == tuple(b)


def always_equal(a: Size, b: Size) -> bool:
    """Whether both sizes are equal for all values of their symbols; logs no assumption."""
    return cast("object", a == b) is True


def asks_first(values: Iterable[object]) -> bool:
    """Whether a function of these symbols is to be called by `needed`, and is not yet."""
    table = table_of(values)
    return table is not None and runs_by_cases(table)


def needed(function: Callable[..., T], *operands: object) -> T:
    """function(*operands); for symbols, with the fewest assumptions that its result needs."""
    table = table_of(operands)
    if table is None or not runs_by_cases(table):
        return function(*operands)
    key = (function, operands)
    if key not in table.cache:  # layers repeat
        table.cache[key] = fewest(table, function, operands)
    found: T = table.cache[key]
    return found


def needless(function: Callable[..., T], *operands: object) -> T | None:
    """function(*operands) where the result needs no assumption about symbols; None where it does.
    Logs nothing."""
    table = table_of(operands)
    if table is None:
        return function(*operands)
    key = (needless, function, operands, len(table.log))  # what is assumed may answer more
    if key not in table.cache:
        table.cache[key] = cases.needless(table, function, operands)
    found: T | None = table.cache[key]
    return found


def unasked(function: Callable[..., T], *operands: object) -> T | None:
    """function(*operands) where that assumes nothing about symbols; None where it would."""
    table = table_of(operands)
    if table is None:
        return function(*operands)
    before, table.asked = table.asked, raise_open
    try:
        return function(*operands)
    except Open:
        return None
    finally:
        table.asked = before


def always_same(a: Sequence[Size], b: Sequence[Size]) -> bool:
    """Whether both shapes are equal for all values of their symbols; logs no assumption."""
    return len(a) == len(b) and (all(map(is_, a, b)) or all(map(always_equal, a, b)))


def at_least_one(size: Size) -> Size:
    """The size, or 1 if it is 0."""
    if type(size) is int:
        return size if size > 1 else 1
    table = table_of((size,))
    if table is not None and table.weakest:  # one expression, whatever is assumed by now
        least = getattr(size, "least", None)
        return size if least is not None and least > 0 else table.call("max", size, 1)
    known: object = size > 1  # of most symbols
    return size if known is True else maximum(size, 1)


def minimum(a: Size, b: Size) -> Size:
    """The smaller of both; logs no assumption about symbols.

    >>> minimum(3, 2)
    2
    """
    return _called("min", min, a, b)


def maximum(a: Size, b: Size) -> Size:
    """The larger of both; logs no assumption about symbols."""
    return _called("max", max, a, b)


def _called(name: str, plain: Callable[[Size, Size], Size], a: Size, b: Size) -> Size:
    operands: tuple[object, object] = (a, b)
    for value in operands:
        if type(value) is SymInt:
            called: Size = value.table.call(name, a, b)
            return called
    return plain(a, b)


def ceil_div(size: Size, divisor: Size) -> Size:
    """The quotient, rounded up.

    >>> ceil_div(7, 3), ceil_div(6, 3)
    (3, 2)
    """
    return -(-size // divisor)


def hint_of(size: Size) -> int:
    """The size, or its value in the traced call: for questions of speed, which assume nothing
    (DYN-16)."""
    given: object = size
    if type(given) is not SymInt:
        return size
    counts = given.table.counts
    return given.hint if counts is None else counts.cost(given)


def slice_bounds(start: Size | None, end: Size | None, size: Size) -> tuple[Size, Size]:
    """(begin, end) of Python's slice `[start:end]` in a dimension of this size.

    Both count from the front, and 0 <= begin <= end <= size, so that `end - begin` is the length.

    >>> slice_bounds(-2, None, 5), slice_bounds(4, 2, 5)
    ((3, 5), (4, 4))
    """
    first = 0 if start is None else _from_front(start, size)
    last = size if end is None else _from_front(end, size)
    return first, maximum(first, last)


def _from_front(index: Size, size: Size) -> Size:
    if index < 0:
        return maximum(index + size, 0)
    return minimum(index, size)


def settled(function: Callable[..., object], *operands: object) -> object:
    """The result of a function of ints, or of tuples of ints; for symbols, that of their hints.

    Then "the function gives this result" is logged as an assumption.
    """
    table = table_of(operands)
    return function(*operands) if table is None else table.ask(function, *operands)


def broadcast_shapes(*shapes: Shape, op: str = "broadcast") -> Shape:
    """The shape that all these shapes broadcast to. Raises ShapeError if two do not fit.

    >>> broadcast_shapes((3, 1), (2,), ())
    (3, 2)
    """
    result: Shape = tuple(shapes[0]) if shapes else ()
    for shape in shapes[1:]:
        if shape is not result and not same_shape(result, shape):
            result = _broadcast_pair(result, shape, op)
    return result


def _broadcast_pair(a: Shape, b: Shape, op: str) -> Shape:
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    lead = len(longer) - len(shorter)
    result = list(longer)
    for dim, size in enumerate(shorter, lead):
        if result[dim] == size or size == 1:
            continue
        if result[dim] != 1:
            rule = f"equal sizes, or 1, in dimension {dim - len(longer)}"
            raise ShapeError(f"{op}: shapes are {a} and {b}, expected {rule}")
        result[dim] = size
    return tuple(result)


def wrap_dim(dim: int, ndim: int, *, op: str = "dim") -> int:
    """`dim` counted from the front. Raises IndexOutOfRangeError outside the dimensions.

    A 0-d tensor takes -1 and 0, as in PyTorch.

    >>> wrap_dim(-1, 3)
    2
    """
    if type(dim) is not int and not isinstance(dim, bool):
        given, dim = dim, as_size(dim)  # type: ignore[assignment]
        if dim is None:
            raise ArgumentError(f"{op}: a dimension is {given!r}, expected an integer")
    room = ndim or 1
    if -room <= dim < room:
        return dim + room if dim < 0 else dim
    raise IndexOutOfRangeError(f"{op}: dimension is {dim}, expected {-room} to {room - 1}")


def wrap_dims(dims: Iterable[int], ndim: int, *, op: str = "dim") -> tuple[int, ...]:
    """All `dims` counted from the front, in their order. Raises ArgumentError if one repeats.

    >>> wrap_dims((-1, 0), 3)
    (2, 0)
    """
    given = tuple(dims)
    if len(given) == 1:  # for its speed
        return (wrap_dim(given[0], ndim, op=op),)
    wrapped = tuple([wrap_dim(dim, ndim, op=op) for dim in given])
    if len(set(wrapped)) < len(wrapped):
        raise ArgumentError(f"{op}: dimensions are {given}, expected each dimension once")
    return wrapped


def infer_size(shape: Sequence[Size], count: Size, *, op: str = "view") -> Shape:
    """The shape with its -1, if any, replaced so that it has `count` elements.

    >>> infer_size((2, -1), 6)
    (2, 3)
    """
    sizes = tuple(shape)
    if any(size < -1 for size in sizes):
        raise ShapeError(f"{op}: shape is {sizes}, expected sizes of at least 0, or one -1")
    unknown = sizes.count(-1)
    if unknown > 1:
        raise ShapeError(f"{op}: shape is {sizes}, expected at most one -1")
    if not unknown:
        if numel(sizes) != count:
            raise ShapeError(f"{op}: shape is {sizes}, expected a shape of {count} elements")
        return sizes
    return _infer_unknown(sizes, count, op)


def _infer_unknown(sizes: Shape, count: Size, op: str) -> Shape:
    known = -numel(sizes)
    if known == 0 and count == 0:
        rule = "no 0 beside a -1: the -1 could be any size"
        raise ShapeError(f"{op}: shape is {sizes}, expected {rule}")
    if known == 0 or count % known != 0:
        raise ShapeError(f"{op}: shape is {sizes}, expected a shape of {count} elements")
    at = sizes.index(-1)
    return (*sizes[:at], count // known, *sizes[at + 1 :])


def recast(offset: int, size: int, wanted: int) -> int:
    """An offset that counts elements of `size` bytes, converted to elements of `wanted` bytes.

    From a tensor that begins within such an element it is a fraction, and adds up as an int does.

    >>> recast(3, 16, 8), recast(6, 4, 8), recast(1, 8, 16), recast(recast(1, 8, 16), 16, 8)
    (6, 3, Fraction(1, 2), 1)
    """
    if size == wanted:
        return offset
    place = offset * size
    if (size < wanted or isinstance(cast("object", place), Fraction)) and place % wanted:
        return cast("int", Fraction(place, wanted))
    return place // wanted
