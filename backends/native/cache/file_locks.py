"""File locks between processes, and between threads. Part of `specs/cpu_toolchain.md`.

`flock`: the system frees the lock of a process that ends in whatever way, so none is ever stale.
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
    """Holds a lock; gives False where it was not to be had within `limit` seconds or not at all.

    What a lock is for here is no work done twice, so the caller goes on without it.
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
    except OSError:  # a folder that cannot be written, a file system without locks
        return None


def _tried(path: str) -> int | None:
    """An open file that holds the lock; None where another one does.

    The file goes when the lock does, so one that was opened before and locked after that is no
    longer the lock.
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
    """Unlocks by name: closing alone would not, where a forked child has the file open as well."""
    with suppress(OSError):
        os.unlink(path)
    os.close(handle)
