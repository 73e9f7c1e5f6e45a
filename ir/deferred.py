"""Lazy imports: modules that are imported when they are first used. Ground floor.

They shorten the first call. Where a graph's C text is in the disk cache, for example, importing the
C printer would take longer than the call. A module declares a lazy import at its top, beside its
other imports, in a form that type checkers and the import checks of this project understand:

    if TYPE_CHECKING:
        from aotlite.backends.cpu import emit
    else:
        emit = deferred("aotlite.backends.cpu.emit.c_program")
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _Deferred:
    """A proxy of a module. Every attribute access looks the name up in the module."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)

    def __repr__(self) -> str:
        return f"deferred({self._name!r})"


def deferred(name: str) -> _Deferred:
    """A proxy of the module of this full name. The first attribute access imports it.

    >>> deferred("colorsys").rgb_to_yiq(0.0, 0.0, 0.0)
    (0.0, 0.0, 0.0)
    """
    return _Deferred(name)
