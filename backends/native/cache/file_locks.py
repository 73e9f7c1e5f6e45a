"""File locks between processes and threads, by filelock. Part of `specs/cpu_toolchain.md`.

The system frees the lock of a process that ends, however it ends, so that no lock is ever stale.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from filelock import FileLock

from aotlite.backends.native.blocked_threads import absent

_NAP = 0.01


@contextmanager
def held(path: str, limit: float) -> Iterator[bool]:
    """Holds a lock for a block. Yields False if it could not be had within `limit` seconds.

    The caller goes on without it: the locks here save work that would be done twice, no more. The
    holder removes the file, which those who wait for it notice.
    """
    lock = FileLock(path, timeout=limit, mode=0o600)
    try:
        with absent():
            lock.acquire(poll_interval=_NAP)
    except (OSError, NotImplementedError):  # it took too long; a read-only folder; no flock there
        yield False
        return
    try:
        yield True
    finally:
        with suppress(OSError):
            os.unlink(path)
        lock.release()
