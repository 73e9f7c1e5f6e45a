"""`enable` and `disable`: context managers that set the compiler of a thread's backwards.

Rules: CAG-1, CAG-15. Spec: `specs/compiled_autograd.md`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any

from aotlite.compiled_autograd.compiler import (
    SUSPENDED,
    CompiledAutograd,
    Counters,
    checked_hooks,
)
from aotlite.compiled_autograd.recorder import TapeRecorder
from aotlite.eager.base.modes import STATE, resumed
from aotlite.ir.errors import ArgumentError, UnsupportedError, noted
from aotlite.ir.forks import lock

_MOST_COMPILERS = 64


class _Stack(threading.local):
    """The blocks that a thread has entered and not left, the innermost last."""

    def __init__(self) -> None:
        self.entered: list[tuple[_Switch, Any, int]] = []
        """(block, compiler before it, number of compiled backwards that ran when it was entered)"""


_STACK = _Stack()


def _go_back(before: CompiledAutograd | None, depth: int) -> None:
    """Restores the compiler `before` on leaving a block that was entered in `depth` backwards."""
    running = SUSPENDED.tapes
    if depth == len(running):
        STATE.tapes = before
    elif depth < len(running):  # in a hook of the backward that was called in the block
        running[depth] = before


_KNOWN: dict[object, CompiledAutograd] = {}
_LOCK = lock()


class _Switch:
    """A context manager and decorator: backwards are run by `tapes`, or by the engine if None.

    Reentrant and reusable.
    """

    def __init__(self, name: str, tapes: CompiledAutograd | None) -> None:
        self._name = name
        self.tapes = tapes

    def __enter__(self) -> CompiledAutograd | None:
        if STATE.recorder is not None:
            STATE.recorder.unrecorded = True
            raise STATE.recorder.refuse(
                f"compiled_autograd.{self._name}", "enter it around the call of the function"
            )
        _STACK.entered.append((self, STATE.tapes, len(SUSPENDED.tapes)))
        STATE.tapes = self.tapes
        return self.tapes

    def __exit__(self, *exc: object) -> None:
        entered = _STACK.entered
        own = [place for place, (switch, _, _) in enumerate(entered) if switch is self]
        nests = False
        if own:
            place, (_, before, depth) = own[-1], entered.pop(own[-1])
            nests = place == len(entered) and depth == len(SUSPENDED.tapes)
            for behind in range(place, len(entered)):
                switch, _, inside = entered[behind]
                if inside == depth:  # it goes back to what this one would
                    entered[behind] = (switch, before, inside)
                    break
            else:
                _go_back(before, depth)
        if not nests:
            raise noted(
                UnsupportedError(
                    f"compiled_autograd: {self._name}() is left while it is not the last one that "
                    "this thread has entered, expected blocks that nest"
                ),
                "Leave what was entered last first, in the thread and in the hook that entered it; "
                "with blocks do. This one is left now. (CAG-15)",
            )

    def __call__(self, function: Callable[..., object]) -> Callable[..., Any]:
        if iscoroutinefunction(function) or isasyncgenfunction(function):
            raise noted(
                UnsupportedError(
                    f"compiled_autograd: {self._name}() decorates {function.__qualname__}, whose "
                    "parts run between those of others, expected a function or a generator function"
                ),
                f"Enter it around the backward: with {self._name}(): loss.backward(). (CAG-15)",
            )

        @wraps(function)
        def inside(*args: object, **kwargs: object) -> Any:
            with self:
                return function(*args, **kwargs)

        @wraps(function)
        def inside_generator(*args: object, **kwargs: object) -> object:
            return resumed(lambda: _Switch(self._name, self.tapes), function(*args, **kwargs))

        return inside_generator if isgeneratorfunction(function) else inside


def enable(compiler: object = None, **options: object) -> Any:
    """A block in which this thread's backwards are compiled: `with enable(): loss.backward()`.

    `compiler` is a backend as `al.compile` takes it ("auto" if it is None), or the object that an
    earlier block returned. Options are these of `al.compile`: `passes`, `verify`, `observer`,
    `dump`, `enable_log`. Compiled tapes are cached by compiler and options, for later blocks with
    the same ones.
    Can be used as a decorator.

    >>> import aotlite as al
    >>> w = al.ones(3, requires_grad=True)
    >>> tapes = al.compiled_autograd.CompiledAutograd.of("reference")
    >>> with al.compiled_autograd.enable(tapes):
    ...     for _ in range(3):
    ...         (w * w).sum().backward()
    >>> w.grad
    tensor([6., 6., 6.])
    >>> tapes.counters.captures, tapes.counters.hits
    (1, 2)
    """
    return _Switch("enable", _compiler_of(compiler, options))


def disable() -> _Switch:
    """A block in which the engine runs this thread's backwards; can be used as a decorator."""
    return _Switch("disable", None)


def is_enabled() -> bool:
    """Whether this thread's backwards are compiled now."""
    return STATE.tapes is not None


def is_tracing() -> bool:
    """Whether a tape is being recorded: formulas run on tensors without values (CAG-29).

    It is True in formulas and decompositions of users' ops while a backward is captured. Hooks and
    backwards of custom functions are not recorded, so they see False; `is_running` is True there.
    """
    return isinstance(STATE.recorder, TapeRecorder)


def is_running() -> bool:
    """Whether a compiled backward runs in this thread: True in its hooks, where `is_enabled` is
    False, since a backward that a hook starts is run by the engine (CAG-24)."""
    return bool(SUSPENDED.tapes) and SUSPENDED.tapes[-1] is not None


def counters(compiler: object = None, **options: object) -> Counters:
    """The counters of this compiler's backwards."""
    return _compiler_of(compiler, options).counters


def reset() -> None:
    """Empties all caches and resets all counters."""
    with _LOCK:
        for each in _KNOWN.values():
            each.forget()
        _KNOWN.clear()


_OPTIONS = ("passes", "verify", "observer", "dump", "enable_log", "hooks")


def _compiler_of(compiler: object, options: dict[str, Any]) -> CompiledAutograd:
    if isinstance(compiler, CompiledAutograd):
        if options:
            raise ArgumentError(
                f"compiled_autograd: {next(iter(options))!r} is given beside a compiler that has "
                "its options, expected one or the other"
            )
        return compiler
    for name in options:
        if name not in _OPTIONS:
            raise ArgumentError(
                f"compiled_autograd: {name!r} is no option, expected {', '.join(_OPTIONS)}"
            )
    passes = options.get("passes", ())
    hooks = checked_hooks(options.get("hooks", "segments"))
    key = (
        hooks,
        compiler if isinstance(compiler, str) else id(compiler),
        tuple(map(id, passes)) if isinstance(passes, (list, tuple)) else id(passes),
        options.get("verify"),
        id(options.get("observer")),
        str(options.get("dump")),
        options.get("enable_log"),
    )
    with _LOCK:
        found = _KNOWN.get(key)
        if found is None:
            found = CompiledAutograd.of(compiler, **options)
            if len(_KNOWN) >= _MOST_COMPILERS:
                del _KNOWN[next(iter(_KNOWN))]
            _KNOWN[key] = found
        return found
