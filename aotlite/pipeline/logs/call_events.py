"""Events of calls: each call, its guards and side effects, each graph that runs, each backward.

    call      ├── prologue ──┤── run: the compiled forward ──├── epilogue ──┤
    backward  ├── prologue ──┤── run: the compiled backward ─├── epilogue ──┤

They exist while somebody asked for them, and cost nothing otherwise (LOG-5): then `begin` replaces
the methods that start calls, backwards and runs, and `end` puts them back. No generated code asks
whether it is watched. Spec: `specs/logs.md`.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any

import attrs

from aotlite.backends.calling_convention import Run, Value
from aotlite.ir.forks import UNFORKED
from aotlite.ir.logs import (
    LogEvent,
    current_id,
    is_heard,
    send,
    text_of_error,
    within,
)
from aotlite.stages.s10_runtime.backward.node import CompiledBackward

_FILE = re.compile(r"<aotlite (.*) (\d+(?:\.\d+)?)(?: [a-z].*)?>")
"""The file of a generated function: its name, and the number of the compilation (GEN-9)."""


@attrs.define
class _Open:
    """A call or backward that runs: when its last run ended, or when it began."""

    reached: int
    context: str
    """The compilation that it is called in; runs of another one, which compiles meanwhile, are no
    part of it."""
    compile_id: str
    has_run: bool = False
    is_running: bool = False
    """Whether a graph runs now; what it calls in turn are parts of it."""


class _Thread(threading.local):
    """The calls of a thread that run, outermost first."""

    def __init__(self) -> None:
        self.calls: list[_Open] = []


_THREAD = _Thread()
SILENT: set[str] = set()
"""The compilations of functions with `enable_log=False`."""


# ---------------------------------------------------------------------------------- what is timed
Method = Callable[..., Any]
_STARTS: dict[tuple[type, str], str] = {
    (CompiledBackward, "gradients"): "backward_call",
    (CompiledBackward, "_differentiable"): "backward_call",
}
"""The methods that start a call or backward, with the names of their events."""
_wishes = 0
"""How many have asked for events of calls."""


def starts(cls: type, method: str, event: str) -> None:
    """Notes a method of a class that starts a call or backward, for its events; nothing happens if
    the class inherits it."""
    if method not in cls.__dict__:
        return
    with UNFORKED:
        _STARTS[cls, method] = event
        if _wishes:
            _replace_start(cls, method, event)


def _started(event: str, method: Method) -> Method:
    """The method as one event, with a prologue and an epilogue if a graph runs in it."""

    @wraps(method)
    def timed_method(self: Any, *args: object, **kwargs: object) -> object:
        compile_id = _id_of(self)
        with within(compile_id, is_silent=_is_silent(self, compile_id)):
            if not is_heard():
                return method(self, *args, **kwargs)
            name = getattr(self, "_name", None)  # of a compiled function
            facts = {} if name is None else {"function": name}
            begin = time.perf_counter_ns()
            _THREAD.calls.append(_Open(begin, compile_id, compile_id))
            try:
                result: object = method(self, *args, **kwargs)
            except BaseException as error:
                _ended(event, begin, {**facts, "error": text_of_error(error)})
                raise
            _ended(event, begin, facts)
            return result

    return timed_method


def _ended(event: str, begin: int, facts: Mapping[str, object]) -> None:
    """Emits the event of the innermost call of this thread, and that of its epilogue."""
    end = time.perf_counter_ns()
    mine = _THREAD.calls.pop()
    if mine.has_run:
        send(LogEvent("epilogue", mine.compile_id, {}, mine.reached, end))
    send(LogEvent(event, mine.compile_id, facts, begin, end))


def _id_of(thing: object) -> str:
    """The compilation of a backward; a call belongs to none before it has found its entry, unless
    it is a part of a capture."""
    plan = getattr(thing, "plan", None)
    return current_id() if plan is None else str(plan.number)


def _is_silent(thing: object, compile_id: str) -> bool:
    options = getattr(thing, "options", None)
    return compile_id in SILENT or (options is not None and not options.enable_log)


def _run(run: Run, call: Method, file: str, here: str, values: list[Value]) -> list[Value]:
    """The results of a compiled graph, as one event. `file` and `here` are the file and the
    compilation of the function that calls it: it may do so in a context of NumPy's."""
    found = _FILE.fullmatch(file)
    compile_id = here if found is None else found[2]
    begin = time.perf_counter_ns()
    mine = _THREAD.calls[-1] if _THREAD.calls else None
    if found is None or mine is None or mine.context != here:
        mine = None
    else:
        if not mine.has_run:
            send(LogEvent("prologue", compile_id, {}, mine.reached, begin))
        mine.has_run, mine.is_running, mine.compile_id = True, True, compile_id
    try:
        with within(compile_id):
            results: list[Value] = call(values)
            return results
    finally:
        end = time.perf_counter_ns()
        if mine is not None:
            mine.reached, mine.is_running = end, False
        graph = run.__dict__.get("graph")  # which an instance makes when it is looked at
        name = (
            graph.name if graph is not None else type(run).__name__ if found is None else found[1]
        )
        send(LogEvent("run", compile_id, {"graph": name}, begin, end))


class _Watched:
    """Stands for the attribute `call` of a class of runs: a function that emits an event."""

    def __init__(self, own: Any) -> None:
        self._own = own
        """The method that the class has; None if each run has a function of its own."""

    def __get__(self, run: Any, owner: type | None = None) -> Any:
        if run is None:
            return self if self._own is None else self._own
        call = run.__dict__.get("call")
        if call is None:
            if self._own is None:
                raise AttributeError(f"{type(run).__name__} has no attribute 'call'")
            call = self._own.__get__(run, owner)
        if not is_heard() or (_THREAD.calls and _THREAD.calls[-1].is_running):
            return call
        return partial(_run, run, call, sys._getframe(1).f_code.co_filename, current_id())

    def __set__(self, run: Run, call: Method) -> None:
        run.__dict__["call"] = call


# ------------------------------------------------------------------------------------ on and off
_REPLACED: list[tuple[type, str, object]] = []
"""The attributes that were replaced, with what they were; None where a class had none."""


def _replace_start(cls: type, name: str, event: str) -> None:
    method = cls.__dict__[name]
    _REPLACED.append((cls, name, method))
    setattr(cls, name, _started(event, method))


def _replace() -> None:
    for (cls, name), event in _STARTS.items():
        _replace_start(cls, name, event)
    for cls in _classes(Run):
        own = cls.__dict__.get("call")
        if own is not None or cls is Run:
            _REPLACED.append((cls, "call", own))
            cls.call = _Watched(own)  # type: ignore[assignment]


def _put_back() -> None:
    while _REPLACED:
        cls, name, own = _REPLACED.pop()
        if own is None:
            delattr(cls, name)
        else:
            setattr(cls, name, own)


def _classes(cls: type[Run]) -> list[type[Run]]:
    """A class and all that are made of it."""
    return [cls, *[each for sub in cls.__subclasses__() for each in _classes(sub)]]


def begin() -> None:
    """Makes calls emit events, until as many have called `end`."""
    global _wishes
    with UNFORKED:
        if not _wishes:
            _replace()
        _wishes += 1


def end() -> None:
    """Takes one `begin` back."""
    global _wishes
    with UNFORKED:
        _wishes -= 1
        if not _wishes:
            _put_back()
