"""Whose code asks a symbolic number: aotlite's, or a user's (DYN-23). Ground floor.

Spec: `specs/symbols.md`.
"""

from __future__ import annotations

import sys
from abc import ABCMeta
from types import FrameType
from typing import Final

from aotlite.ir.provenance.location import Location

__all__ = ["asked_outside", "asking_place"]

_WRITTEN_AS_BY_USERS: Final = frozenset(("conformance", "data", "nn", "optim", "testing"))
"""Packages of aotlite that take sizes for ints, as users do: layers, and programs of tests."""
_OF_ABC = ABCMeta.__instancecheck__.__code__
_OUTSIDE: dict[object, bool] = {}
"""By the name of a module: whether symbols are shown to it as ints."""


def asked_outside(depth: int) -> bool:
    """Whether the frame `depth` above the caller runs code outside aotlite: a user's, or Python's
    for a user."""
    frame = sys._getframe(depth + 1)
    known = _OUTSIDE.get(frame.f_globals.get("__name__"))
    return _is_outside(frame) if known is None else known


def _is_outside(frame: FrameType) -> bool:
    if frame.f_code is _OF_ABC and frame.f_back is not None:
        return _is_outside(frame.f_back)
    name = frame.f_globals.get("__name__")
    package, _, inner = str(name).partition(".")
    found = package != "aotlite" or inner.partition(".")[0] in _WRITTEN_AS_BY_USERS
    _OUTSIDE[name] = found
    return found


def asking_place() -> Location | None:
    """The user's line that asks: of the innermost frame outside aotlite, Python's library and
    NumPy; of the innermost one outside aotlite if there is no such frame."""
    frame: FrameType | None = sys._getframe(1)
    found: Location | None = None
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package != "aotlite":
            of_library = package == "numpy" or package in sys.stdlib_module_names
            if not of_library or found is None:
                found = frame.f_code, frame.f_lasti
            if not of_library:
                return found
        frame = frame.f_back
    return found
