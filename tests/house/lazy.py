"""No import inside a function, but of what need not be installed.

Such an import hides a circle, and is paid for by whoever calls the function first.
"""

from collections.abc import Container, Iterable, Iterator

from tests.house.imports import Import, imports
from tests.house.sources import Scope, Source


def complaints(source: Source, optional: Container[str]) -> Iterator[Import]:
    """Imports in functions of what is always there, and imports of names that no text says."""
    for each in imports(source):
        inside = each.scope is Scope.FUNCTION
        if not each.is_literal or (inside and each.name.split(".")[0] not in optional):
            yield each


def by_module(sources: Iterable[Source], optional: Container[str]) -> dict[str, list[Import]]:
    found = {source.module: list(complaints(source, optional)) for source in sources}
    return {module: each for module, each in found.items() if each}
