"""How many threads compiled code uses on the CPU.

Known without a compiler: the interpreter of the loop IR divides its work by it, too. The runtime
library of `cpu` asks to be told of changes. Spec: `specs/cpu_runtime.md`.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from aotlite.backends.blas import find_blas
from aotlite.ir.errors import ArgumentError

MOST_THREADS = 256
"""What the thread pool (`runtime.c`) has room for."""

_threads: list[int] = []
_observers: list[Callable[[int], object]] = []


def get_num_threads() -> int:
    """How many threads compiled code uses on the CPU, the calling one included.

    >>> get_num_threads() >= 1
    True
    """
    if not _threads:
        _threads.append(default_threads())
    return _threads[-1]


def set_num_threads(number: int) -> None:
    """Lets compiled code use so many threads on the CPU; runs that have begun keep theirs.

    Sums may change in their last bits, since work is divided by the number of threads.

    >>> before = get_num_threads()
    >>> set_num_threads(1)
    >>> get_num_threads()
    1
    >>> set_num_threads(before)
    """
    if type(number) is not int or not 1 <= number <= MOST_THREADS:
        raise ArgumentError(
            f"set_num_threads: number is {number!r}, expected an int from 1 to {MOST_THREADS}"
        )
    _threads[:] = [number]
    for observer in _observers:
        observer(number)


def observe(observer: Callable[[int], object]) -> None:
    """Calls `observer` with the number of threads now, and whenever it is set."""
    _observers.append(observer)
    observer(get_num_threads())


def default_threads() -> int:
    """As many as there are processors for this process, and at most as many as NumPy's BLAS uses.

    So limits that users set for NumPy (OMP_NUM_THREADS, OPENBLAS_NUM_THREADS, threadpoolctl) hold
    here too, and no variable is read.
    """
    blas = find_blas()
    limit = blas.threads() if blas is not None else None
    return max(1, min(processors(), limit or MOST_THREADS, MOST_THREADS))


def processors() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
