"""Sizes of dimensions: the one module that knows what a size is.

Ground floor: imports `aotlite.ir.errors` only.
A size is a Python int today. Modules that compute with shapes ask their questions here, so that
symbols (DYN) can take the place of ints by changing this file alone. A `known_*` question is
answered True only where the answer is True for every value that the sizes may take.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from aotlite.ir.errors import ArgumentError, IndexOutOfRangeError, ShapeError

__all__ = [
    "Shape",
    "Size",
    "Stride",
    "as_size",
    "at_least_one",
    "broadcast_shapes",
    "infer_size",
    "known_divides",
    "known_equal",
    "known_less",
    "numel",
    "same_shape",
    "wrap_dim",
    "wrap_dims",
]

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


def same_shape(a: Sequence[Size], b: Sequence[Size]) -> bool:
    """Whether both shapes are known to be equal."""
    return tuple(a) == tuple(b)


def known_equal(a: Size, b: Size) -> bool:
    """Whether both sizes are known to be equal."""
    return a == b


def known_less(a: Size, b: Size) -> bool:
    """Whether `a` is known to be less than `b`."""
    return a < b


def known_divides(divisor: Size, size: Size) -> bool:
    """Whether `size` is known to be a multiple of `divisor`, which is not 0."""
    return size % divisor == 0


def at_least_one(size: Size) -> Size:
    """Returns the size, or 1 if it is 0."""
    return max(size, 1)


def broadcast_shapes(*shapes: Shape, op: str = "broadcast") -> Shape:
    """Returns the shape that all these shapes broadcast to; ShapeError if two do not fit.

    >>> broadcast_shapes((3, 1), (2,), ())
    (3, 2)
    """
    result: Shape = ()
    for shape in shapes:
        if shape != result:
            result = _broadcast_pair(result, shape, op)
    return result


def _broadcast_pair(a: Shape, b: Shape, op: str) -> Shape:
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    lead = len(longer) - len(shorter)
    result = list(longer)
    for dim, size in enumerate(shorter, lead):
        if known_equal(size, 1) or known_equal(size, result[dim]):
            continue
        if not known_equal(result[dim], 1):
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
    if any(known_less(size, -1) for size in sizes):
        raise ShapeError(f"{op}: shape is {sizes}, expected sizes of at least 0, or one -1")
    unknown = sizes.count(-1)
    if unknown > 1:
        raise ShapeError(f"{op}: shape is {sizes}, expected at most one -1")
    if not unknown:
        if not known_equal(numel(sizes), count):
            raise ShapeError(f"{op}: shape is {sizes}, expected a shape of {count} elements")
        return sizes
    return _infer_unknown(sizes, count, op)


def _infer_unknown(sizes: Shape, count: Size, op: str) -> Shape:
    known = -numel(sizes)
    if known_equal(known, 0) and known_equal(count, 0):
        rule = "no 0 beside a -1: the -1 could be any size"
        raise ShapeError(f"{op}: shape is {sizes}, expected {rule}")
    if known_equal(known, 0) or not known_divides(known, count):
        raise ShapeError(f"{op}: shape is {sizes}, expected a shape of {count} elements")
    at = sizes.index(-1)
    return (*sizes[:at], count // known, *sizes[at + 1 :])
