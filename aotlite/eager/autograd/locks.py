"""The lock under which `.grad` grows: several threads may run backwards that lead to one leaf.

Rules: TEN-45. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

import os
import threading

_lock = threading.RLock()


def gradient_lock() -> threading.RLock:
    """The lock, one for all tensors: one for each would cost a small backward 3 % of its time.

    No hook runs under it.
    """
    return _lock


def _renew() -> None:
    """A child process has none of the threads that may hold the lock."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
