"""`STATE`: the modes of a thread: grad mode, inference mode, the recorder of a capture.

It is thread-local, and the only mutable module state of the eager engine. Rule: TRC-9.
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
    """Compiled autograd: compiles and runs a whole backward."""

    def run(
        self, roots: Any, sinks: Any, accumulate: bool, retain: bool, create_graph: bool
    ) -> list[Any]:
        """Does what `run_backward` does."""


class BackwardListener(Protocol):
    """An object that is notified when a backward ends."""

    def forget(self) -> None:
        """Drops the values that were kept for the backward."""


class Draws(Protocol):
    """Substitutes generators in a checkpointed region (RNG-8)."""

    def of(self, generator: Any) -> Any:
        """The generator that draws instead of this one."""


class Modes(threading.local):
    """Modes of the current thread."""

    grad_mode: bool | None = True
    """None in inference mode: it counts as off, and results are inference tensors (TEN-22)."""
    recorder: Recorder | None = None
    wrappers: bool = False
    """Whether any thread ever made a wrapper, or this one is in a dispatch mode; if not, no operand
    needs to be checked for one."""
    functions: bool = False
    """Whether any of the wrappers' classes has a `__tensor_function__`."""
    nested: int = 0
    """The depth of nested dispatch: how many ops on wrappers are running."""
    asked_in: bool | None = True
    """The grad mode of the op for which a wrapper's class is asked: it runs with grad mode off."""
    deep: Any = None
    """(op, operands) at which the nesting became suspiciously deep (`eager.subclass.checks`)."""
    draws: Draws | None = None
    """The substitution of generators in a checkpointed region; None outside (RNG-8)."""
    in_region: bool = False
    """Whether inside of `checkpoint`, so that effects would happen again (CKP-7)."""
    task: list[BackwardListener] | None = None
    """The listeners of the running backward: regions that it recomputed (CKP-2)."""
    watch: Watch | None = None
    """Saved-tensor hooks, anomaly mode and dispatch modes; None, nearly always, for none."""
    tapes: TapeCompiler | None = None
    """Compiled autograd; None, nearly always, where the engine runs backwards (CAG-1)."""


@attrs.define(eq=False, repr=False)
class Watch:
    """The modes that are seldom active: saved-tensor hooks, anomaly mode, dispatch modes."""

    pack: tuple[Callable[[Any], Any], Callable[[Any], Any]] | None = None
    """The active pack and unpack hooks (TEN-42)."""
    forbidden: str | None = None
    """The reason why hooks are disabled here, if they are."""
    anomaly: bool = False
    check_nan: bool = False
    made_now: Callable[[object], object] | None = None
    """In anomaly mode: running node -> the `ForwardStack` for a node that is made now."""
    running: object = None
    """In anomaly mode: the tape node whose gradients are being computed."""
    modes: tuple[Any, ...] = ()
    """The active `DispatchMode`s, the innermost last (DSP-1)."""

    @property
    def eager(self) -> str:
        """The mode in which a compiled call runs its function eagerly; empty for none."""
        if self.anomaly:
            return "anomaly mode"
        return "a DispatchMode" if self.modes else ""

    def made(self, node: Any) -> None:
        """Records the stack that made a tape node, in anomaly mode."""
        if self.anomaly and self.made_now is not None:
            node.attachments().made = self.made_now(self.running)


STATE = Modes()


def watch_with(**changes: Any) -> Watch | None:
    """The thread's watch with these changes; None if it has nothing left to do."""
    changed = attrs.evolve(STATE.watch or Watch(), **changes)
    hooked = changed.pack is not None or changed.forbidden is not None
    return changed if hooked or changed.anomaly or changed.modes else None


def is_anomaly_enabled() -> bool:
    """Whether this thread is in anomaly mode now (TEN-43)."""
    return STATE.watch is not None and STATE.watch.anomaly


def eager_mode() -> str:
    """The mode in which compiled calls run their functions (JNT-8, DSP-6); empty for none."""
    return "" if STATE.watch is None else STATE.watch.eager


def mode_left_on() -> tuple[str, str]:
    """(what, advice) of the refusal of such a mode that would outlast a captured call."""
    if is_anomaly_enabled():
        return "set_detect_anomaly", "use detect_anomaly() in a `with` block"
    return "a DispatchMode that stays on", "use it in a `with` block"


@contextmanager
def watching(**changes: object) -> Iterator[None]:
    """A block in which the thread's watch has these changes."""
    before = STATE.watch
    STATE.watch = watch_with(**changes)
    try:
        yield
    finally:
        STATE.watch = before


class backward_task:
    """A block that is one backward; at its end, recomputed values are dropped."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = STATE.task
        STATE.task = []

    def __exit__(self, *exc: object) -> None:
        regions, STATE.task = STATE.task, self._before
        for region in regions or ():
            region.forget()


class _Mode:
    """Base of context managers and decorators that change the modes for a block.

    A decorated generator runs in the mode; its caller has its own modes between the yields.
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
        def inside(*args: object, **kwargs: object) -> Any:
            with self._again():
                return function(*args, **kwargs)

        @wraps(function)
        def inside_generator(*args: object, **kwargs: object) -> object:
            return resumed(self._again, function(*args, **kwargs))

        return inside_generator if isgeneratorfunction(function) else inside  # type: ignore[return-value]


def resumed(mode: Callable[[], Any], generator: Any) -> Iterator[Any]:
    """The generator's values; its code runs in the mode, the caller's does not."""
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
    """Sets grad mode; does nothing in inference mode."""
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
    """A block or function in which ops record no history (TEN-21)."""

    mode = False


class enable_grad(_GradMode):
    """A block or function in which ops record history, also inside `no_grad`."""

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
    """A block or function whose results are inference tensors, without autograd state (TEN-22).

    They cannot be saved for a backward, nor written outside of the mode. `inference_mode(False)`
    leaves the mode for a block.

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
    """A block that restores grad mode at its end."""
    before = STATE.grad_mode
    try:
        yield
    finally:
        STATE.grad_mode = before


@contextmanager
def outside_regions() -> Iterator[None]:
    """A block that counts as outside of checkpointed regions, such as a capture in one (CKP-9)."""
    before, STATE.in_region = STATE.in_region, False
    try:
        yield
    finally:
        STATE.in_region = before


@contextmanager
def recording(recorder: Recorder | None) -> Iterator[None]:
    """A block in which `recorder` records this thread's tensor ops."""
    before, STATE.recorder = STATE.recorder, recorder
    try:
        yield
    finally:
        STATE.recorder = before


def is_grad_enabled() -> bool:
    """Whether ops record history in this thread now."""
    return bool(STATE.grad_mode)
