"""The modes of a thread: grad mode, inference, the recorder of a running capture. Rule: TRC-9.

The one piece of mutable module state of the eager layer; each thread has its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import isgeneratorfunction
from typing import Any, Protocol, TypeVar

import attrs

from aotlite.eager.base.capture_protocol import Recorder

F = TypeVar("F", bound=Callable[..., Any])


class TapeCompiler(Protocol):
    """Runs backwards, compiled."""

    def run(
        self, roots: Any, sinks: Any, accumulate: bool, retain: bool, create_graph: bool
    ) -> list[Any]:
        """What `run_backward` does."""


class BackwardListener(Protocol):
    """What is told when a backward ends."""

    def forget(self) -> None:
        """Lets go what was kept for the backward."""


class Draws(Protocol):
    """Says which generator draws in the place of another (RNG-8)."""

    def of(self, generator: Any) -> Any:
        """The generator to draw from where this one is asked."""


class Modes(threading.local):
    """Modes of the current thread."""

    grad_mode: bool | None = True
    """None, which counts as off, in inference mode: results are inference tensors (TEN-22)."""
    recorder: Recorder | None = None
    wrappers: bool = False
    """Whether any wrapper was ever made, in any thread: else no operand is one."""
    functions: bool = False
    """Whether any of them was of a class with a `__tensor_function__`."""
    nested: int = 0
    """How many ops on wrappers have asked for the op that runs: as many as wrappers are nested."""
    deep: Any = None
    """The op and its operands where these were very many (`eager.subclass.checks`)."""
    draws: Draws | None = None
    """What draws come by where a region is run that is run again; None nearly always (RNG-8)."""
    in_region: bool = False
    """Inside of `checkpoint`: what happens here happens again in the backward (CKP-7)."""
    task: list[BackwardListener] | None = None
    """What is told when the backward ends: regions that it has computed again (CKP-2)."""
    watch: Watch | None = None
    """What wants to know of each tape node that is made; None, nearly always, if nothing does."""
    tapes: TapeCompiler | None = None
    """What runs backwards in the place of the engine; None, nearly always, if that does (CAG-1)."""


@attrs.define(eq=False)
class Watch:
    """Saved-tensor hooks and anomaly mode, of which the makers of tape nodes take notice."""

    pack: tuple[Callable[[Any], Any], Callable[[Any], Any]] | None = None
    """The pack and unpack hooks at work (TEN-42)."""
    forbidden: str | None = None
    """Why no such hooks may be at work."""
    anomaly: bool = False
    check_nan: bool = False
    made_now: Callable[[Any], object] | None = None
    """In anomaly mode, of the node that is running: what is noted of a node that is made now."""
    running: object = None
    """The tape node whose gradients are being computed, in anomaly mode."""

    def made(self, node: Any) -> None:
        """Notes where a tape node was made, in anomaly mode."""
        if self.anomaly and self.made_now is not None:
            node.attachments().made = self.made_now(self.running)


STATE = Modes()


def watch_with(**changes: Any) -> Watch | None:
    """The thread's watch with these changes; None if nothing is to be watched then."""
    changed = attrs.evolve(STATE.watch or Watch(), **changes)
    active = changed.pack is not None or changed.forbidden is not None or changed.anomaly
    return changed if active else None


def watch_alone(watch: Watch | None) -> Watch | None:
    """What of a watch is anomaly mode; None if that is off."""
    if watch is None or not watch.anomaly:
        return None
    return Watch(anomaly=True, check_nan=watch.check_nan, made_now=watch.made_now)


@contextmanager
def watching(**changes: Any) -> Iterator[None]:
    """A block with another watch: the present one with these changes."""
    before = STATE.watch
    STATE.watch = watch_with(**changes)
    try:
        yield
    finally:
        STATE.watch = before


