"""Locks, and what else threads hold, in a process that forks. Ground floor.

A forked child has one thread, the one that forked. What the others held would stay held for ever:
here it is free in the child, and what the one thread held is still held by it.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from weakref import ref

T = TypeVar("T")

_locks: set[ref[Any]] = set()
_forget = _locks.discard


def lock() -> threading.RLock:
    """A lock that is free in a forked child, unless the thread that forks holds it.

    What was half done under it stays so there: nothing may be wrong that its next holder finds, as
    where the last step under the lock says that all is done.

    >>> with lock() as is_held:
    ...     is_held
    True
    """
    made = threading.RLock()
    _locks.add(ref(made, _forget))
    return made


UNFORKED = threading.RLock()
"""No process is forked while another thread holds it: for a few assignments that belong together.

Who holds it waits for no other lock, and calls nobody's functions.
"""


class Blocks:
    """Blocks of code: `begin` is called as the first thread enters one, `end` as the last leaves.

    In a forked child the other threads have left theirs. Both functions are called while nobody
    forks (`UNFORKED`).
    """

    def __init__(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self._begin = begin
        self._end = end
        self._threads: dict[object, int] = {}
        """For each block that was entered and not left, whose it is."""
        _all_blocks.append(self)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """One such block."""
        block = object()
        with UNFORKED:
            if not self._threads:
                self._begin()
            self._threads[block] = threading.get_ident()
        try:
            yield
        finally:
            self._leave([block])

    def _leave(self, blocks: list[object]) -> None:
        with UNFORKED:
            was_in_some = bool(self._threads)
            for block in blocks:
                self._threads.pop(block, None)
            if was_in_some and not self._threads:
                self._end()

    def forked(self) -> None:
        """In a child: leaves the blocks of threads that it does not have."""
        own = threading.get_ident()
        self._leave([block for block, thread in self._threads.items() if thread != own])


_all_blocks: list[Blocks] = []


class cached_property(functools.cached_property[T]):
    """That of `functools`, whose lock, which Pythons before 3.12 have, is free in a child."""

    def __init__(self, func: Callable[[Any], T]) -> None:
        super().__init__(func)
        if hasattr(self, "lock"):
            self.lock = lock()


_LONGEST_IMPORT = 5.0
"""Seconds that a fork waits for imports: one may be waiting for the thread that forks."""


def _before() -> None:
    deadline = time.monotonic() + _LONGEST_IMPORT
    while _is_importing() and time.monotonic() < deadline:
        time.sleep(0.001)
    UNFORKED.acquire()


def _is_importing() -> bool:
    """Whether another thread imports a module of ours, which a child would wait for for ever.

    Python lets go of a module's lock for nobody but the thread that holds it.
    """
    locks: dict[str, Any] = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
    held = [each() for name, each in list(locks.items()) if name.startswith("aotlite.")]
    return any(getattr(each, "owner", None) not in (None, threading.get_ident()) for each in held)


def _in_child() -> None:
    UNFORKED.release()
    for each in list(_locks):
        found = each()
        if found is None:
            continue
        if found.acquire(blocking=False):  # nobody's, or this thread's
            found.release()
        else:
            found._at_fork_reinit()
    for blocks in _all_blocks:
        blocks.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=UNFORKED.release, after_in_child=_in_child)
