"""Lists and dicts among the arguments: while the function runs they hold stand-ins for tensors.

They are the caller's own, so that a hook, or another function, that keeps one goes on with it. When
the function has returned, they hold tensors again, also what it put there; if it raised, they hold
what they held. Rule: FNT-12. Spec: `specs/functionalize_transform.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs

from aotlite.eager.base.tensor import Tensor


@attrs.define(eq=False, repr=False)
class HeldContainer:
    """A container of the caller's: what it held, and what the function found there."""

    container: Any
    before: Any
    """A copy of it, as the caller has it."""
    inside: Any = None
    """A copy of it, as the function got it."""

    def is_changed(self) -> bool:
        """Whether the function changed it."""
        return not _same(_items(self.container), _items(self.inside))

    def fill(self, items: Any) -> None:
        """Gives it these contents, of its own kind."""
        self.container.clear()
        if type(self.container) is list:
            self.container.extend(items)
        else:
            self.container.update(items)


class ArgumentContainers:
    """The containers of one call."""

    def __init__(self) -> None:
        self._held: dict[int, HeldContainer] = {}
        """By the id of a container."""

    def inside(self, value: Any, here: Callable[[Tensor], Tensor]) -> Any:
        """The value as the function gets it."""
        if isinstance(value, Tensor):
            return here(value)
        if type(value) is tuple:
            return tuple([self.inside(item, here) for item in value])
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*[self.inside(item, here) for item in value])
        if type(value) in (list, dict) and id(value) not in self._held:
            held = self._held[id(value)] = HeldContainer(value, value.copy())
            if type(value) is list:
                held.inside = [self.inside(item, here) for item in held.before]
            else:
                held.inside = {k: self.inside(item, here) for k, item in held.before.items()}
            held.fill(held.inside)
        return value

    def tensors(self) -> Iterator[Tensor]:
        """The stand-ins in containers that changed."""
        for held in self._held.values():
            if held.is_changed():
                yield from tensors_in(held.container)

    def put(self, objects: dict[int, Tensor]) -> None:
        """Puts tensors in the place of stand-ins, also of those that the function has put there."""
        now = [
            (held, self._outside(held.container.copy(), objects) if held.is_changed() else None)
            for held in self._held.values()
        ]
        for held, items in now:
            held.fill(held.before if items is None else items)

    def take_back(self) -> None:
        """Gives all containers what they held."""
        for held in self._held.values():
            held.fill(held.before)

    def _outside(self, value: Any, objects: dict[int, Tensor]) -> Any:
        if isinstance(value, Tensor):
            return objects[id(value)]
        if id(value) in self._held:
            return value
        if type(value) in (list, tuple):
            return type(value)([self._outside(item, objects) for item in value])
        if type(value) is dict:
            return {key: self._outside(item, objects) for key, item in value.items()}
        return value


def _items(container: Any) -> list[Any]:
    if type(container) is list:
        return list(container)
    return [part for pair in container.items() for part in pair]


def _same(now: list[Any], before: list[Any]) -> bool:
    return len(now) == len(before) and all(a is b for a, b in zip(now, before, strict=True))


def tensors_in(value: Any, seen: set[int] | None = None) -> Iterator[Tensor]:
    """The tensors in nested lists, tuples and dicts."""
    seen = set() if seen is None else seen
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple, dict)) and id(value) not in seen:
        seen.add(id(value))
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors_in(item, seen)
