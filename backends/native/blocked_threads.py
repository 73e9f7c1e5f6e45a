"""The threads that wait for something outside of this process, and so need no GIL meanwhile.

An interpreted run asks whether the compiling thread is one of them, before it gives way to it. Part
of `specs/cpu_toolchain.md`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_absent: set[int] = set()
"""The identifiers of the waiting threads."""


@contextmanager
def absent() -> Iterator[None]:
    """Marks the calling thread as waiting, for the length of a block."""
    thread = threading.get_ident()
    _absent.add(thread)
    try:
        yield
    finally:
        _absent.discard(thread)


def is_absent(thread: int | None) -> bool:
    """Whether the thread of this identifier is marked as waiting."""
    return thread in _absent
