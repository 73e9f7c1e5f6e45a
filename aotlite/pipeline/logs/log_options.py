"""`AOTLITE_LOG`, `AOTLITE_TRACE` and `set_logs`: which loggers are on, at which level, and where
the trace goes.

    setting   item, item, ...       later items win
    item      NAME                  on, at level info
              NAME:LEVEL            debug, info, warning, error or off
              +NAME, -NAME          debug, off
              trace=FILE            a file that gets each event as a line of JSON
              calls                 events of calls and backwards, too, in the trace
    NAME      graphs, guards, recompiles, partition, kernels, cache, autograd, stages, or all

`AOTLITE_TRACE=FILE` is the item `trace=FILE`, for any name of a file.
Levels are those of Python's loggers: a program may as well set them by `logging` alone. Rules:
LOG-1, LOG-2, LOG-5. Spec: `specs/logs.md`.
"""

from __future__ import annotations

import difflib
import logging
import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO

import attrs

from aotlite.ir.errors import ArgumentError, noted
from aotlite.ir.forks import lock
from aotlite.ir.logs import listen
from aotlite.pipeline.logs import call_events
from aotlite.pipeline.logs.loggers import NAMES, ROOT, loggers_of, refresh
from aotlite.pipeline.logs.trace_files import TraceFile, opened

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}
GRAMMAR = (
    "Items are separated by commas: graphs, guards:debug, +kernels (debug), -cache (off), all, "
    "trace=FILE, calls."
)


@attrs.frozen
class LogOptions:
    """What is logged: the level of each name that is not off, the trace file, calls."""

    levels: Mapping[str, int] = attrs.field(factory=dict)
    trace: str | None = None
    calls: bool = False


# ------------------------------------------------------------------------------------ the grammar
def parsed(text: str) -> LogOptions:
    """The options that a setting of AOTLITE_LOG stands for. Raises ArgumentError.

    >>> options = parsed("all:warning, graphs, +guards, -cache, trace=run.jsonl")
    >>> options.levels["graphs"], options.levels["guards"], options.trace
    (20, 10, 'run.jsonl')
    """
    levels: dict[str, int] = {}
    trace, calls = None, False
    for item in [each.strip() for each in text.split(",")]:
        word, equals, file = item.partition("=")
        if not item:
            continue
        if equals and word.strip() == "trace":
            if not file.strip():
                raise _wrong(f"AOTLITE_LOG has {item!r}, expected trace=FILE")
            trace = file.strip()
        elif item.lstrip("+-") == "calls":
            calls = not item.startswith("-")
        else:
            name, level = _item(item)
            levels.update(dict.fromkeys(NAMES if name == "all" else [name], level))
    return LogOptions(levels, trace, calls)


def _item(item: str) -> tuple[str, int]:
    sign = item[0] if item[0] in "+-" else ""
    name, colon, level = item[len(sign) :].partition(":")
    name, level = name.strip().lower(), level.strip()
    check_name(name, "AOTLITE_LOG has")
    if sign and colon:
        raise _wrong(f"AOTLITE_LOG has {item!r}, expected a sign or a level")
    if sign:
        return name, LEVELS["debug" if sign == "+" else "off"]
    return name, _level(level, f"AOTLITE_LOG has {item!r}") if colon else logging.INFO


def check_name(name: str, where: str) -> None:
    """Raises ArgumentError for a name that no logger has."""
    if name in NAMES or name == "all":
        return
    known = [*NAMES, "all", "trace=FILE", "calls"]
    near = difflib.get_close_matches(name, known, 1)
    meant = f"; did you mean {near[0]}?" if near else ""
    raise _wrong(f"{where} {name!r}, expected one of {', '.join(known)}{meant}")


def _level(level: object, where: str) -> int:
    match level:
        case bool():
            return LEVELS["info" if level else "off"]
        case int() if level > 0:
            return level
        case str() if level.lower() in LEVELS:
            return LEVELS[level.lower()]
    raise _wrong(f"{where}, expected one of the levels {', '.join(LEVELS)}")


def _path(trace: object) -> str:
    if isinstance(trace, os.PathLike):
        trace = os.fspath(trace)
    if not isinstance(trace, str):
        raise _wrong(f"set_logs is given trace={trace!r}, expected the path of a file, or None")
    return trace


def _wrong(text: str) -> ArgumentError:
    return noted(ArgumentError(f"logs: {text}"), GRAMMAR)


