"""The lock under which `.grad` grows: several threads may run backwards that lead to one leaf.

Rules: TEN-45. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

import threading

from aotlite.ir.forks import lock

_lock = lock()


def gradient_lock() -> threading.RLock:
    """The lock, one for all tensors: one for each would cost a small backward 3 % of its time.

    No hook runs under it.
    """
    return _lock
