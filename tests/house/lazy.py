"""No import inside a function, except of optional packages.

Such an import hides a circle, and costs time at the first call.
"""

from collections.abc import Container, Iterable, Iterator, Mapping

from tests.house.imports import Import, imports
from tests.house.sources import Scope, Source


def complaints(
    source: Source, optional: Container[str], by_name: Container[str] = ()
) -> Iterator[Import]:
    """Imports in functions of packages that are always installed, and imports by computed names.

    Modules of `by_name` may have the latter.
    """
    for each in imports(source):
        inside = each.scope is Scope.FUNCTION
        if not each.is_literal:
            if source.module not in by_name:
                yield each
        elif inside and each.name.split(".")[0] not in optional:
            yield each


def unneeded(sources: Mapping[str, Source], by_name: Iterable[str]) -> list[str]:
    """Modules that may import by computed names, and do not."""
    return [
        module
        for module in by_name
        if module not in sources or all(each.is_literal for each in imports(sources[module]))
    ]