# ---------------------------------------------------------------------------------- what holds now
class _Handler(logging.StreamHandler[TextIO]):
    """Writes lines to the standard error of the moment, where no handler of the program's gets
    them."""

    def emit(self, record: logging.LogRecord) -> None:
        if not self._is_taken(logging.getLogger(record.name)):
            self.stream = sys.stderr
            super().emit(record)

    def _is_taken(self, logger: logging.Logger | None) -> bool:
        """Whether another handler gets the lines of a logger."""
        while logger is not None:
            if any(each is not self for each in logger.handlers):
                return True
            logger = logger.parent if logger.propagate else None
        return False


@attrs.define
class _State:
    """What `set_logs` and AOTLITE_LOG have made."""

    text: tuple[str, str] = ("", "")
    """The values of AOTLITE_LOG and AOTLITE_TRACE that hold, or that `set_logs` has replaced."""
    options: LogOptions = LogOptions()
    trace: TraceFile | None = None
    handler: _Handler = attrs.field(factory=_Handler)
    lock: Any = attrs.field(factory=lock)


_STATE = _State()
_STATE.handler.setFormatter(logging.Formatter("%(name)s %(levelname)s %(message)s"))


def read_environment() -> None:
    """Obeys AOTLITE_LOG and AOTLITE_TRACE where they have changed since they were read. Raises
    ArgumentError for a wrong value. A trace that cannot be opened is a warning."""
    text = os.environ.get("AOTLITE_LOG", ""), os.environ.get("AOTLITE_TRACE", "")
    if text != _STATE.text:
        options = _of_both(*text)
        with _STATE.lock:
            if text == _STATE.text:  # another thread has obeyed it meanwhile
                return
            _obey(options, None if options.trace is None else opened(options.trace))
            _STATE.text = text  # last: who sees it goes on, and is heard


def _of_both(log: str, trace: str) -> LogOptions:
    """The options of AOTLITE_LOG with the trace of AOTLITE_TRACE."""
    options, trace = parsed(log), trace.strip()
    if trace and options.trace not in (None, trace):
        raise _wrong(
            f"AOTLITE_LOG has trace={options.trace} and AOTLITE_TRACE is {trace}, expected one file"
        )
    return attrs.evolve(options, trace=trace) if trace else options


def set_logs(
    *,
    trace: str | os.PathLike[str] | None = None,
    calls: bool = False,
    **levels: bool | int | str,
) -> None:
    """Logs what is named here, and nothing else; without arguments nothing. AOTLITE_LOG and
    AOTLITE_TRACE do the same from outside, and hold no longer.

    Names are graphs, guards, recompiles, partition, kernels, cache, autograd, stages and all. Each
    is True (level info), False, 'debug', 'info', 'warning', 'error', 'off', or a number of a level.
    `trace` is a file that gets each event as a line of JSON; with `calls` those of calls and
    backwards, too, which makes calls slower. Raises ArgumentError for a wrong name, level or
    value, and for a file that cannot be written; then nothing changes.

    >>> import aotlite as al
    >>> al.set_logs(recompiles=True, guards="debug")
    >>> al.set_logs()
    >>> try:
    ...     al.set_logs(graph=True)
    ... except al.ArgumentError as error:
    ...     print(str(error).partition(", expected")[0], "...", str(error).rpartition("; ")[2])
    logs: set_logs is given 'graph' ... did you mean graphs?
    """
    found: dict[str, int] = {}
    for name, level in levels.items():
        check_name(name, "set_logs is given")
        number = _level(level, f"set_logs is given {name}={level!r}")
        if name == "all":
            found = {**dict.fromkeys(NAMES, number), **found}
        else:
            found[name] = number
    if not isinstance(calls, bool):
        raise _wrong(f"set_logs is given calls={calls!r}, expected True or False")
    path = None if trace is None else _path(trace)
    try:
        file = None if path is None else TraceFile(path)
    except OSError as error:
        what = f"set_logs is given trace={path!r}, expected a file that can be written"
        raise noted(_wrong(what), str(error)) from error
    with _STATE.lock:
        _obey(LogOptions(found, path, calls), file)
        _STATE.text = os.environ.get("AOTLITE_LOG", ""), os.environ.get("AOTLITE_TRACE", "")


def _obey(options: LogOptions, trace: TraceFile | None) -> None:
    """Sets the levels of loggers; those that were set for the options before are unset."""
    before = _STATE.options
    for name in {*before.levels, *options.levels}:
        for logger in loggers_of(name):
            logger.setLevel(options.levels.get(name, logging.NOTSET))
    is_shown = any(level <= logging.CRITICAL for level in options.levels.values())
    root = logging.getLogger(ROOT)
    (root.addHandler if is_shown else root.removeHandler)(_STATE.handler)
    if _STATE.trace is not None:
        _STATE.trace.close()
    _STATE.trace, _STATE.options = trace, options
    if trace is not None:
        listen(trace)
    if options.calls is not before.calls:
        (call_events.begin if options.calls else call_events.end)()
    refresh()
