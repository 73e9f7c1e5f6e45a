"""Log events: what compilations, kernels and calls say to those who listen. Ground floor.

    emitter (a stage, a C compiler, a guard that fails)  ──LogEvent──>  listeners (loggers, a file)

An emitter calls `emit` for what happens, and enters `timed` for what takes time. Without a listener
neither reads a clock nor looks at a fact. Each event has the id of the compilation that it belongs
to, which `within` sets for a block and `carrying` takes to another thread. Listeners format what
they show; the ones of aotlite are in `aotlite.pipeline.logs`. Rules: LOG-1, LOG-2, GEN-9.
Spec: `specs/logs.md`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeVar

import attrs

from aotlite.ir.forks import UNFORKED

T = TypeVar("T")

NO_COMPILATION = "-"
"""The id of what belongs to no compilation."""


@attrs.frozen(eq=False)
class LogEvent:
    """One event: its name, the compilation's id, its facts, and when it began and ended."""

    name: str
    compile_id: str
    """`3` for compilation 3 of the process, `3.1` for instance 1 of its region (GEN-9)."""
    facts: Mapping[str, Any]
    """Numbers, texts, and objects that a listener may format."""
    begin: int
    """Nanoseconds of `time.perf_counter_ns`."""
    end: int | None = None
    """None for an event that takes no time."""
    made: object = None
    """The graph or record that it is about; nothing has formatted it."""

    @property
    def seconds(self) -> float:
        """How long it took; 0 for an event that takes no time."""
        return 0.0 if self.end is None else (self.end - self.begin) * 1e-9


Listener = Callable[[LogEvent], None]

_listeners: tuple[Listener, ...] = ()


@attrs.frozen
class _Compilation:
    """The compilation that the code of this context is a part of."""

    compile_id: str
    is_silent: bool


_CURRENT: ContextVar[_Compilation | None] = ContextVar("aotlite compilation", default=None)


# ----------------------------------------------------------------------------------- listeners
def listen(listener: Listener) -> None:
    """Adds a listener; one that listens already is left where it is."""
    global _listeners
    with UNFORKED:
        if listener not in _listeners:
            _listeners = (*_listeners, listener)


def stop(listener: Listener) -> None:
    """Removes a listener; nothing happens if it does not listen."""
    global _listeners
    with UNFORKED:
        _listeners = tuple([each for each in _listeners if each != listener])


def is_heard() -> bool:
    """Whether somebody listens to what the code of this context emits."""
    if not _listeners:
        return False
    current = _CURRENT.get()
    return current is None or not current.is_silent


# ------------------------------------------------------------------------------------ emitters
def emit(
    name: str,
    facts: Callable[[], Mapping[str, object]] = dict,
    made: object = None,
    compile_id: str | None = None,
) -> None:
    """Hands an event that takes no time to the listeners. `facts` is called if there is one.

    >>> heard = []
    >>> listen(heard.append)
    >>> emit("cache", lambda: {"outcome": "hit"})
    >>> stop(heard.append)
    >>> emit("cache", lambda: {"outcome": "miss"})
    >>> [(each.name, each.compile_id, each.facts) for each in heard]
    [('cache', '-', {'outcome': 'hit'})]
    """
    if is_heard():
        here = current_id() if compile_id is None else compile_id
        send(LogEvent(name, here, facts(), time.perf_counter_ns(), made=made))


def timed(event: str, compile_id: str | None = None, /, **facts: object) -> Timed:
    """A block that is one event, emitted at its end with its seconds.

    The block gets the facts as a dict, and may add others. The text of an error that leaves the
    block is the fact `error`.

    >>> heard = []
    >>> listen(heard.append)
    >>> with timed("kernel", name="loss") as found:
    ...     found["outcome"] = "compiled"
    >>> stop(heard.append)
    >>> [(each.name, each.facts, each.seconds >= 0) for each in heard]
    [('kernel', {'name': 'loss', 'outcome': 'compiled'}, True)]
    """
    return Timed(event, compile_id, facts)


class Timed:
    """The block of `timed`."""

    __slots__ = ("_begin", "compile_id", "facts", "name")

    def __init__(self, name: str, compile_id: str | None, facts: dict[str, object]) -> None:
        self.name = name
        self.compile_id = compile_id
        self.facts = facts
        self._begin: int | None = None

    def __enter__(self) -> dict[str, object]:
        self._begin = time.perf_counter_ns() if is_heard() else None
        return self.facts

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if self._begin is None or not is_heard():
            return
        end = time.perf_counter_ns()
        here = current_id() if self.compile_id is None else self.compile_id
        if error is not None:
            self.facts["error"] = text_of_error(error)
        send(LogEvent(self.name, here, self.facts, self._begin, end))


def looked_up(of: str, name: str, *, found: bool) -> None:
    """Emits the event of a look into the disk cache: for `of`, a kind of file, by the name of the
    graph."""
    emit("cache", lambda: {"of": of, "name": name, "outcome": "hit" if found else "miss"})


def text_of_error(error: BaseException) -> str:
    """Class and text of an error. Events have no errors themselves, whose frames would stay alive
    as long as a listener keeps the event.

    >>> text_of_error(ValueError("no such thing"))
    'ValueError: no such thing'
    """
    name = type(error).__name__
    try:
        return f"{name}: {error}"
    except Exception:  # of a class of users
        return name


def send(event: LogEvent) -> None:
    for listener in _listeners:
        listener(event)


# -------------------------------------------------------------------------------- compilations
def current_id() -> str:
    """The id of the compilation that this code is a part of; `-` outside of all."""
    current = _CURRENT.get()
    return NO_COMPILATION if current is None else current.compile_id


@contextmanager
def within(compile_id: str, *, is_silent: bool = False) -> Iterator[None]:
    """A block whose events belong to a compilation. Nobody hears those of a block that `is_silent`,
    or that lies in such a block.

    >>> with within("3"):
    ...     current_id()
    '3'
    """
    outer = _CURRENT.get()
    is_silent = is_silent or (outer is not None and outer.is_silent)
    token = _CURRENT.set(_Compilation(compile_id, is_silent))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def carrying(work: Callable[[], T]) -> Callable[[], T]:
    """The same work for another thread, where its events belong to this context's compilation."""
    current = _CURRENT.get()
    if current is None:
        return work

    def carried() -> T:
        with within(current.compile_id, is_silent=current.is_silent):
            return work()

    return carried
