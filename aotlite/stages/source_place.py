"""Where in the user's source we are: the innermost frame outside aotlite."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType

import aotlite
from aotlite.ir.location import Location, place_of

_OURS = tuple(os.path.join(os.path.abspath(path), "") for path in aotlite.__path__)
_NOT_OURS = tuple(
    os.path.join(os.path.abspath(path), part, "")
    for path in aotlite.__path__
    for part in ("tests", "examples", "benchmarks", "docs", ".venv")
)
_INTERNAL: dict[CodeType, bool] = {}


def is_internal(code: CodeType) -> bool:
    """Whether code belongs to aotlite itself."""
    found = _INTERNAL.get(code)
    if found is None:
        found = _INTERNAL[code] = _is_ours(code.co_filename)
    return found


def _is_ours(file: str) -> bool:
    if file.startswith("<"):  # no file: what we generate, or a user's notebook cell or doctest
        return file.startswith(("<attrs", "<string>", "<frozen", "<graph>"))
    path = os.path.abspath(file)
    return path.startswith(_OURS) and not path.startswith(_NOT_OURS)


def user_location() -> Location | None:
    """(code, instruction) of the innermost frame of the user; None if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not is_internal(code):
            return code, frame.f_lasti
        frame = frame.f_back
    return None


def describe(location: Location | None) -> str | None:
    """The place as tracebacks write it; None if it is unknown."""
    return None if location is None else place_of(location).note()
