"""The modes of a thread: grad mode and the recorder of a running capture. Rule: TRC-9.

The one piece of mutable module state of the eager layer; each thread has its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from aotlite.eager.recording import Recorder

F = TypeVar("F", bound=Callable[..., Any])


class State(threading.local):
    """Modes of the current thread."""

    grad_mode: bool = True
    recorder: Recorder | None = None


STATE = State()


class set_grad_enabled:
    """Grad mode on or off: at once when called, and restored on exit when used in `with` (TRC-9).

    >>> with set_grad_enabled(False):
    ...     is_grad_enabled()
    False
    """

    def __init__(self, mode: bool) -> None:
        self.before = STATE.grad_mode
        self.mode = mode
        STATE.grad_mode = mode

    def __enter__(self) -> None:
        STATE.grad_mode = self.mode

    def __exit__(self, *exc: object) -> None:
        STATE.grad_mode = self.before


class _GradMode:
    """A context manager and decorator that sets grad mode for a block."""

    mode: bool

    def __init__(self) -> None:
        self.before: list[bool] = []

    def __enter__(self) -> None:
        self.before.append(STATE.grad_mode)
        STATE.grad_mode = self.mode

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        STATE.grad_mode = self.before.pop()

    def __call__(self, function: F) -> F:
        @wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with type(self)():
                return function(*args, **kwargs)

        return inside  # type: ignore[return-value]


class no_grad(_GradMode):
    """Block or function in which ops leave no history (TEN-21)."""

    mode = False


class enable_grad(_GradMode):
    """Block or function in which ops leave history, also inside `no_grad`."""

    mode = True


@contextmanager
def modes_kept() -> Iterator[None]:
    """A block after which grad mode is what it was, whatever was called in it."""
    before = STATE.grad_mode
    try:
        yield
    finally:
        STATE.grad_mode = before


@contextmanager
def recording(recorder: Any) -> Iterator[None]:
    """A block in which this thread's tensor ops are `recorder`'s."""
    before, STATE.recorder = STATE.recorder, recorder
    try:
        yield
    finally:
        STATE.recorder = before


def is_grad_enabled() -> bool:
    """Whether ops leave history in this thread now."""
    return STATE.grad_mode
