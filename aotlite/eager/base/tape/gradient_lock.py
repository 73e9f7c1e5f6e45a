"""The lock for `.grad`: several threads may run backwards that accumulate in the same leaf.

Rules: TEN-45. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

import threading

from aotlite.ir.forks import lock

_lock = lock()


def gradient_lock() -> threading.RLock:
    """The lock, one for all tensors: one for each would take 3 % of a small backward.

    No hook runs under it.
    """
    return _lock
