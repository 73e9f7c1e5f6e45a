"""Where the modules and names of the release before have gone, for the error of an old import.

Loaded by the last finder of `sys.meta_path` (in `aotlite/__init__.py`), once an import of something
in aotlite has failed. `moved_modules.txt` is the table, a line each: the old name, the new one, and
`pickled` where pickles of metadata name the old module. This file, the table and the finder go with
the release after this one; tests/test_moved_modules.py says when.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from types import FrameType

from aotlite.ir.errors import FormatError, noted
from aotlite.stages.records.pickle_format import refusal

_TABLE = os.path.join(os.path.dirname(__file__), "moved_modules.txt")
_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"


class MovedMetadataError(FormatError, ModuleNotFoundError):
    """A module has moved whose classes are in pickles of metadata: an import, or an old pickle."""


@cache
def moved() -> dict[str, tuple[str, ...]]:
    """The table: by old name the new one, and what else its line says."""
    with open(_TABLE, encoding="ascii") as file:
        return {old: tuple(rest) for old, *rest in map(str.split, file)}


def import_error(name: str, loading: FrameType | None) -> ModuleNotFoundError:
    """The error of an import of a module that is not there: where it is now, if that is known.

    `loading`: a frame of the import system. An import of a.b.c imports a.b first, so the error is
    about the longest name that is known among those that are being imported.
    """
    wanted = [each for each in _being_imported(loading) if each in moved()]
    if not wanted:
        return ModuleNotFoundError(f"No module named {name!r}", name=name)
    return _moved_error(wanted[-1])


def _being_imported(frame: FrameType | None) -> Iterator[str]:
    """The modules that one import imports, parents first."""
    while frame is not None and frame.f_code.co_filename == _IMPORT_SYSTEM:
        if frame.f_code.co_name == "_find_and_load_unlocked":
            yield frame.f_locals["name"]
        frame = frame.f_back


def _moved_error(old: str) -> ModuleNotFoundError:
    new, *marks = moved()[old]
    text = f"{old} is now {new}"
    # `name` stays None: `from package import module` hides an error that has the module's name.
    error = ModuleNotFoundError(text)
    if "pickled" in marks:
        error = MovedMetadataError(f"{text}; {refusal('a pickle that names the old one', 0)}")
    inside = [key for key in moved() if key.rpartition(".")[0] == old]
    return noted(error, *[f"{key} is now {moved()[key][0]}" for key in inside])
