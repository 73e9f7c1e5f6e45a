"""The library's own files: a frame of another file is the user's code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import cache

_NAME = __name__.partition(".")[0]
_PATHS = [os.path.abspath(path) for path in sys.modules[_NAME].__path__]
_OURS = tuple(os.path.join(path, "") for path in _PATHS)
_NOT_OURS = tuple(
    os.path.join(path, part, "")
    for path in _PATHS
    for part in ("tests", "examples", "benchmarks", "docs", ".venv")
)


def is_library_file(file: str) -> bool:
    """Whether a file is part of aotlite, as the file names of code objects are written."""
    if file.startswith("<attrs generated "):
        return f" {_NAME}." in file
    if file.startswith("<"):  # a text, such as <string>: no file of the working folder
        return file.startswith(f"<{_NAME} ")
    path = os.path.abspath(file)
    return path.startswith(_OURS) and not path.startswith(_NOT_OURS)


@cache
def file_states(folder: str) -> tuple[str, ...]:
    """Path, size and times of each file of code below a folder, in order: they tell two states of
    the files apart, and reading all files would take longer. Users cannot set `st_ctime_ns`. The
    files of a running process do not change. Raises OSError where there is no folder."""
    return tuple(sorted(_states(folder)))


def _states(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith((".py", ".c", ".h")):
                found = entry.stat()
                yield f"{entry.path} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _states(entry.path)
