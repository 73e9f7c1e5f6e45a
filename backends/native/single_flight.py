"""Single flight: a value is made once a process, and threads that ask meanwhile wait for it.

Safe after `fork`, too: a child inherits the values but no held locks, whose owners do not exist
there. Part of `specs/cpu_toolchain.md`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from aotlite.ir.forks import lock

T = TypeVar("T")


class Once(Generic[T]):
    """Values by key. Of the threads that want one, one makes it and the others wait.

    An error is raised in the thread that makes the value, and not kept: the next one tries again.

    >>> made = Once[int]()
    >>> made.get("a", lambda: 1), made.get("a", lambda: 2)
    (1, 1)
    """

    def __init__(self) -> None:
        self._values: dict[Hashable, T] = {}
        self._lock = lock()
        self._making: dict[Hashable, threading.RLock] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns the value of a key, made by `make` if there is none. `make` must not ask for the
        same key."""
        if key in self._values:
            return self._values[key]
        with self._lock:
            making = self._making.setdefault(key, lock())
        with making:
            if key not in self._values:
                self._values[key] = make()
            return self._values[key]

    def known(self, key: Hashable) -> T | None:
        """Returns the value of a key; None if there is none."""
        return self._values.get(key)

    def forget(self) -> None:
        """Drops all values."""
        self._values.clear()


class OnceAlive(Generic[T]):
    """`Once` for values that are kept weakly: one that nobody refers to any more is made anew."""

    def __init__(self) -> None:
        self._values: WeakValueDictionary[Hashable, T] = WeakValueDictionary()
        self._lock = lock()
        self._making: WeakValueDictionary[Hashable, threading.RLock] = WeakValueDictionary()
        """Locks, which live as long as a thread makes the value."""

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns the value of a key, made by `make` if it is not alive. `make` must not ask for
        the same key."""
        found = self._values.get(key)
        if found is not None:
            return found
        with self._lock:
            making = self._making.setdefault(key, lock())
        with making:
            found = self._values.get(key)
            if found is None:
                found = self._values[key] = make()
            return found

    def forget(self) -> None:
        """Drops all values."""
        self._values.clear()
