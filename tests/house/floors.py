"""Floors: a module imports from floors below its own, or from its own room."""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.house.imports import Edge, is_within


@dataclass(frozen=True)
class Floors:
    """Rooms by floor, the lowest first. A room is a package or module, with all modules in it.

    A name that ends in `.__init__` is a package's own module alone. The longest name that fits is
    a module's room. Rooms of one floor stand beside each other: neither imports the other.
    """

    floors: Sequence[Sequence[str]]
    only: Mapping[str, Sequence[str]]
    """Package -> all that it may import, whatever is below it."""

    @functools.cached_property
    def heights(self) -> dict[str, int]:
        return {room: height for height, floor in enumerate(self.floors) for room in floor}

    def room(self, module: str) -> str | None:
        """The room of a module; None if the plan has no room for it."""
        if f"{module}.__init__" in self.heights:
            return f"{module}.__init__"
        name = module
        while name and name not in self.heights:
            name = name.rpartition(".")[0]
        return name or None

    def span(self, module: str) -> range:
        """The floors that a module may be meant to stand on.

        Of a module without a room these are the floors of all rooms beside it.
        """
        room = self.room(module)
        if room is not None:
            return range(self.heights[room], self.heights[room] + 1)
        package = module.rpartition(".")[0]
        while package:
            beside = [height for room, height in self.heights.items() if is_within(room, package)]
            if beside:
                return range(min(beside), max(beside) + 1)
            package = package.rpartition(".")[0]
        return range(len(self.floors))

    def violations(self, edges: Iterable[Edge]) -> Iterator[tuple[str, str, Edge]]:
        """(room, imported room, import) of each import that does not go down."""
        for edge in edges:
            source, target = self.place(edge.source), self.place(edge.target)
            if source != target and not self._goes_down(edge):
                yield source, target, edge

    def place(self, module: str) -> str:
        """The room of a module, or its package if it has no room."""
        return self.room(module) or f"{module.rpartition('.')[0] or module}.?"

    def _goes_down(self, edge: Edge) -> bool:
        if self._is_barred(edge):
            return False
        source, target = self.span(edge.source), self.span(edge.target)
        unknown = len(source) > 1 or len(target) > 1
        return target[0] < source[-1] or (unknown and target[0] == source[-1])

    def _is_barred(self, edge: Edge) -> bool:
        packages = [each for each in self.only if is_within(edge.source, each)]
        allowed = self.only[max(packages, key=len)] if packages else [edge.target]
        return not any(_is_part(edge.target, each) for each in allowed)

    def unplaced(self, modules: Iterable[str]) -> list[str]:
        """Modules without a room."""
        return [module for module in modules if self.room(module) is None]

    def empty(self, modules: Iterable[str]) -> list[str]:
        """Rooms without a module."""
        taken = {self.room(module) for module in modules}
        return [room for room in self.heights if room not in taken]


def _is_part(module: str, room: str) -> bool:
    own = room.removesuffix(".__init__")
    return module == own or (own == room and is_within(module, room))
