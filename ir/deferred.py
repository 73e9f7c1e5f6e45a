"""Modules that are imported when they are first used. Ground floor.

For what a first call often does without, such as the printer where a graph's C text is in the disk
cache: importing it would take longer than the call. The module that needs it says so at its top,
beside its other imports, in a form that people and tools read as the import that it is:

    if TYPE_CHECKING:
        from aotlite.backends.cpu import emit
    else:
        emit = deferred("aotlite.backends.cpu.emit.c_program")
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class _Deferred:
    """Stands for a module: a name of it is looked up in the module, each time anew."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)

    def __repr__(self) -> str:
        return f"deferred({self._name!r})"


def deferred(name: str) -> Any:
    """What stands for the module of this full name, which is imported when it is first used.

    >>> deferred("colorsys").rgb_to_yiq(0.0, 0.0, 0.0)
    (0.0, 0.0, 0.0)
    """
    return _Deferred(name)
