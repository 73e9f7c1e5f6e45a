"""Memory of results: taken again as soon as the last array over it is gone.

A result of a megabyte from `malloc` is fresh pages, each of which costs a fault, and on its end
goes back to the system; the kernel that fills it takes a fraction of that time. Here blocks of
pages are lent to arrays, and lent again when nothing but the list that keeps them refers to them.
Spec: `specs/cpu_runtime.md`.
"""

from __future__ import annotations

import math
import mmap
import os
import sys
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from aotlite.ir.errors import OutOfMemoryError
from aotlite.ir.forks import lock

SMALLEST = 1 << 17
"""Bytes from which results are recycled; `malloc` keeps smaller ones warm itself."""
_HUGE_PAGE = 2 << 20
_TRIES = 8
"""So many blocks of a size are looked at before a new one is made."""


class ResultMemory:
    """Keeps blocks of `limit` bytes at most, lent or idle; the least used go first.

    Sizes that were lent longest ago go first, of a size the block that was lent longest ago.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._blocks: OrderedDict[int, deque[mmap.mmap]] = OrderedDict()
        # A thread may come here again in a finalizer that runs while it is here.
        self._lock = lock()

    def allocator(self, shape: tuple[int, ...], dtype: np.dtype) -> Callable[[], np.ndarray]:
        """A function that returns a new C-contiguous array, whose values are undefined."""
        size = rounded(math.prod(shape) * dtype.itemsize)
        if size < SMALLEST or not COUNTS_REFERENCES:
            return partial(np.empty, shape, dtype)
        array, idle, new = np.ndarray, self._idle, self._new
        return lambda: array(shape, dtype, idle(size) or new(size))

    def kept(self) -> int:
        """Bytes of all blocks that are kept."""
        return sum(size * len(blocks) for size, blocks in list(self._blocks.items()))

    def keep(self, limit: int) -> None:
        """Keeps so much from now on; what is idle beyond goes back to the system now."""
        with self._lock:
            self.limit = limit
            self._trim()

    def _idle(self, size: int) -> mmap.mmap | None:
        """A block that no array is over, now the last in its list."""
        blocks = self._blocks.get(size)
        if blocks is None:
            return None
        for _ in range(min(len(blocks), _TRIES)):
            try:
                block, references = _turned(blocks)
            except IndexError:  # other threads look at the rest
                return None
            if references == _ALONE:
                return block
        return None

    def _new(self, size: int) -> mmap.mmap:
        try:
            block = _pages(size)
        except _REFUSALS:  # what is idle here may be what is missing
            self._let_go()
            try:
                block = _pages(size)
            except _REFUSALS as error:
                raise OutOfMemoryError(
                    f"results: {size} bytes are asked for that the system does not give, expected "
                    "less"
                ) from error
        with self._lock:
            self._blocks.setdefault(size, deque()).append(block)
            self._blocks.move_to_end(size)
            self._trim()
        return block

    def _let_go(self) -> None:
        """Gives all idle blocks back to the system."""
        with self._lock:
            limit, self.limit = self.limit, 0
            self._trim()
            self.limit = limit

    def _trim(self) -> None:
        excess = self.kept() - self.limit
        while excess > 0:
            size, blocks = next(iter(self._blocks.items()))
            if len(blocks) > 0:
                blocks.popleft()
                excess -= size
            if len(blocks) == 0:
                del self._blocks[size]


_REFUSALS = (OSError, OverflowError, MemoryError)
"""What `mmap` raises where there is no such memory, or a size is beyond 63 bits."""


def _turned(blocks: deque[Any]) -> tuple[Any, int]:
    """The first block, now the last, and how many references to it there were in between.

    Only one thread can have it between its removal and its return; what it holds then, others
    count.
    """
    block = blocks.popleft()
    references = sys.getrefcount(block)
    blocks.append(block)
    return block, references


_ALONE = _turned(deque([object()]))[1]
"""What is counted of a block that nothing else refers to; Pythons differ."""

COUNTS_REFERENCES = (
    sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()
)
"""Whether a count says whether an object is still used. Where it does not, nothing is recycled."""


def rounded(size: int) -> int:
    """Bytes of the block for `size` bytes: at most an eighth more, and whole pages."""
    unit = max(mmap.PAGESIZE, 1 << max(size.bit_length() - 4, 0))
    return -(-size // unit) * unit


def _pages(size: int) -> mmap.mmap:
    """Fresh pages, this process's alone: a forked child writes copies of its own."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= _HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def physical_memory() -> int:
    """Bytes that the machine has."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # a system that does not say
        return 4 << 30


RESULTS = ResultMemory(physical_memory() // 8)
"""The process's: what compiled graphs return."""
