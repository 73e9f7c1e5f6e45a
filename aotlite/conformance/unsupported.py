"""`Absent`, the error of an adapter whose library lacks something; the mark of missing methods.

The lowest module of the conformance suite: it imports nothing of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

MethodT = TypeVar("MethodT", bound=Callable[..., Any])


class Absent(Exception):
    """Raised if the library lacks what the text names. It makes a case absent, never broken."""


def optional(method: MethodT) -> MethodT:
    """Returns a method that raises `Absent` with its name until a subclass defines it."""

    @functools.wraps(method)
    def missing(*_: object) -> object:
        raise Absent(method.__name__)

    missing.is_missing = True  # type: ignore[attr-defined]
    return missing  # type: ignore[return-value]


def is_missing(adapter: object, name: str) -> bool:
    """Whether an adapter does not define this method, so that only the base class documents it."""
    return getattr(getattr(adapter, name, None), "is_missing", False)
