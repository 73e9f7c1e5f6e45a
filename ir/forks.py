"""Locks that survive `os.fork`. Ground floor.

A forked child has one thread: the one that forked. A lock that another thread held would stay
locked in the child for ever. The locks made here are free in the child, unless the forking thread
itself holds them; it still does then.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, ParamSpec, TypeVar
from weakref import ref

T = TypeVar("T")
Key = TypeVar("Key")
Arguments = ParamSpec("Arguments")

_locks: set[ref[Any]] = set()
_forget = _locks.discard


def lock() -> threading.RLock:
    """A reentrant lock that is free in a forked child, unless the forking thread holds it.

    The child may find work half done under it. So write each critical section such that its last
    step publishes the result, and a state before that step is valid.

    >>> with lock() as is_held:
    ...     is_held
    True
    """
    made = threading.RLock()
    _locks.add(ref(made, _forget))
    return made


UNFORKED = threading.RLock()
"""A fork waits until no other thread holds this lock: it protects a few related assignments.

Code that holds it must not wait for another lock, nor call functions of users.
"""


class Blocks:
    """Counted blocks: `begin` runs when the first thread enters one, `end` when the last leaves.

    A forked child counts the blocks of the other threads as left. Both functions run under
    `UNFORKED`, so that no fork happens in between.
    """

    def __init__(self, begin: Callable[[], None], end: Callable[[], None]) -> None:
        self._begin = begin
        self._end = end
        self._threads: dict[object, int] = {}
        """Each block that is entered now -> the identity of its thread."""
        _all_blocks.append(self)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """A context manager that is one such block."""
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
        """In a forked child: leaves the blocks of the threads that do not exist there."""
        own = threading.get_ident()
        self._leave([block for block, thread in self._threads.items() if thread != own])


_all_blocks: list[Blocks] = []


class cached_property(functools.cached_property[T]):
    """`functools.cached_property`, with a lock that survives forks on Python before 3.12."""

    def __init__(self, func: Callable[[Any], T]) -> None:
        super().__init__(func)
        if hasattr(self, "lock"):
            self.lock = lock()


class Later(Generic[T]):
    """A value that is made when it is first asked for.

    >>> Later(lambda: [1]).value
    [1]
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make

    @cached_property
    def value(self) -> T:
        """The value."""
        return self._make()


class Memo(Generic[Key, T]):
    """Values by key, each made once, on first use, also where several threads ask for it.

    >>> lengths: Memo[str, int] = Memo()
    >>> lengths.get("dy", len, "dy"), lengths.values()
    (2, [2])
    """

    def __init__(self) -> None:
        self._made: dict[Key, T] = {}
        self._lock = lock()

    def get(
        self,
        key: Key,
        make: Callable[Arguments, T],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> T:
        """The value of `key`; the first time, the result of `make`. If that raises, there is none.
        All keys share one lock, which is reentrant: `make` may ask for another key."""
        found = self._made.get(key)
        if found is None:
            with self._lock:
                found = self._made.get(key)
                if found is None:
                    found = self._made[key] = make(*args, **kwargs)
        return found

    def values(self) -> list[T]:
        """The values made so far, in order."""
        return list(self._made.values())


_LONGEST_IMPORT = 5.0
"""Seconds that a fork waits for imports of other threads. Longer would risk a deadlock: such an
import may itself wait for the thread that forks."""


def _before() -> None:
    deadline = time.monotonic() + _LONGEST_IMPORT
    while _is_importing() and time.monotonic() < deadline:
        time.sleep(0.001)
    UNFORKED.acquire()


def _is_importing() -> bool:
    """Whether another thread is importing a module of aotlite.

    The child would inherit that module's import lock, and only the thread that holds it, which the
    child does not have, could release it.
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
