"""The meaning of a wrapper class: `SubclassKind`, and the worlds of a value.

The worlds of a wrapper are the dense tensors that it means, one or several; an op on the wrapper
acts on each. `Meanings` has all kinds, and takes nested wrappers apart, as the meaning of a wrapper
may be a wrapper again. Spec: `specs/testing.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import attrs

from aotlite.eager.base.modes import no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.ir.errors import ArgumentError, noted
from aotlite.testing.subclasses.masked_model import MaskedModel

Meaning = Callable[[Any], Any]
WorldT = TypeVar("WorldT")


@attrs.frozen(eq=False)
class SubclassKind:
    """A wrapper class under test: its maker, its meaning, and its limits.

    >>> from aotlite.subclasses import TwoTensor
    >>> pair = SubclassKind(TwoTensor, lambda x: TwoTensor(x, x + 1), lambda pair: (pair.a, pair.b))
    >>> import aotlite as al
    >>> Meanings([pair]).worlds(pair.make(al.zeros(2)))
    [tensor([0., 0.]), tensor([1., 1.])]
    """

    cls: type[Tensor]
    make: Callable[[Tensor], Tensor]
    """Returns a wrapper near a tensor. Raises aotlite's error if the class cannot hold it."""
    meaning: Meaning
    """Returns the dense tensor of a wrapper, or a tuple of several; the memory may be shared."""
    stored: Callable[[Any, Any], object] | None = None
    """`stored(wrapper, value)`: a dense value after a write to the wrapper; None: unchanged."""
    tolerance: float = 0.0
    """The tolerance of ops, relative to the largest number of the result, or to 1."""
    grow: int = 1
    """The factor by which sizes of samples grow, for classes that need large tensors."""
    holds: Callable[[Any], bool] | None = None
    """Whether the class holds all numbers of a dense tensor exactly; None for a class that holds
    all. Random programs write only such numbers."""
    writes: frozenset[str] | None = None
    """The in-place ops of random programs; None for all."""
    sizes: tuple[int, ...] = (2, 3, 4, 1, 0)
    """The sizes of dimensions in random programs, the likely ones first."""

    @property
    def name(self) -> str:
        return self.cls.__name__


class Meanings:
    """All kinds of wrappers, with the worlds of values."""

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

    def worlds(self, value: object) -> list[Any]:
        """The worlds of a value: dense tensors, or models of masked ones."""
        if not is_wrapper(value):
            return [value]
        with no_grad():
            found = self.kind_of(value).meaning(value)
        if isinstance(found, MaskedModel):
            return self._masked(found)
        parts = found if isinstance(found, tuple) else (found,)
        return [world for part in parts for world in self.worlds(part)]

    def _masked(self, found: MaskedModel) -> list[object]:
        data, masks = self.worlds(found.data), self.worlds(found.mask)
        count = max(len(data), len(masks))
        each = zip(_spread(data, count), _spread(masks, count), strict=True)
        return [MaskedModel(*pair) for pair in each]

    def count(self, values: Iterable[object]) -> int:
        """Returns the number of worlds of the operands of one op."""
        return max([len(self.worlds(value)) for value in values], default=1)

    def stored(self, wrapper: object, value: object) -> Any:
        """Returns a value of one world after it is written to a wrapper of one world."""
        if not is_wrapper(wrapper):
            return value
        kind = self.kind_of(wrapper)
        if isinstance(value, MaskedModel):
            inner = self.stored(getattr(wrapper, "data", None), value.data)
            return MaskedModel(inner, value.mask)
        with no_grad():
            return value if kind.stored is None else kind.stored(wrapper, value)


def _spread(values: list[WorldT], count: int) -> list[WorldT]:
    return values * count if len(values) == 1 else values


def in_world(value: object, number: int, meanings: Meanings) -> Any:
    """Arguments with the meanings of wrappers in a world."""
    if isinstance(value, Tensor):
        worlds = meanings.worlds(value)
        return worlds[number if len(worlds) > 1 else 0]
    if isinstance(value, (tuple, list)):
        return tuple([in_world(each, number, meanings) for each in value])
    if isinstance(value, dict):
        return {name: in_world(each, number, meanings) for name, each in value.items()}
    return value
