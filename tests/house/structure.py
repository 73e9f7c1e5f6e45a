"""Checks of imports: circles, floors, modules without a room, imports in functions."""

from collections.abc import Iterator

from tests.house import circles, lazy
from tests.house.house import Finding, House, short
from tests.house.plan import floors, plan


def in_circles(house: House) -> Iterator[Finding]:
    """The modules of each circle, the largest circle first."""
    for number, circle in enumerate(circles.circles(house.edges), 1):
        for module in circle:
            yield Finding(f"circle {number:02}", module, module=module)


def against_floors(house: House) -> Iterator[Finding]:
    """Imports that do not go down a floor, by pair of rooms."""
    for source, target, edge in floors().violations(house.edges):
        yield Finding(f"{_room(source)} -> {_room(target)}", str(edge), module=edge.source)


def without_room(house: House) -> Iterator[Finding]:
    """Modules without a room of the plan, by package."""
    for module in floors().unplaced(house.sources):
        yield Finding(short(module.rpartition(".")[0] or module), module, module=module)


def empty_rooms(house: House) -> Iterator[Finding]:
    """Rooms of the plan that are not in the tree."""
    for room in floors().empty(house.sources):
        yield Finding(_room(room), _room(room))


def in_functions(house: House) -> Iterator[Finding]:
    """Imports in functions, by module."""
    for module, source in house.sources.items():
        if source.module in plan()["tables"]:
            continue
        for each in lazy.complaints(source, plan()["optional"], plan()["by_name"]):
            name = each.name or "a name known when it runs"
            yield Finding(module, f"{module}:{each.line}: {name}", module=module)


def _room(name: str) -> str:
    package = name.removesuffix(".__init__")
    return short(name) if package == name else f"{short(package)} itself"
