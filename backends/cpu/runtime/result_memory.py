"""The caching allocator of results: a block is used again when the last array over it is gone.

A megabyte from `malloc` is fresh pages. Each costs a page fault, and all go back to the system
afterwards: several times the cost of the kernel that fills them. Here blocks of pages stay in
lists. An array is made over a block to which nothing but its list refers, as the reference count
tells; no array needs a destructor. Spec: `specs/cpu_runtime.md`.
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
"""Results of fewer bytes come from `malloc`, which keeps small blocks itself."""
_HUGE_PAGE = 2 << 20
_TRIES = 8
"""The most blocks of a size that are looked at before a new one is made."""


class ResultMemory:
    """Keeps blocks, used and idle, of at most `limit` bytes.

    Beyond that it drops the block that was handed out longest ago, of the size for which a block
    was made longest ago. A block that an array still uses lives on as long as the array.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._blocks: OrderedDict[int, deque[mmap.mmap]] = OrderedDict()
        # Reentrant: a finalizer may run here, and allocate.
        self._lock = lock()

    def allocator(self, shape: tuple[int, ...], dtype: np.dtype) -> Callable[[], np.ndarray]:
        """Returns a function that makes C-contiguous arrays with undefined values."""
        size = rounded(math.prod(shape) * dtype.itemsize)
        if size < SMALLEST or not COUNTS_REFERENCES:
            return partial(np.empty, shape, dtype)
        array, idle, new = np.ndarray, self._idle, self._new
        return lambda: array(shape, dtype, idle(size) or new(size))

    def kept(self) -> int:
        """Returns the bytes of all blocks that are kept."""
        return sum(size * len(blocks) for size, blocks in list(self._blocks.items()))

    def keep(self, limit: int) -> None:
        """Sets the limit. Blocks beyond it are dropped now."""
        with self._lock:
            self.limit = limit
            self._trim()

    def _idle(self, size: int) -> mmap.mmap | None:
        """Returns a block that no array uses, and moves it to the end of its list; None if the
        first `_TRIES` blocks are all in use."""
        blocks = self._blocks.get(size)
        if blocks is None:
            return None
        for _ in range(min(len(blocks), _TRIES)):
            try:
                block, references = _turned(blocks)
            except IndexError:  # other threads have taken the rest out for a moment
                return None
            if references == _ALONE:
                return block
        return None

    def _new(self, size: int) -> mmap.mmap:
        try:
            block = _pages(size)
        except _REFUSALS:  # idle blocks may be the memory that is missing
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
        """Drops all blocks: idle ones go back to the system."""
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
"""The errors of `mmap` where memory is missing, or a size needs more than 63 bits."""


def _turned(blocks: deque[Any]) -> tuple[Any, int]:
    """Moves the first block to the end. Returns it, and its reference count in between.

    While it is out of the list no other thread can get it, so that a count of `_ALONE` means that
    nobody uses it.
    """
    block = blocks.popleft()
    references = sys.getrefcount(block)
    blocks.append(block)
    return block, references


_ALONE = _turned(deque([object()]))[1]
"""The reference count of a block to which nothing else refers. It differs between Pythons."""

COUNTS_REFERENCES = (
    sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()
)
"""Whether reference counts tell whether an object is used. Where not, no memory is reused."""


def rounded(size: int) -> int:
    """Returns the size of the block for `size` bytes: whole pages, at most an eighth more."""
    unit = max(mmap.PAGESIZE, 1 << max(size.bit_length() - 4, 0))
    return -(-size // unit) * unit


def _pages(size: int) -> mmap.mmap:
    """Returns fresh private pages: a forked child gets copies when it writes."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size)
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= _HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def physical_memory() -> int:
    """Returns the bytes of physical memory."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # a system that does not say
        return 4 << 30


RESULTS = ResultMemory(physical_memory() // 8)
"""The allocator of this process, for the results of compiled graphs."""
