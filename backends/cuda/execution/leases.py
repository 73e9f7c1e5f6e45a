"""Leases: buffers over the fixed memory of a recording's results, and whether one is still in use.

A device graph (`device_graphs.py`) writes its results to the same addresses at each replay. It must
not do so while somebody holds arrays of the last replay, which a weak reference tells. Spec:
`specs/cuda_backend.md`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import numpy as np


class _Lease:
    """The object that all arrays on the memory keep alive, and that keeps the memory."""

    def __init__(self, buffer: Any, address: int) -> None:
        self.buffer = buffer
        self.ptr = address
        """The address, under CuPy's name for it."""

    @property
    def __array_interface__(self) -> dict[str, object]:
        shape = (self.buffer.nbytes,)
        return {"shape": shape, "typestr": "|u1", "data": (self.ptr, False), "version": 3}


def lent(buffer: Any, address: int) -> tuple[Any, Callable[[], bool]]:
    """Returns a buffer on the same memory, and a function that tells whether it is still in use."""
    lease = _Lease(buffer, address)
    known = weakref.ref(lease)
    if isinstance(buffer, np.ndarray):
        same = np.asarray(lease) if buffer.nbytes else np.empty(0, np.uint8)
    else:
        same = type(buffer)(buffer.arrays, lease, buffer.nbytes)
    return same, lambda: known() is not None
