"""The reading path: the files that hold the whole algorithm for plain tensors, from call to kernel.

Whoever reads them in a day meets no import that leads off, but for a few named seams.
"""

from collections.abc import Iterator

from tests.house.house import Finding, House
from tests.house.plan import plan

LINES = 12_000
SEAMS = 20


def lines(house: House) -> Iterator[Finding]:
    """The lines of the path, where they are too many for a day."""
    found = {name: house.sources[name].lines for name in plan()["path"] if name in house.sources}
    if sum(found.values()) > LINES:
        for name, count in found.items():
            yield Finding("lines", f"{name}: {count}", count, name)


def leads_off(house: House) -> Iterator[Finding]:
    """Modules off the path that the path imports, but for its seams."""
    path, seams = set(plan()["path"]), set(plan()["seams"])
    found: dict[str, set[str]] = {}
    for edge in house.edges:
        if edge.source in path and edge.target not in path | seams:
            found.setdefault(edge.target, set()).add(edge.source)
    for target, sources in sorted(found.items()):
        text = f"{target}, by {', '.join(sorted(sources))}"
        yield Finding("modules off the path", text, module=target)


def unmet(house: House) -> list[str]:
    """Modules of the path and seams that are none, seams that it does not import, and too many."""
    path, seams = plan()["path"], plan()["seams"]
    imported = {edge.target for edge in house.edges if edge.source in path}
    named = [*path, *seams]
    return [
        *(f"{name}: there is no such module" for name in named if name not in house.sources),
        *(f"{name}: nothing on the path imports it" for name in seams if name not in imported),
        *(f"{name}: stands on the path or among the seams twice" for name in _doubled(named)),
        *([f"{len(seams)} seams, expected at most {SEAMS}"] if len(seams) > SEAMS else []),
    ]


def _doubled(names: list[str]) -> set[str]:
    return {name for name in names if names.count(name) > 1}
