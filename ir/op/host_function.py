"""`HostFunction`: a Python function as an argument of an op, by a name that printed text can use.

Ground floor. A graph that calls back into Python holds one of these where other graphs hold a
number: the function itself is alive as long as it is, and has one `HostFunction` as long as that
is alive. A file cannot hold one (SER-9). Spec: `specs/tokens.md`.
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
"""Those that somebody holds, by the identity of the function that each holds."""


class HostFunction:
    """A function on the host, and how it is called. Equal to itself alone."""

    __slots__ = ("__weakref__", "call", "function", "name")

    def __init__(self, function: Callable[..., Any], call: Callable[..., Any]) -> None:
        self.function = function
        """What the user gave: never two living ones with the same."""
        self.call = call
        """What is called with arrays, in its place."""
        self.name = f"{getattr(function, '__name__', type(function).__name__)}#{next(_NUMBERS)}"

    def __repr__(self) -> str:
        return f"HostFunction({self.name!r})"


def host_function(
    function: Callable[..., Any], call: Callable[..., Any] | None = None
) -> HostFunction:
    """The `HostFunction` of a function: the same one, while anybody holds it.

    >>> mine = host_function(print)
    >>> host_function(print) is mine, host_function_named(mine.name) is mine
    (True, True)
    """
    found = _ALIVE.get(id(function))
    if found is None:
        found = _ALIVE.setdefault(id(function), HostFunction(function, call or function))
    return found


def host_function_named(name: str) -> HostFunction:
    """The one of this name, which printed text has. Raises ArgumentError where none is alive."""
    for found in list(_ALIVE.values()):
        if found.name == name:
            return found
    raise ArgumentError(
        f"host_function: name is {name!r}, expected that of a function that a graph of this "
        "process holds"
    )
