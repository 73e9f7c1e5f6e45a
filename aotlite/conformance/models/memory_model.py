"""The model of memory in a page of plain Python: the oracle of the rules, independent of aotlite.

A memory is a list of numbers; a view is (memory, shape, strides, offset). There are no dtypes, no
laziness, and no arithmetic.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from aotlite.conformance.error_source import Signal

Shape = tuple[int, ...]


class NoView(Signal):
    """Raised if no strides express a view: a library has to copy or to refuse."""


@attrs.frozen(eq=False)
class View:
    """A strided view of a list of numbers. Its methods have the names of the adapter's view ops."""

    memory: list[Any]
    shape: Shape
    strides: Shape
    offset: int = 0

    # --- reading

    def addresses(self) -> list[int]:
        """The address of every element, in row-major order."""
        return [self._address(index) for index in self._indices()]

    def _indices(self) -> Iterator[Shape]:
        return itertools.product(*map(range, self.shape))

    def _address(self, index: Sequence[int]) -> int:
        return self.offset + sum(i * s for i, s in zip(index, self.strides, strict=True))

    def values(self) -> list[Any]:
        """The elements in row-major order."""
        return [self.memory[address] for address in self.addresses()]

    def to_list(self) -> Any:
        """The values as nested lists."""
        return nested(self.values(), self.shape)

    def overlaps_itself(self) -> bool:
        """Whether two indices have one address."""
        addresses = self.addresses()
        return len(set(addresses)) < len(addresses)

    def overlaps(self, other: View) -> bool:
        """Whether two views have an address in common."""
        common = set(self.addresses()) & set(other.addresses())
        return self.memory is other.memory and bool(common)

    # --- writing

    def write(self, values: Sequence[object]) -> None:
        """Stores values in row-major order."""
        for address, value in zip(self.addresses(), values, strict=True):
            self.memory[address] = value

    def update(self, function: Callable[[Any], object]) -> None:
        """Replaces each element by a function of it."""
        self.write([function(value) for value in self.values()])

    # --- views

    def view(self, shape: Shape) -> View:
        """Another shape of the same elements, in row-major order. Raises `NoView`."""
        _demand(math.prod(shape) == math.prod(self.shape))
        addresses = self.addresses()
        strides = _strides_of(addresses, shape)
        made = View(self.memory, shape, strides, self.offset)
        if addresses and made.addresses() != addresses:
            raise NoView
        return made

    reshape = view

    def flatten(self) -> View:
        """One dimension. Raises `NoView`."""
        return self.view((math.prod(self.shape),))

    def permute(self, dims: Sequence[int]) -> View:
        """Dimensions in another order."""
        _demand(sorted(dims) == list(range(len(self.shape))))
        shape = tuple(self.shape[dim] for dim in dims)
        strides = tuple(self.strides[dim] for dim in dims)
        return View(self.memory, shape, strides, self.offset)

    def transpose(self, dim0: int, dim1: int) -> View:
        """Two dimensions exchanged."""
        _demand(max(dim0, dim1) < len(self.shape))
        dims = list(range(len(self.shape)))
        dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
        return self.permute(dims)

    def expand(self, shape: Shape) -> View:
        """Broadcast: new dimensions, and those of size 1 that grow, have stride 0."""
        new = len(shape) - len(self.shape)
        _demand(new >= 0 and all(b in (1, a) for a, b in zip(shape[new:], self.shape, strict=True)))
        grows = [size != now for size, now in zip(shape[new:], self.shape, strict=True)]
        kept = [0 if grow else s for grow, s in zip(grows, self.strides, strict=True)]
        return View(self.memory, shape, (*[0] * new, *kept), self.offset)

    def slice(self, dim: int, start: int, stop: int, step: int) -> View:
        """Every `step`-th index of a range of a dimension."""
        _demand(dim < len(self.shape) and 0 <= start <= stop <= self.shape[dim])
        return self._places(dim, range(self.shape[dim])[start:stop:step])

    def _places(self, dim: int, places: range) -> View:
        offset = self.offset + (places.start * self.strides[dim] if places else 0)
        shape = _with(self.shape, dim, len(places))
        strides = _with(self.strides, dim, self.strides[dim] * places.step)
        return View(self.memory, shape, strides, offset)

    def narrow(self, dim: int, start: int, length: int) -> View:
        """A range of a dimension."""
        _demand(dim < len(self.shape) and start + length <= self.shape[dim])
        return self.slice(dim, start, start + length, 1)

    def flip(self, dim: int) -> View:
        """A dimension reversed: a negative stride."""
        _demand(dim < len(self.shape))
        end = max(self.shape[dim] - 1, 0) * self.strides[dim]
        strides = _with(self.strides, dim, -self.strides[dim])
        return View(self.memory, self.shape, strides, self.offset + end)

    def select(self, dim: int, index: int) -> View:
        """One index of a dimension, which is removed."""
        _demand(dim < len(self.shape) and index in range(-self.shape[dim], self.shape[dim]))
        return self.narrow(dim, range(self.shape[dim])[index], 1).squeeze(dim)

    def squeeze(self, dim: int) -> View:
        """Without a dimension of size 1. Raises `NoView` for another size."""
        _demand(dim < len(self.shape) and self.shape[dim] == 1)
        shape, strides = _without(self.shape, dim), _without(self.strides, dim)
        return View(self.memory, shape, strides, self.offset)

    def unsqueeze(self, dim: int) -> View:
        """With a dimension of size 1."""
        _demand(dim <= len(self.shape))
        shape = (*self.shape[:dim], 1, *self.shape[dim:])
        return View(self.memory, shape, (*self.strides[:dim], 1, *self.strides[dim:]), self.offset)

    def diagonal(self) -> View:
        """The main diagonal of the first two dimensions, last."""
        _demand(len(self.shape) >= 2)
        shape = (*self.shape[2:], min(self.shape[:2]))
        return View(self.memory, shape, (*self.strides[2:], sum(self.strides[:2])), self.offset)

    def as_strided(self, shape: Shape, strides: Shape, offset: int) -> View:
        """Any geometry on the memory."""
        return View(self.memory, shape, strides, offset)

    def unfold(self, dim: int, size: int, step: int) -> View:
        """Windows of a dimension; the dimension of a window comes last."""
        _demand(dim < len(self.shape) and size <= self.shape[dim])
        windows = (self.shape[dim] - size) // step + 1
        shape = (*_with(self.shape, dim, windows), size)
        strides = _with(self.strides, dim, self.strides[dim] * step)
        return View(self.memory, shape, (*strides, self.strides[dim]), self.offset)

    def split(self, size: int, dim: int) -> list[View]:
        """Consecutive parts of a dimension."""
        _demand(dim < len(self.shape))
        starts = range(0, self.shape[dim], size)
        ends = [min(start + size, self.shape[dim]) for start in starts]
        return [self.slice(dim, *each, 1) for each in zip(starts, ends, strict=True)]

    def unbind(self, dim: int) -> list[View]:
        """The slices along a dimension, without it."""
        _demand(dim < len(self.shape))
        return [self.select(dim, index) for index in range(self.shape[dim])]

    def getitem(self, key: object) -> View:
        """`view[key]` with integers, slices, None and Ellipsis."""
        items = list(key) if isinstance(key, tuple) else [key]
        if Ellipsis not in items:
            items.append(Ellipsis)
        taken = sum(item is not None and item is not Ellipsis for item in items)
        at = items.index(Ellipsis)
        _demand(taken <= len(self.shape))
        items[at : at + 1] = [slice(None)] * (len(self.shape) - taken)
        return self._indexed(items)

    def _indexed(self, items: list[object]) -> View:
        made, dim = self, 0
        for item in items:
            match item:
                case None:
                    made, dim = made.unsqueeze(dim), dim + 1
                case int():
                    made = made.select(dim, item)
                case slice():
                    ends = item.start or 0, item.stop or 0
                    _demand(all(-made.shape[dim] <= end <= made.shape[dim] for end in ends))
                    made, dim = made._places(dim, range(made.shape[dim])[item]), dim + 1
        return made


def _demand(holds: bool) -> None:
    """Raises `NoView` unless the condition holds."""
    if not holds:
        raise NoView


def dense(values: list[Any], shape: Shape) -> View:
    """A view of all of a new memory, in row-major order."""
    return View(values, shape, tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape))))


def nested(values: Sequence[object], shape: Shape) -> Any:
    """Values in row-major order as nested lists; for a 0-d shape, the value itself.

    >>> nested([1, 2, 3, 4], (2, 2))
    [[1, 2], [3, 4]]
    """
    if not shape:
        return values[0]
    rest = shape[1:]
    size = math.prod(rest)
    return [nested(values[i * size : (i + 1) * size], rest) for i in range(shape[0])]


def _strides_of(addresses: list[int], shape: Shape) -> Shape:
    """The strides of a shape whose elements have these addresses, if such strides exist."""
    steps = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
    return tuple(
        addresses[step] - addresses[0] if size > 1 and addresses else 1
        for size, step in zip(shape, steps, strict=True)
    )


def _with(values: Shape, dim: int, value: int) -> Shape:
    return (*values[:dim], value, *values[dim + 1 :])


def _without(values: Shape, dim: int) -> Shape:
    return (*values[:dim], *values[dim + 1 :])
