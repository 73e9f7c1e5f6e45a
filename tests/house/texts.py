"""Rules of texts: forbidden words, and the length of files."""

import re
from collections.abc import Iterator
from pathlib import Path

# In two parts, so that this file does not contain what it looks for.
UNFINISHED = re.compile("TO" + r"DO\b|\bFIX" + "ME")
REGISTRIES = re.compile("index" + "-url|" + "pypi" + r"\.|python" + "hosted|download.py" + "torch")


def is_too_long(path: Path, text: str) -> Iterator[str]:
    """Python files past the end: 500 lines, or 700 of tests."""
    limit = 700 if path.parts[0] == "tests" else 500
    lines = len(text.splitlines())
    if path.suffix == ".py" and lines > limit:
        yield f"{path}: has {lines} lines, expected at most {limit}"


def is_unfinished(path: Path, text: str) -> Iterator[str]:
    for match in UNFINISHED.finditer(text):
        yield f"{path}:{line_of(match, text)}: is marked unfinished"


def names_a_registry(path: Path, text: str) -> Iterator[str]:
    """Names of package registries, which belong to the installing machine."""
    for match in REGISTRIES.finditer(text):
        yield f"{path}:{line_of(match, text)}: names a package registry"


def line_of(match: re.Match[str], text: str) -> int:
    return text.count("\n", 0, match.start()) + 1
