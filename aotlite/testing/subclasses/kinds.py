"""The meaning of a wrapper class: `SubclassKind`, and the worlds of a value.

A wrapper means one dense tensor, or several of which an op on the wrapper is the op on each: its
worlds. `Meanings` knows the kinds and takes nested wrappers apart, since what a wrapper means may
be a wrapper again. Spec: `specs/testing.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs

from aotlite.eager.base.modes import no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.ir.errors import ArgumentError, noted
from aotlite.testing.subclasses.masked_model import MaskedModel

Meaning = Callable[[Any], Any]


@attrs.frozen(eq=False)
class SubclassKind:
    """A wrapper class as the laws see it.

    >>> from aotlite.subclasses import TwoTensor
    >>> pair = SubclassKind(TwoTensor, lambda x: TwoTensor(x, x + 1), lambda pair: (pair.a, pair.b))
    >>> import aotlite as al
    >>> Meanings([pair]).worlds(pair.make(al.zeros(2)))
    [tensor([0., 0.]), tensor([1., 1.])]
    """

    cls: type[Any]
    make: Callable[[Any], Any]
    """Returns a wrapper near a tensor. Raises aotlite's error if the class cannot hold it."""
    meaning: Meaning
    """The dense tensor that a wrapper stands for, or a tuple of several, on fresh memory or not."""
    stored: Callable[[Any, Any], Any] | None = None
    """`stored(wrapper, value)`: what is left of a dense value that is written into the wrapper; all
    of it where this is None."""
    tolerance: float = 0.0
    """The tolerance of ops, relative to the largest number of the result, or to 1."""
    grow: int = 1
    """How often arrays of samples are repeated along each dimension, for classes that need size."""
    holds: Callable[[Any], bool] | None = None
    """Whether the class holds all numbers of a dense tensor as they are; random programs write no
    others. None for a class that holds all."""
    writes: frozenset[str] | None = None
    """The in-place ops that random programs have; None for all."""
    sizes: tuple[int, ...] = (2, 3, 4, 1, 0)
    """The sizes of dimensions in random programs, the likely ones first."""

    @property
    def name(self) -> str:
        return self.cls.__name__


class Meanings:
    """The kinds of wrappers that there are."""

    def __init__(self, kinds: Iterable[SubclassKind]) -> None:
        self.kinds = {kind.cls: kind for kind in kinds}

    def kind_of(self, value: Any) -> SubclassKind:
        """Returns the kind of a wrapper. Raises ArgumentError for a class of unknown meaning."""
        found = self.kinds.get(type(value))
        if found is None:
            known = ", ".join(cls.__name__ for cls in self.kinds)
            raise noted(
                ArgumentError(
                    f"laws: a value is a {type(value).__name__}, expected one of {known}"
                ),
                "kinds=[...] says what other classes mean",
            )
        return found

    def worlds(self, value: Any) -> list[Any]:
        """The dense tensors that a value means, or models of masked ones."""
        if not is_wrapper(value):
            return [value]
        with no_grad():
            found = self.kind_of(value).meaning(value)
        if isinstance(found, MaskedModel):
            return self._masked(found)
        parts = found if isinstance(found, tuple) else (found,)
        return [world for part in parts for world in self.worlds(part)]

    def _masked(self, found: MaskedModel) -> list[Any]:
        data, masks = self.worlds(found.data), self.worlds(found.mask)
        count = max(len(data), len(masks))
        each = zip(_spread(data, count), _spread(masks, count), strict=True)
        return [MaskedModel(*pair) for pair in each]

    def count(self, values: Iterable[Any]) -> int:
        """Returns the number of worlds of values that an op takes together."""
        return max([len(self.worlds(value)) for value in values], default=1)

    def stored(self, wrapper: Any, value: Any) -> Any:
        """What is left of a value, in one world, that is written into a wrapper of one world."""
        if not is_wrapper(wrapper):
            return value
        kind = self.kind_of(wrapper)
        if isinstance(value, MaskedModel):
            inner = self.stored(getattr(wrapper, "data", None), value.data)
            return MaskedModel(inner, value.mask)
        with no_grad():
            return value if kind.stored is None else kind.stored(wrapper, value)


def _spread(values: list[Any], count: int) -> list[Any]:
    return values * count if len(values) == 1 else values


def in_world(value: Any, number: int, meanings: Meanings) -> Any:
    """Arguments with what wrappers mean in a world."""
    if isinstance(value, Tensor):
        worlds = meanings.worlds(value)
        return worlds[number if len(worlds) > 1 else 0]
    if isinstance(value, (tuple, list)):
        return tuple([in_world(each, number, meanings) for each in value])
    if isinstance(value, dict):
        return {name: in_world(each, number, meanings) for name, each in value.items()}
    return value
