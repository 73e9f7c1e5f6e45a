"""Sizes of dimensions: the one module that knows what a size is.

Ground floor. A size is a Python int, or a `SymInt` that stands in for one (`specs/symbols.md`).
Code that computes with sizes is written once for both, with the arithmetic and the comparisons of
ints. A comparison of symbols that decides something is answered by the hints and logged, so that
what follows from it holds wherever the log does. An `always_*` question is never logged: it is
answered True only where that is the answer for every value that the sizes may take, and is for
whoever can do without it. `minimum`, `maximum` and `slice_bounds` give expressions where
Python's `min`, `max` and `slice.indices` would have to ask.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from operator import eq, is_
from typing import Any, TypeAlias

from aotlite.ir.errors import ArgumentError, IndexOutOfRangeError, ShapeError
from aotlite.ir.symbols.symint import SymBool, SymInt
from aotlite.ir.symbols.table import table_of

__all__ = [
    "Shape",
    "Size",
    "Stride",
    "always_equal",
    "always_same",
    "as_size",
    "at_least_one",
    "broadcast_shapes",
    "ceil_div",
    "infer_size",
    "is_symbolic",
    "maximum",
    "minimum",
    "numel",
    "same_shape",
    "settled",
    "slice_bounds",
    "wrap_dim",
    "wrap_dims",
]

# Symbols are int to type checkers: rules are written for ints, and symbols do what ints do.
Size: TypeAlias = int
Shape: TypeAlias = tuple[Size, ...]
Stride: TypeAlias = tuple[Size, ...]


def as_size(value: object) -> Size | None:
    """Returns `value` as a size if it is an integer of any make, None if not; a bool is none.

    >>> as_size(3), as_size(True), as_size(3.0)
    (3, None, None)
    """
    if type(value) is int:
        return value
    if type(value) is SymInt:
        return value  # type: ignore[return-value]  # not by its __index__, which asks for the value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def numel(shape: Iterable[Size]) -> Size:
    """Returns the number of elements of a tensor of this shape.

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
    """Whether both shapes are equal. A difference that is known is found before any is assumed."""
    if len(a) != len(b):
        return False
    if is_symbolic(a) or is_symbolic(b):
        if all(map(is_, a, b)):
            return True
        return not any((x != y) is True for x, y in zip(a, b, strict=True)) and all(map(eq, a, b))
    return tuple(a) == tuple(b)


def always_equal(a: Size, b: Size) -> bool:
    """Whether both sizes are known to be equal, whatever their symbols stand for; never logged."""
    truth: object = a == b
    return not isinstance(truth, SymBool) and bool(truth)


def always_same(a: Sequence[Size], b: Sequence[Size]) -> bool:
    """Whether both shapes are known to be equal; never logged."""
    return len(a) == len(b) and all(map(always_equal, a, b))


def at_least_one(size: Size) -> Size:
    """Returns the size, or 1 if it is 0."""
    if type(size) is int:
        return size if size > 1 else 1
    known: object = size > 1  # of most symbols
    return size if known is True else maximum(size, 1)


def minimum(a: Size, b: Size) -> Size:
    """Returns the smaller of both; nothing is asked of symbols.

    >>> minimum(3, 2)
    2
    """
    return _called("min", min, a, b)


def maximum(a: Size, b: Size) -> Size:
    """Returns the larger of both; nothing is asked of symbols."""
    return _called("max", max, a, b)


def _called(name: str, plain: Callable[[Size, Size], Size], a: Size, b: Size) -> Size:
    operands: tuple[object, object] = (a, b)
    for value in operands:
        if type(value) is SymInt:
            called: Size = value.table.call(name, a, b)
            return called
    return plain(a, b)


def ceil_div(size: Size, divisor: Size) -> Size:
    """Returns the quotient, rounded up.

    >>> ceil_div(7, 3), ceil_div(6, 3)
    (3, 2)
    """
    return -(-size // divisor)


def slice_bounds(start: Size | None, end: Size | None, size: Size) -> tuple[Size, Size]:
    """Returns where Python's `[start:end]` begins and ends in a dimension of this size.

    Counted from the front, 0 <= begin <= end <= size, so that `end - begin` is the length.

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


def settled(function: Callable[..., Any], *operands: Any) -> Any:
    """Returns what a function of plain ints (in tuples) says; of symbols, about their hints.

    That it says this is logged: what a rule makes of it holds wherever the function says the same.
    """
    table = table_of(operands)
    return function(*operands) if table is None else table.ask(function, *operands)


def broadcast_shapes(*shapes: Shape, op: str = "broadcast") -> Shape:
    """Returns the shape that all these shapes broadcast to; ShapeError if two do not fit.

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
    """Returns `dim` counted from the front; IndexOutOfRangeError outside the dimensions.

    A tensor of no dimensions takes -1 and 0, as in PyTorch.

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
    """Returns all `dims` counted from the front, in their order; ArgumentError if one repeats.

    >>> wrap_dims((-1, 0), 3)
    (2, 0)
    """
    given = tuple(dims)
    wrapped = tuple([wrap_dim(dim, ndim, op=op) for dim in given])
    if len(set(wrapped)) < len(wrapped):
        raise ArgumentError(f"{op}: dimensions are {given}, expected each dimension once")
    return wrapped


def infer_size(shape: Sequence[Size], count: Size, *, op: str = "view") -> Shape:
    """Returns the shape with its one -1, if any, replaced so that it has `count` elements.

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
