"""`set_multithreading_enabled`: PyTorch's switch for backwards in several threads.

aotlite's engine runs each backward in the thread that calls it, so the switch changes nothing that
is computed. Programs that set it run, and can ask for it. Rule: CAG-29.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

from aotlite.ir.errors import ArgumentError


class _State(threading.local):
    """The switch of a thread."""

    is_on = True


_STATE = _State()


def is_multithreading_enabled() -> bool:
    """Whether the switch is on in this thread."""
    return _STATE.is_on


class set_multithreading_enabled:
    """The switch on or off: at once when called, and restored at the end of a `with` block.

    It decorates functions, too. A backward runs in the thread that calls it in either case.

    >>> from aotlite.autograd import is_multithreading_enabled, set_multithreading_enabled
    >>> with set_multithreading_enabled(False):
    ...     is_multithreading_enabled()
    False
    >>> is_multithreading_enabled()
    True
    """

    def __init__(self, mode: bool) -> None:
        if type(mode) is not bool:
            raise ArgumentError(
                f"set_multithreading_enabled: mode is {mode!r}, expected True or False"
            )
        self.mode = mode
        self._before = _STATE.is_on
        _STATE.is_on = mode

    def __enter__(self) -> None:
        """Does nothing: the switch was set when this was made."""

    def __exit__(self, *exc: object) -> None:
        _STATE.is_on = self._before

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which runs with the switch set; until then it is as before."""
        _STATE.is_on = self._before

        @wraps(function)
        def inside(*args: object, **kwargs: object) -> Any:
            with set_multithreading_enabled(self.mode):
                return function(*args, **kwargs)

        return inside
