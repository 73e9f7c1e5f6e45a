"""Values that are made at most once a process, whichever thread asks first.

Safe under threads and after `fork`: a child takes over the values and none of the locks, which a
thread that does not exist there may hold. Part of `specs/cpu_toolchain.md`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from aotlite.ir.forks import lock

T = TypeVar("T")


class Once(Generic[T]):
    """Values by key; of the threads that want one, one makes it and the others wait.

    An error is raised in the thread that met it and is not kept: the next one tries again.

    >>> made = Once[int]()
    >>> made.get("a", lambda: 1), made.get("a", lambda: 2)
    (1, 1)
    """

    def __init__(self) -> None:
        self._values: dict[Hashable, T] = {}
        self._lock = lock()
        self._making: dict[Hashable, threading.RLock] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of a key, made where there is none. `make` must not ask for the same key."""
        if key in self._values:
            return self._values[key]
        with self._lock:
            making = self._making.setdefault(key, lock())
        with making:
            if key not in self._values:
                self._values[key] = make()
            return self._values[key]

    def known(self, key: Hashable) -> T | None:
        """The value of a key where there is one."""
        return self._values.get(key)

    def forget(self) -> None:
        """Drops all values."""
        self._values.clear()


class OnceAlive(Generic[T]):
    """The same for values that are kept while somebody else has them, and made anew after that."""

    def __init__(self) -> None:
        self._values: WeakValueDictionary[Hashable, T] = WeakValueDictionary()
        self._lock = lock()
        self._making: WeakValueDictionary[Hashable, threading.RLock] = WeakValueDictionary()
        """Locks go when no thread makes the value."""

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value of a key, made where nobody has one. `make` must not ask for the same key."""
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
