"""Checks methods of adapters against rules' calls: a misspelt one must not count as absent."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterator

from aotlite.conformance.adapter import Adapter
from aotlite.ir.errors import ArgumentError


def checked(adapter: Adapter) -> Adapter:
    """Returns the adapter. Raises `ArgumentError` for a method that no rule calls, or that does not
    take a rule's arguments. Names of an adapter's own helpers begin with an underscore."""
    for complaint in complaints(type(adapter)):
        raise ArgumentError(complaint)
    return adapter


def complaints(adapter: type[Adapter]) -> Iterator[str]:
    """Yields the mistakes in the methods that a class adds to `Adapter`."""
    for name, method in inspect.getmembers(adapter, inspect.isfunction):
        asked = getattr(Adapter, name, None)
        if asked is None and not name.startswith("_"):
            yield _unknown(adapter, name)
        elif asked is not None and not name.startswith("_") and not _takes(method, asked):
            yield (
                f"{adapter.__name__}.{name}: its parameters are {_parameters(method)}, "
                f"expected {_parameters(asked)}"
            )


def _unknown(adapter: type[Adapter], name: str) -> str:
    known = [each for each, _ in inspect.getmembers(Adapter, inspect.isfunction)]
    close = difflib.get_close_matches(name, known, 1)
    meant = f" (is {close[0]!r} meant?)" if close else ""
    return f"{adapter.__name__}: method is {name!r}, expected one of Adapter's, or _{name}{meant}"


def _takes(method: object, asked: object) -> bool:
    """Whether a method takes the documented method's arguments by position."""
    assert callable(method) and callable(asked)
    try:
        inspect.signature(method).bind(*inspect.signature(asked).parameters)
    except TypeError:
        return False
    return True


def _parameters(method: object) -> str:
    assert callable(method)
    names = list(inspect.signature(method).parameters)
    return f"({', '.join(names[1:])})"
