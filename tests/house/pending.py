"""Pages call no built feature missing.

The features that are not built are in one list, in docs/limits.md, and on no other page.
"""

import functools
import re
from collections.abc import Iterator, Set
from pathlib import Path

from tests.house.names import GLOSSARY, glossary_terms, singulars
from tests.house.sources import ROOT
from tests.house.texts import line_of

LIST = Path("docs", "limits.md")
# In parts, so that this file does not contain what it looks for.
PHRASE = re.compile(
    "not" + r"\s(?:yet\s)?(?:built|implemented)\b|waits" + r"\sfor\sthe\s\w+\sbackend\b",
    re.IGNORECASE,
)
ITEMS = re.compile("^Not" + r" built yet: (.*)", re.MULTILINE)
PLACES = ("specs", "docs", "aotlite", "ir", "backends", "README.md", "examples")


def says_not_built(path: Path, text: str) -> Iterator[str]:
    """Remarks about missing features on other pages than the list."""
    if path.parts[0] in PLACES and path != LIST:
        for match in PHRASE.finditer(text):
            said = " ".join(match[0].split())
            yield f"{path}:{line_of(match, text)}: says {said!r}, expected in {LIST} alone"


def lists_what_is_built(path: Path, text: str) -> Iterator[str]:
    """Items of the list that the glossary defines, which has only built features."""
    if path == LIST:
        for match in ITEMS.finditer(text):
            for item in re.split(r", (?:and )?", match[1].rstrip(".")):
                if any(each in built() for each in singulars(item.lower())):
                    yield f"{path}: says that {item} are not built, the glossary defines them"


@functools.cache
def built() -> Set[str]:
    """The glossary's terms."""
    return set(glossary_terms((ROOT / GLOSSARY).read_text("utf-8")))
