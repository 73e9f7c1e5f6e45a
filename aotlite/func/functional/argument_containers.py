"""Lists and dicts among the arguments: the function gets copies, with stand-ins for tensors.

What it puts into them is put into the caller's containers when it has returned. Rule: FNT-12.
Spec: `specs/functionalize_transform.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from aotlite.eager.base.tensor import Tensor


class ArgumentContainers:
    """The containers of one call, with their copies."""

    def __init__(self) -> None:
        self._copies: dict[int, Any] = {}
        """By the id of a container of the caller's: its copy."""
        self._given: dict[int, Any] = {}
        """By the id of a copy: the caller's container."""
        self._before: list[tuple[Any, Any, list[Any]]] = []
        """(container, copy, what the copy held at first)."""

    def inside(self, value: Any, here: Callable[[Tensor], Tensor]) -> Any:
        """The value as the function gets it."""
        if isinstance(value, Tensor):
            return here(value)
        if type(value) is tuple:
            return tuple([self.inside(item, here) for item in value])
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*[self.inside(item, here) for item in value])
        if type(value) not in (list, dict):
            return value
        if id(value) not in self._copies:
            copy = self._copies[id(value)] = type(value)()
            self._given[id(copy)] = value
            if type(value) is list:
                copy.extend([self.inside(item, here) for item in value])
            else:
                copy.update({key: self.inside(item, here) for key, item in value.items()})
            self._before.append((value, copy, _items(copy)))
        return self._copies[id(value)]

    def changed(self) -> list[tuple[Any, Any]]:
        """(container, copy) of those that the function changed."""
        return [(value, copy) for value, copy, old in self._before if not _same(_items(copy), old)]

    def tensors(self) -> Iterator[Tensor]:
        """The stand-ins in containers that changed."""
        for _, copy in self.changed():
            yield from tensors_in(copy)

    def put(self, objects: dict[int, Tensor]) -> None:
        """Gives the caller's containers what the function has put into their copies."""
        for value, copy in self.changed():
            held = self._outside(copy, objects, top=True)
            value.clear()
            value.extend(held) if type(value) is list else value.update(held)

    def _outside(self, value: Any, objects: dict[int, Tensor], *, top: bool = False) -> Any:
        if isinstance(value, Tensor):
            return objects[id(value)]
        if not top and id(value) in self._given:
            return self._given[id(value)]
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
