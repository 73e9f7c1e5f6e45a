"""The library's own files: a frame of another file is the user's code."""

from __future__ import annotations

import os
import sys

_PATHS = [os.path.abspath(path) for path in sys.modules[__name__.partition(".")[0]].__path__]
_OURS = tuple(os.path.join(path, "") for path in _PATHS)
_NOT_OURS = tuple(
    os.path.join(path, part, "")
    for path in _PATHS
    for part in ("tests", "examples", "benchmarks", "docs", ".venv")
)


def is_library_file(file: str) -> bool:
    """Whether a file is part of aotlite, as the file names of code objects are written."""
    path = os.path.abspath(file)
    return path.startswith(_OURS) and not path.startswith(_NOT_OURS)
