"""Functions of arrays, handed to a library with their lines written down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotlite.conformance.adapter import Adapter, Array
from aotlite.conformance.error_source import demand_theirs
from aotlite.conformance.isolation.tracked_adapter import Watched
from aotlite.conformance.unsupported import Absent
from aotlite.conformance.witnesses.recording import Definition, Recorder


def library_of(on: Adapter | Recorder) -> Adapter:
    """The adapter itself, with nothing around it that a library could trace into."""
    found = on.adapter if isinstance(on, Recorder) else on
    return found.unwatched if isinstance(found, Watched) else found


def tried(
    on: Adapter, body: Callable[..., Any], arrays: Sequence[Array]
) -> tuple[Callable[..., Any], Any, Exception | None]:
    """`body(adapter, *arrays)` as a function of arrays, and its result or error on these.

    What this run does is what the recorder writes down as the lines of a new function: the function
    itself talks to the library directly, so that the library may trace it.
    """
    library = library_of(on)

    def function(*arrays: Array) -> Any:
        return body(library, *arrays)

    seen = Recorder(library)
    result, failure = None, None
    try:
        result = body(seen, *arrays)
    except Absent:
        raise
    except Exception as error:
        demand_theirs(error)
        failure = error
    if isinstance(on, Recorder):
        on.define(Definition(function, arrays, seen.events, result))
    return function, result, failure


def defined(
    on: Adapter, body: Callable[..., Any], arrays: Sequence[Array]
) -> tuple[Callable[..., Any], Any]:
    """As `tried`, for what must not fail."""
    function, result, failure = tried(on, body, arrays)
    if failure is not None:
        raise failure
    return function, result


def say(
    on: Adapter, lines: str, *values: object, function: Callable[..., Any] | None = None
) -> None:
    """Lines for the witness, with `{}` for arrays: what no adapter's method stands for."""
    if isinstance(on, Recorder):
        on.say(lines, *values, function=function)


def told(on: Adapter, body: Callable[..., Any], arrays: Sequence[Array]) -> Callable[..., Any]:
    """As `tried`, on copies of the arrays: for what writes them, or fails."""
    return tried(on, body, [library_of(on).clone(each) for each in arrays])[0]
