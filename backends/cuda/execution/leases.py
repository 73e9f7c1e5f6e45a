"""Memory that is lent for one generation of results, and whether somebody still holds it.

Part of device graphs (`device_graphs.py`), whose results lie where they were recorded.
Spec: `specs/cuda_backend.md`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np


class _Lease:
    """What all arrays on lent memory keep alive. It keeps the memory."""

    def __init__(self, buffer: Any, address: int) -> None:
        self.buffer = buffer
        self.ptr = address
        """As CuPy calls an address."""

    @property
    def __array_interface__(self) -> dict[str, Any]:
        shape = (self.buffer.nbytes,)
        return {"shape": shape, "typestr": "|u1", "data": (self.ptr, False), "version": 3}


def lent(buffer: Any, address: int) -> tuple[Any, Callable[[], bool]]:
    """A buffer on the same memory, and a function that says whether somebody holds it."""
    lease = _Lease(buffer, address)
    known = weakref.ref(lease)
    if isinstance(buffer, np.ndarray):
        same = np.asarray(lease) if buffer.nbytes else np.empty(0, np.uint8)
    else:
        same = type(buffer)(buffer.arrays, lease, buffer.nbytes)
    return same, lambda: known() is not None
