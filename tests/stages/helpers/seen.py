"""The observations of values by a program, as plain data to compare with `==`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aotlite as al

Wrap = Callable[..., Any]
"""The compiler of a session: `al.compile`, or the identity."""


def seen(value: Any) -> Any:
    """Values by their bits, so that nan equals itself and 0.0 differs from -0.0."""
    if not isinstance(value, al.Tensor):
        # Python writes long ints in hexadecimal digits only.
        return type(value).__name__, hex(value) if type(value) is int else repr(value)
    storage = value.storage
    return {
        "class": type(value).__name__,
        "geometry": (value.shape, value.stride(), value.offset, str(value.dtype)),
        "storage": (storage.version, storage.buffer.nbytes, storage.writable),
        "history": (value.requires_grad, value._base is not None),
        "values": repr(value.array.tolist()),
        "grad": None if value._grad is None else seen(value._grad),
    }


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    """The results of a call, each as `seen`; or the class of its error."""
    try:
        found = function(*args)
    except Exception as error:
        return type(error).__name__
    return [seen(each) for each in found] if isinstance(found, (tuple, list)) else seen(found)


def eager(function: Any, **options: Any) -> Any:
    """The function as it is, in the place of `al.compile`."""
    return function


def assert_same_session(session: Callable[[Wrap], list[Any]]) -> None:
    """Plays a session eagerly and compiled, and compares all that it noted."""
    al.manual_seed(0)
    expected = session(eager)
    al.manual_seed(0)
    found = session(al.compile)
    assert len(expected) == len(found)
    for step, (before, after) in enumerate(zip(expected, found, strict=True)):
        assert before == after, f"note {step} of {session.__name__}"
