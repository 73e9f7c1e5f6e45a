"""Functions of arrays, handed to a library with their lines written down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotlite.testing.conformance.adapter import Adapter, Array
from aotlite.testing.conformance.recording import Definition, Recorder


def library_of(on: Adapter | Recorder) -> Adapter:
    """The adapter itself, without the recorder around it."""
    return on.adapter if isinstance(on, Recorder) else on


def defined(
    on: Adapter, body: Callable[..., Any], arrays: Sequence[Array]
) -> tuple[Callable[..., Any], Any]:
    """`body(adapter, *arrays)` as a function of arrays alone, and what it does on these.

    The run is what the recorder writes down as the function's lines: the function itself talks to
    the library directly, so that the library may trace it.
    """
    library = library_of(on)

    def function(*arrays: Array) -> Any:
        return body(library, *arrays)

    if isinstance(on, Recorder):
        tried = Recorder(library)
        result = body(tried, *arrays)
        on.define(Definition(function, arrays, tried.events, result))
    else:
        result = function(*arrays)
    return function, result
