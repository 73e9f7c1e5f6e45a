"""The number of threads that compiled code uses on the CPU.

Apart from `cpu`, since the interpreter of the loop IR divides reductions by this number, too, and
works without a compiler. The runtime library of `cpu` observes changes. Spec:
`specs/cpu_runtime.md`.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from aotlite.backends.blas import find_blas
from aotlite.ir.errors import ArgumentError

MOST_THREADS = 256
"""The size of the thread pool's tables (`runtime.c`)."""

_threads: list[int] = []
_observers: list[Callable[[int], object]] = []


def get_num_threads() -> int:
    """Returns the number of threads that compiled code uses on the CPU, with the calling one.

    >>> get_num_threads() >= 1
    True
    """
    if not _threads:
        _threads.append(default_threads())
    return _threads[-1]


def set_num_threads(number: int) -> None:
    """Sets the number of threads that compiled code uses on the CPU.

    Runs that have begun keep theirs. Sums may change in their last bits, since graphs that are
    compiled from now on divide long reductions by the new number.

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
    """Calls `observer` with the number of threads now, and again whenever it is set."""
    _observers.append(observer)
    observer(get_num_threads())


def default_threads() -> int:
    """Returns the number of processors of this process, or of threads of NumPy's BLAS if fewer.

    So limits that users set for NumPy (OMP_NUM_THREADS, OPENBLAS_NUM_THREADS, threadpoolctl) hold
    here too, and aotlite needs no environment variable of its own.
    """
    blas = find_blas()
    limit = blas.threads() if blas is not None else None
    return max(1, min(processors(), limit or MOST_THREADS, MOST_THREADS))


def processors() -> int:
    """Returns the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
