"""Where in the user's source we are: the innermost frame outside aotlite. Resolved when printed."""

from __future__ import annotations

import linecache
import os
import sys
from types import CodeType, FrameType

import aotlite
from aotlite.ir.graph import Location

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
        path = os.path.abspath(code.co_filename)
        ours = path.startswith(_OURS) and not path.startswith(_NOT_OURS)
        found = _INTERNAL[code] = ours or code.co_filename.startswith("<attrs")
    return found


def user_location() -> Location | None:
    """(code, instruction) of the innermost frame of the user; None if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not is_internal(code):
            return code, frame.f_lasti
        frame = frame.f_back
    return None


def line_of(location: Location | None) -> int | None:
    """The line number of a location."""
    if location is None:
        return None
    code, instruction = location
    for start, end, line in code.co_lines():
        if start <= instruction < end:
            return line
    return code.co_firstlineno


def describe(location: Location | None) -> str | None:
    """`file.py:12, in loss: y = x * 2`."""
    if location is None:
        return None
    code, _ = location
    line = line_of(location)
    text = linecache.getline(code.co_filename, line or 0).strip()
    return f"{code.co_filename}:{line}, in {code.co_name}" + (f": {text}" if text else "")
