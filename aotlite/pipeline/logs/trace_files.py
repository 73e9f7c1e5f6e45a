"""Trace files: events as JSON, an object a line, which several processes may append to.

Each line is one write to a file that was opened for appending, so lines of processes and threads do
not mix. A line that cannot be written ends the trace with one warning, and no compilation (LOG-2).
Spec: `specs/logs.md`, which has the schema.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
import threading
import time
from collections.abc import Callable, Mapping

from aotlite.backends.native.warn_once import warn_once
from aotlite.ir.filesystem import atomic_files, trust
from aotlite.ir.forks import lock
from aotlite.ir.logs import NO_COMPILATION, LogEvent, stop
from aotlite.pipeline.logs.artifact_text import text_of
from aotlite.stages.s10_runtime.guards.failures import GuardCheck

VERSION = 1
"""The version of the schema: readers refuse a higher one."""

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
_MOST_BITS = 63
"""A longer int is a text in hexadecimal digits: many readers of JSON know no longer ones."""
_MOST_CHARACTERS = 500
"""Texts of objects without a form of their own are cut there."""
_DEEPEST = 8


class Clock:
    """Nanoseconds since the epoch for those of `perf_counter_ns`, which never go back."""

    def __init__(self) -> None:
        self._begin = time.time_ns() - time.perf_counter_ns()

    def at(self, moment: int) -> int:
        """The time of a moment."""
        return self._begin + moment


class TraceFile:
    """A listener that appends each event to a file. Raises OSError if that cannot be opened: it or
    its folder cannot be written, another user's link leads there, or it is no file."""

    def __init__(self, path: str) -> None:
        self.path = os.path.abspath(path)
        atomic_files.make(os.path.dirname(self.path))
        self._file: int | None = trust.opener(self.path, _FLAGS)
        mode = os.fstat(self._file).st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISCHR(mode)):
            os.close(self._file)
            raise OSError(errno.EINVAL, "it is neither a file nor a character device")
        self._lock = lock()
        self._clock = Clock()
        self._process = os.getpid()
        self._append(self._version())

    def __call__(self, event: LogEvent) -> None:
        try:
            self._write(event)
        except Exception as error:  # of a write, or of code of users that makes a text
            stop(self)
            why = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}"
            warn_once(
                f"aotlite: the trace ends: {self.path} gives {why}, expected a file that can be "
                "written, with room in it; name another one in trace="
            )

    def _write(self, event: LogEvent) -> None:
        line = self._line(event)
        with self._lock:
            if self._process != os.getpid():  # a forked child's first line
                self._append(self._version())
                self._process = os.getpid()
            self._append(line)

    def _version(self) -> bytes:
        """The first line of a process."""
        event = LogEvent("trace", NO_COMPILATION, {"version": VERSION}, time.perf_counter_ns())
        return self._line(event)

    def _line(self, event: LogEvent) -> bytes:
        return json.dumps(record_of(event, self._clock)).encode() + b"\n"

    def _append(self, line: bytes) -> None:
        with self._lock:  # another thread may close the file, whose number may then be another's
            if self._file is not None and os.write(self._file, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        """Stops listening, and closes the file."""
        stop(self)
        with self._lock:
            if self._file is not None:
                os.close(self._file)
            self._file = None


def record_of(event: LogEvent, clock: Clock, *, with_text: bool = True) -> dict[str, object]:
    """An event as an object of JSON: `specs/logs.md` has its fields."""
    found: dict[str, object] = {
        "event": event.name,
        "compile_id": event.compile_id,
        "time": clock.at(event.begin),
        "process": os.getpid(),
        "thread": threading.get_ident(),
    }
    if event.end is not None:
        found["seconds"] = round(event.seconds, 9)
    for name, fact in event.facts.items():
        found[name] = _plain(fact)
    if with_text and event.made is not None:
        made = event.made
        found["text"] = _said(lambda: text_of(made), math.inf)
    return found


def _plain(value: object, depth: int = 0) -> object:
    """A value as JSON has it; an object without such a form as its text."""
    match value:
        case bool() | None:
            return value
        case int():
            return int(value) if value.bit_length() <= _MOST_BITS else f"{value:#x}"
        case float():
            return float(value) if math.isfinite(value) else str(float(value))
        case str():
            return str(value)
        case GuardCheck():
            return {"subject": value.subject, "expected": value.expected, "test": value.test}
        case Mapping() if depth < _DEEPEST:
            return {str(key): _plain(each, depth + 1) for key, each in value.items()}
        case list() | tuple() if depth < _DEEPEST:
            return [_plain(each, depth + 1) for each in value]
    return _said(lambda: str(value))


def _said(say: Callable[[], str], most: float = _MOST_CHARACTERS) -> str:
    """A text, cut where it is too long. Code of users may make it, and raise."""
    try:
        text = say()
    except Exception as error:
        return f"no text: {type(error).__name__}"
    return text if len(text) <= most else f"{text[: int(most)]}..."


def opened(path: str) -> TraceFile | None:
    """The trace file of this path; None after a warning if it cannot be opened."""
    try:
        return TraceFile(path)
    except OSError as error:
        why = error.strerror or str(error)
        warn_once(f"aotlite: no trace: {path} gives {why}, expected a file that can be written")
        return None


__all__ = ["Clock", "TraceFile", "opened", "record_of"]
