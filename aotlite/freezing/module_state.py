"""`ModuleState`: the parameters and buffers of Modules as they are now, read at each call.

The first read walks the Modules. Later ones compare, for each Module, the names of its attributes,
their classes, and its submodules: where these are as they were, the tensors are in the same places.
Rule: FRZ-6. Spec: `specs/freezing.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.eager.tracked_objects import own_attributes
from aotlite.nn.module import Module
from aotlite.nn.parameter import Buffer, Parameter


@attrs.frozen
class FixedPlace:
    """Where a parameter or buffer is an attribute."""

    path: str
    owner: Any = attrs.field(eq=id)
    name: str


@attrs.frozen(eq=False, repr=False)
class _Watched:
    """The attributes of one Module, and what of them says where its state is."""

    attributes: Mapping[str, object]
    names: list[str]
    kinds: list[type]
    state: tuple[str, ...]
    below: tuple[tuple[str, object], ...]

    def read(self, into: list[Any]) -> bool:
        """Appends the tensors; False if they may lie in other places now."""
        attributes = self.attributes
        if [*map(type, attributes.values())] != self.kinds or [*attributes] != self.names:
            return False
        into += [attributes[name] for name in self.state]
        return all(attributes[name] is child for name, child in self.below)


class ModuleState:
    """The parameters and buffers of some Modules, each Module once."""

    def __init__(self, modules: Sequence[tuple[str, Module]]) -> None:
        self.modules = modules
        """The Modules, each with the prefix of its paths."""
        self.places: tuple[FixedPlace, ...] = ()
        """Where the tensors of the last read are; the same object while nothing moves."""
        self._watched: list[_Watched] | None = None
        """None where a Module holds wrappers, which a class alone does not make parameters."""

    def read(self) -> list[Any]:
        """The tensors as they are now."""
        found: list[Any] = []
        if self._watched is not None and all(each.read(found) for each in self._watched):
            return found
        watched: list[_Watched] = []
        seen: set[int] = set()
        found = [
            place
            for prefix, module in self.modules
            for place in _walk(module, prefix, seen, watched)
        ]
        if tuple(found) != self.places:
            self.places = tuple(found)
        values = [value for each in watched for value in each.attributes.values()]
        self._watched = None if any(map(is_wrapper, values)) else watched
        return [own_attributes(place.owner)[place.name] for place in self.places]


def _walk(
    module: Module, prefix: str, seen: set[int], watched: list[_Watched]
) -> Iterator[FixedPlace]:
    """The places of a Module and those below it, its own first."""
    if id(module) in seen:
        return
    seen.add(id(module))
    attributes = own_attributes(module)
    state = [name for name, value in attributes.items() if isinstance(value, (Parameter, Buffer))]
    below = [(name, value) for name, value in attributes.items() if isinstance(value, Module)]
    kinds = [*map(type, attributes.values())]
    watched.append(_Watched(attributes, [*attributes], kinds, tuple(state), tuple(below)))
    yield from [FixedPlace(_dotted(prefix, name), module, name) for name in state]
    for name, child in below:
        yield from _walk(child, _dotted(prefix, name), seen, watched)


def _dotted(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
