"""The reading path: the files with the whole algorithm for plain tensors, from call to kernel.

Its imports stay on the path, but for a few named seams: the modules of a feature, or of a room that
the reader takes on trust.
"""

import functools
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from tests.house.house import Finding, House, short
from tests.house.plan import plan
from tests.house.sources import ROOT

LINES = 12_000
SEAMS = 20
_TO_READ = re.compile(r"^(?:Read beside this page|Also on the path): (.*)", re.MULTILINE)


def lines(house: House) -> Iterator[Finding]:
    """The lines of the path, if they are too many for a day."""
    found = {name: house.sources[name].lines for name in _path(house) if name in house.sources}
    if sum(found.values()) > LINES:
        for name, count in found.items():
            yield Finding("lines", f"{name}: {count}", count, name)


def leads_off(house: House) -> Iterator[Finding]:
    """Modules that the path imports, and that are neither on it nor in a seam."""
    for target, sources in _off(house).items():
        if not any(_is_of(target, patterns) for patterns in plan()["seams"].values()):
            text = f"{target}, by {', '.join(sorted(sources))}"
            yield Finding("modules off the path", text, module=target)


def unmet(house: House) -> Iterator[Finding]:
    """Entries of the path and its seams that match no module, and seams past the allowed number."""
    path, seams = _path(house), plan()["seams"]
    for name in path:
        if name not in house.sources:
            yield Finding(name, f"{name}: there is no such module")
        if path.count(name) > 1:
            yield Finding(name, f"{name}: stands on the path {path.count(name)} times")
    off = _off(house)
    for seam, patterns in seams.items():
        for pattern in patterns:
            if not any(_is_of(module, [pattern]) for module in off):
                yield Finding(seam, f"{seam}: the path imports nothing of {pattern}")
    for seam in list(seams)[SEAMS:]:
        yield Finding("seams", f"{seam}: is one too many, expected at most {SEAMS}")


def pages() -> Iterator[str]:
    """The texts of the tour."""
    return (page.read_text("utf-8") for page in sorted(ROOT.glob("docs/tour/*.md")))


def not_as_named(house: House, texts: Iterable[str]) -> Iterator[str]:
    """Files of the path that pages do not name once, and what else they name as files of it."""
    lines = [line for text in texts for line in _TO_READ.findall(text)]
    named = [file for line in lines for file in re.findall(r"`([^`]+)`", line)]
    files = [house.sources[name].path.as_posix() for name in _path(house) if name in house.sources]
    for file in sorted({*named, *files}):
        if named.count(file) != files.count(file):
            counts = f"{named.count(file)} times by the tour, {files.count(file)} by the path"
            yield f"{file}: named {counts}"


def _path(house: House) -> list[str]:
    return [house.name(module) for module in plan()["path"]]


def _off(house: House) -> dict[str, set[str]]:
    """Modules off the path that it imports, by which of its modules."""
    path = set(_path(house))
    found: dict[str, set[str]] = {}
    for edge in sorted(house.edges, key=lambda edge: edge.target):
        if edge.source in path and edge.target not in path:
            found.setdefault(edge.target, set()).add(edge.source)
    return found


def _is_of(module: str, patterns: list[str]) -> bool:
    """Whether a module, or a package that it is in, fits one of the patterns."""
    return any(_fits(short(module), pattern) for pattern in patterns)


@functools.cache
def _fits(name: str, pattern: str) -> bool:
    while name:
        if fnmatchcase(name, pattern):
            return True
        name = name.rpartition(".")[0]
    return False
