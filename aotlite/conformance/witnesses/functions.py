"""Functions of arrays that a library compiles, with their lines recorded for witnesses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotlite.conformance.adapter import Adapter, Array
from aotlite.conformance.error_source import demand_theirs
from aotlite.conformance.isolation.tracked_adapter import Watched
from aotlite.conformance.unsupported import Absent
from aotlite.conformance.witnesses.recording import Definition, Recorder


def library_of(on: Adapter | Recorder) -> Adapter:
    """Returns the adapter without wrappers, into which a library could trace."""
    found = on.adapter if isinstance(on, Recorder) else on
    return found.unwatched if isinstance(found, Watched) else found


def tried(
    on: Adapter, body: Callable[..., object], arrays: Sequence[Array]
) -> tuple[Callable[..., object], object, Exception | None]:
    """Returns `body(adapter, *arrays)` as a function of arrays, and its result or error on these.

    The recorder takes the lines of the function from this run. The function itself calls the
    adapter without wrappers, so that the library can trace it.
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
    on: Adapter, body: Callable[..., object], arrays: Sequence[Array]
) -> tuple[Callable[..., Any], Any]:
    """Like `tried`, without the error, which is raised."""
    function, result, failure = tried(on, body, arrays)
    if failure is not None:
        raise failure
    return function, result


def say(
    on: Adapter, lines: str, *values: object, function: Callable[..., object] | None = None
) -> None:
    """Adds lines to the witness that are no call of the adapter, with `{}` for arrays."""
    if isinstance(on, Recorder):
        on.say(lines, *values, function=function)


def tried_on_copies(
    on: Adapter, body: Callable[..., object], arrays: Sequence[Array]
) -> Callable[..., object]:
    """Returns the function of `tried`, run on copies of the arrays: it may write them, or fail."""
    return tried(on, body, [library_of(on).clone(each) for each in arrays])[0]
