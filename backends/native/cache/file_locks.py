"""File locks between processes and threads, by flock. Part of `specs/cpu_toolchain.md`.

The system frees the lock of a process that ends, however it ends, so that no lock is ever stale.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from aotlite.backends.native.blocked_threads import absent

try:
    import fcntl
except ModuleNotFoundError:  # Windows, where nothing is compiled
    pass

_NAP, _LONGEST_NAP = 0.002, 0.05


@contextmanager
def held(path: str, limit: float) -> Iterator[bool]:
    """Holds a lock for a block. Yields False if it could not be had within `limit` seconds.

    The caller goes on without it: the locks here save work that would be done twice, no more.
    """
    handle = _acquired(path, time.monotonic() + limit)
    try:
        yield handle is not None
    finally:
        if handle is not None:
            _release(path, handle)


def _acquired(path: str, deadline: float) -> int | None:
    nap = _NAP
    try:
        while True:
            handle = _tried(path)
            if handle is not None or time.monotonic() > deadline:
                return handle
            with absent():
                time.sleep(nap)
            nap = min(2 * nap, _LONGEST_NAP)
    except OSError:  # a read-only folder, or a file system without locks
        return None


def _tried(path: str) -> int | None:
    """Returns the descriptor of a file that holds the lock; None if another one holds it.

    The holder removes the file when it is done. A file that was opened before that and locked after
    it is not the lock any more, which the comparison with the path finds.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(handle), os.stat(path)):
            return handle
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None


def _release(path: str, handle: int) -> None:
    """Unlocks by removing the file: closing it does not unlock while a forked child has it open."""
    with suppress(OSError):
        os.unlink(path)
    os.close(handle)
