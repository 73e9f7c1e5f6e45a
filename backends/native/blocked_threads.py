"""Threads that wait for what runs outside of this process, and need its lock for nothing meanwhile.

Part of `specs/cpu_toolchain.md`. Who leaves processors to such a thread asks here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_absent: set[int] = set()
"""Identifiers of threads."""


@contextmanager
def absent() -> Iterator[None]:
    """While it lasts the calling thread only waits."""
    thread = threading.get_ident()
    _absent.add(thread)
    try:
        yield
    finally:
        _absent.discard(thread)


def is_absent(thread: int | None) -> bool:
    """Whether a thread of this identifier only waits."""
    return thread in _absent