class backward_task:
    """A block that is one backward, behind which what it has computed again is let go."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = STATE.task
        STATE.task = []

    def __exit__(self, *exc: object) -> None:
        regions, STATE.task = STATE.task, self._before
        for region in regions or ():
            region.forget()


class _Mode:
    """A context manager and decorator that changes the modes for a block.

    A decorated generator has the mode while it runs, and its caller has its own in between.
    """

    def __init__(self) -> None:
        self._before: list[bool | None] = []

    def _set(self) -> None:
        raise AssertionError("each mode says what it sets")

    def _again(self) -> _Mode:
        """A new one like this."""
        return type(self)()

    def __enter__(self) -> None:
        self._before.append(STATE.grad_mode)
        self._set()

    def __exit__(self, *exc: object) -> None:
        STATE.grad_mode = self._before.pop()

    def __call__(self, function: F) -> F:
        @wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self._again():
                return function(*args, **kwargs)

        @wraps(function)
        def inside_generator(*args: Any, **kwargs: Any) -> Any:
            return resumed(self._again, function(*args, **kwargs))

        return inside_generator if isgeneratorfunction(function) else inside  # type: ignore[return-value]


def resumed(mode: Callable[[], Any], generator: Any) -> Iterator[Any]:
    """What a generator yields, where each of its stretches runs in the mode."""
    try:
        with mode():
            value = generator.send(None)
        while True:
            try:
                sent = yield value
            except GeneratorExit:
                with mode():
                    generator.close()
                raise
            except BaseException as error:
                with mode():
                    value = generator.throw(error)
            else:
                with mode():
                    value = generator.send(sent)
    except StopIteration as end:
        return end.value


def set_grad_mode(mode: bool) -> None:
    """Sets grad mode; in inference mode there is none to set."""
    if STATE.grad_mode is not None:
        STATE.grad_mode = mode


class _GradMode(_Mode):
    """`no_grad` or `enable_grad`, which decorate with and without parentheses."""

    mode: bool

    def __new__(cls, function: Any = None) -> Any:
        made = super().__new__(cls)
        if function is None:
            return made
        made.__init__()  # type: ignore[misc]
        return made(function)

    def __init__(self, function: Any = None) -> None:
        super().__init__()

    def _set(self) -> None:
        set_grad_mode(self.mode)


class no_grad(_GradMode):
    """Block or function in which ops leave no history (TEN-21)."""

    mode = False


class enable_grad(_GradMode):
    """Block or function in which ops leave history, also inside `no_grad`."""

    mode = True


class set_grad_enabled(_Mode):
    """Grad mode on or off: at once when called, and restored on exit when used in `with` (TRC-9).

    >>> with set_grad_enabled(False):
    ...     is_grad_enabled()
    False
    """

    def __init__(self, mode: bool) -> None:
        super().__init__()
        self.before = STATE.grad_mode
        self.mode = mode
        self._set()

    def _set(self) -> None:
        set_grad_mode(self.mode)

    def _again(self) -> _Mode:
        return set_grad_enabled(self.mode)

    def __enter__(self) -> None:
        self._before.append(self.before)
        self._set()

    def __call__(self, function: F) -> F:
        STATE.grad_mode = self.before
        return super().__call__(function)


class inference_mode(_Mode):
    """Block or function whose results keep no autograd state at all: inference tensors (TEN-22).

    They cannot be saved for a backward, nor be written outside of the mode.
    `inference_mode(False)` leaves the mode for a block.

    >>> import aotlite as al
    >>> with inference_mode():
    ...     x = al.ones(2)
    >>> x.is_inference(), al.is_inference_mode_enabled()
    (True, False)
    """

    def __new__(cls, mode: Any = True) -> Any:
        made = super().__new__(cls)
        if isinstance(mode, bool):
            return made
        made.__init__()  # type: ignore[misc]
        return made(mode)

    def __init__(self, mode: bool = True) -> None:
        super().__init__()
        self.mode = mode

    def _again(self) -> _Mode:
        return inference_mode(self.mode)

    def _set(self) -> None:
        recorder = STATE.recorder
        if recorder is not None and self.mode != is_inference_mode_enabled():
            raise recorder.refuse("inference_mode", "enter it around the call, or use no_grad")
        STATE.grad_mode = None if self.mode else True


def is_inference_mode_enabled() -> bool:
    """Whether results are inference tensors in this thread now."""
    return STATE.grad_mode is None


@contextmanager
def modes_kept() -> Iterator[None]:
    """A block after which grad mode is what it was, whatever was called in it."""
    before = STATE.grad_mode
    try:
        yield
    finally:
        STATE.grad_mode = before


@contextmanager
def outside_regions() -> Iterator[None]:
    """A block with no region around it: what is recorded in it does not happen there (CKP-9)."""
    before, STATE.in_region = STATE.in_region, False
    try:
        yield
    finally:
        STATE.in_region = before


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
    return bool(STATE.grad_mode)
