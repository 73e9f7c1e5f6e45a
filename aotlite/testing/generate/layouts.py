"""Memory as plain data: storages of numbers, and layouts of tensors on them."""

from __future__ import annotations

from math import prod

import attrs
import numpy as np

from aotlite.ir.errors import ArgumentError
from aotlite.testing.programs.steps import Step

Ints = tuple[int, ...]


def _item_size(dtype: str) -> int:
    return np.dtype(dtype).itemsize


@attrs.frozen
class Storage:
    """Memory of `size` small whole numbers of a dtype, drawn by `seed`.

    >>> Storage(4, "float64").step()
    Step('make', (0, (4,), 'float64', False))
    """

    size: int
    """The number of elements."""
    dtype: str = "float64"
    seed: int = 0
    requires_grad: bool = False

    def step(self) -> Step:
        """The step that makes the memory's first tensor, which has one dimension."""
        return Step("make", (self.seed, (self.size,), self.dtype, self.requires_grad))

    def count(self, dtype: str) -> int:
        """Returns the number of elements of a dtype; 0 if they do not fill it."""
        whole, rest = divmod(self.size * _item_size(self.dtype), _item_size(dtype))
        return 0 if rest else whole


@attrs.frozen
class Layout:
    """A tensor's geometry on a storage; stride and offset count elements of the tensor's dtype.

    >>> diagonal = Layout(Storage(4), (2,), (3,))
    >>> diagonal.places(), diagonal.overlaps
    ((0, 3), False)
    >>> diagonal.steps()
    (Step('make', (0, (4,), 'float64', False)), Step('as_strided', ('$0', (2,), (3,), 0)))
    """

    storage: Storage
    shape: Ints
    stride: Ints
    offset: int = 0
    dtype: str = attrs.field(default=attrs.Factory(lambda self: self.storage.dtype, True))

    def __attrs_post_init__(self) -> None:
        room = self.storage.count(self.dtype)
        whole = len(self.shape) == len(self.stride) and self.offset >= 0
        if not whole or min((*self.shape, *self.stride), default=0) < 0:
            raise ArgumentError(
                f"Layout: shape, stride and offset are {self.shape}, {self.stride}, {self.offset}, "
                "expected as many strides as sizes, and nothing negative"
            )
        if self.end > room:
            raise ArgumentError(
                f"Layout: the end is {self.end}, expected at most the {room} elements of "
                f"{self.dtype} that the storage has"
            )

    @property
    def end(self) -> int:
        """The offset after the last element."""
        if not prod(self.shape):
            return self.offset
        steps = sum((n - 1) * s for n, s in zip(self.shape, self.stride, strict=True))
        return self.offset + steps + 1

    def places(self) -> Ints:
        """The offset in the storage of each element, in row-major order."""
        found = [self.offset]
        for size, stride in zip(self.shape, self.stride, strict=True):
            found = [start + i * stride for start in found for i in range(size)]
        return tuple(found)

    @property
    def overlaps(self) -> bool:
        """Whether two elements have one address."""
        places = self.places()
        return len(set(places)) < len(places)

    def steps(self) -> tuple[Step, ...]:
        """A setup whose last value is the tensor."""
        seen = [] if self.dtype == self.storage.dtype else [Step("view_dtype", ("$0", self.dtype))]
        window = Step("as_strided", (f"${len(seen)}", self.shape, self.stride, self.offset))
        return self.storage.step(), *seen, window
