"""The user's source line: that of the innermost frame outside aotlite."""

from __future__ import annotations

import sys
from types import CodeType, FrameType

from aotlite.ir.errors import AotliteError
from aotlite.ir.provenance.library_files import is_library_file
from aotlite.ir.provenance.location import Location, place_of

_INTERNAL: dict[str, bool] = {}
"""By file name, since hashing a code object reads its whole content."""


def is_internal(code: CodeType) -> bool:
    """Whether code belongs to aotlite itself."""
    file = code.co_filename
    found = _INTERNAL.get(file)
    if found is None:
        found = _INTERNAL[file] = _is_ours(file)
    return found


def _is_ours(file: str) -> bool:
    if file.startswith("<"):  # no file: generated code, or a user's notebook cell or doctest
        return file.startswith(("<attrs", "<string>", "<frozen", "<graph>"))
    return is_library_file(file)


def user_location(depth: int = 1) -> Location | None:
    """(code, instruction) of the user's innermost frame; None if there is none.

    The innermost `depth` frames are skipped: they are aotlite's, and each frame read costs an
    object.
    """
    frame: FrameType | None = sys._getframe(depth)
    internal = _INTERNAL
    while frame is not None:
        code = frame.f_code
        ours = internal.get(code.co_filename)
        if ours is False or ours is None and not is_internal(code):
            return code, frame.f_lasti
        frame = frame.f_back
    return None


def describe(location: Location | None) -> str | None:
    """The location in the form of a traceback line; None if it is unknown."""
    return None if location is None else place_of(location).note()


def note_place(error: AotliteError) -> None:
    """Adds a note with the user's line that raised, unless the error has it already."""
    trace, location = error.__traceback__, None
    while trace is not None:
        if not is_internal(trace.tb_frame.f_code):
            location = trace.tb_frame.f_code, trace.tb_lasti
        trace = trace.tb_next
    note = describe(location)
    if note is not None and note not in getattr(error, "__notes__", ()):
        error.add_note(note)
