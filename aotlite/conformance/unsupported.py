"""How an adapter says that its library lacks something: `Absent`, and the mark of a missing method.

Ground floor of the conformance suite: imports nothing of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

MethodT = TypeVar("MethodT", bound=Callable[..., Any])


class Absent(Exception):
    """The library has no such thing; the text names it. Makes a case absent, never broken."""


def optional(method: MethodT) -> MethodT:
    """Returns a method that raises `Absent` with its name until a subclass defines it."""

    @functools.wraps(method)
    def missing(*_: object) -> object:
        raise Absent(method.__name__)

    missing.is_missing = True  # type: ignore[attr-defined]
    return missing  # type: ignore[return-value]


def is_missing(adapter: object, name: str) -> bool:
    """Whether an adapter leaves this method to the base class, which only documents it."""
    return getattr(getattr(adapter, name, None), "is_missing", False)
