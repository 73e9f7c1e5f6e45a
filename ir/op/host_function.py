"""`HostFunction`: a Python function as an argument of an op.

Ground floor. A graph that calls back into Python (`aotlite.effects`) holds one as a literal. It has
a name, which printed text uses. It keeps the function alive, and a function has at most one that is
alive. A file cannot hold one (SER-9). Spec: `specs/tokens.md`.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

from aotlite.ir.errors import ArgumentError

__all__ = ["HostFunction", "host_function", "host_function_named"]

_NUMBERS = itertools.count()
_ALIVE: weakref.WeakValueDictionary[int, HostFunction] = weakref.WeakValueDictionary()
"""`id(function)` -> its `HostFunction`, for those that are alive."""


class HostFunction:
    """A Python function, and how an op calls it. Compared by identity."""

    __slots__ = ("__weakref__", "call", "function", "name")

    def __init__(self, function: Callable[..., Any], call: Callable[..., Any]) -> None:
        self.function = function
        """The user's function. No two living `HostFunction`s have the same."""
        self.call = call
        """The function that the op calls with arrays: the user's, or a wrapper of it."""
        self.name = f"{getattr(function, '__name__', type(function).__name__)}#{next(_NUMBERS)}"

    def __repr__(self) -> str:
        return f"HostFunction({self.name!r})"


def host_function(
    function: Callable[..., object], call: Callable[..., object] | None = None
) -> HostFunction:
    """The `HostFunction` of a function: the same object as long as it is alive.

    >>> mine = host_function(print)
    >>> host_function(print) is mine, host_function_named(mine.name) is mine
    (True, True)
    """
    found = _ALIVE.get(id(function))
    if found is None:
        found = _ALIVE.setdefault(id(function), HostFunction(function, call or function))
    return found


def host_function_named(name: str) -> HostFunction:
    """The living `HostFunction` of this name. Raises ArgumentError if there is none."""
    for found in list(_ALIVE.values()):
        if found.name == name:
            return found
    raise ArgumentError(
        f"host_function: name is {name!r}, expected that of a function that a graph of this "
        "process holds"
    )
