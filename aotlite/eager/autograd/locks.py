"""Locks under which `.grad` grows: several threads may run backwards that lead to one leaf.

Rules: TEN-45. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

import os
import threading
from typing import Any

_COUNT = 61
_LOCKS = [threading.RLock() for _ in range(_COUNT)]


def gradient_lock(tensor: Any) -> threading.RLock:
    """The lock of a tensor's gradient, which it shares with few others; no hook runs under it."""
    return _LOCKS[id(tensor) % _COUNT]


def _renew() -> None:
    """A child process has none of the threads that may hold the locks."""
    _LOCKS[:] = [threading.RLock() for _ in range(_COUNT)]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
