"""Chrome traces: events as a file that chrome://tracing, Perfetto and Speedscope show.

The file is a JSON array of trace events: complete ones (`X`) for what takes time, instants (`i`)
for the rest, names of processes and threads (`M`). Times are microseconds from the first event on.
Source of the format: "Trace Event Format", Google. Spec: `specs/logs.md`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from aotlite.ir.errors import ArgumentError, FormatError, noted
from aotlite.ir.filesystem import atomic_files
from aotlite.ir.logs import LogEvent, listen, stop
from aotlite.pipeline.logs import call_events
from aotlite.pipeline.logs.trace_files import VERSION, Clock, record_of

Record = Mapping[str, Any]
"""One line of a trace file, or one event of a Chrome trace."""

_OWN = {"event", "compile_id", "time", "process", "thread", "seconds", "text"}
"""The fields of a record that its arguments in a Chrome trace leave out."""
_SUBJECTS = ("stage", "checked", "graph", "function", "name", "of")
"""The facts that name what an event is about, the first that there is."""
_BARE = ("stage", "run")
"""Events that are called by their subject alone."""


@contextmanager
def chrome_trace(path: str | os.PathLike[str], *, calls: bool = True) -> Iterator[None]:
    """A block whose compilations, calls and backwards are written to a file for chrome://tracing or
    https://ui.perfetto.dev, also where the block raises.

    Calls are a little slower in it, in all threads; `calls=False` leaves them out. Raises
    ArgumentError before the block if the folder of `path` cannot be made or written.

    >>> import aotlite as al, json, tempfile
    >>> double = al.compile(lambda x: x * 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with al.inspect.chrome_trace(f"{folder}/chrome.json"):
    ...         _ = double(al.ones(3))
    ...     with open(f"{folder}/chrome.json") as file:
    ...         names = [each["name"] for each in json.load(file)]
    >>> [name for name in names if name in ("capture", "lower", "prologue", "epilogue")]
    ['prologue', 'capture', 'lower', 'epilogue']
    """
    folder, name = os.path.split(os.path.abspath(path))
    try:
        atomic_files.write(folder, name, "[]\n")
    except OSError as error:
        what = f"chrome_trace: the file is {os.fspath(path)!r}, expected one that can be written"
        raise noted(ArgumentError(what), str(error)) from error
    clock, found = Clock(), list[Record]()

    def hear(event: LogEvent) -> None:
        found.append(record_of(event, clock, with_text=False))

    listen(hear)
    if calls:
        call_events.begin()
    try:
        yield
    finally:
        if calls:
            call_events.end()
        stop(hear)
        atomic_files.write(folder, name, chrome_text(found))


def chrome_text(records: Iterable[Record]) -> str:
    """The text of a Chrome trace of these records, an event a line."""
    lines = [json.dumps(each) for each in chrome_events(records)]
    return "[" + ",\n".join(lines) + "]\n"


def chrome_events(records: Iterable[Record]) -> Iterator[Record]:
    """The trace events of records, those of each thread in the order in which they began; of two
    that began at once, the longer one comes first."""
    found = sorted(records, key=lambda each: (each["time"], -each.get("seconds", 0.0)))
    first = found[0]["time"] if found else 0
    threads: dict[tuple[int, int], int] = {}
    for each in found:
        at = each["process"], each["thread"]
        if at not in threads:
            threads[at] = sum(process == at[0] for process, _ in threads)
            yield from _names(*at, threads[at])
        event = {
            "name": _name(each),
            "cat": each["event"],
            "pid": at[0],
            "tid": threads[at],
            "ts": (each["time"] - first) / 1e3,
            "args": {"compile_id": each["compile_id"], **_arguments(each)},
        }
        if "seconds" in each:
            yield {**event, "ph": "X", "dur": each["seconds"] * 1e6}
        else:
            yield {**event, "ph": "i", "s": "t"}


def _names(process: int, thread: int, number: int) -> Iterator[Record]:
    at = {"ph": "M", "pid": process, "tid": number, "ts": 0}
    if not number:
        yield {**at, "name": "process_name", "args": {"name": f"aotlite {process}"}}
    yield {**at, "name": "thread_name", "args": {"name": f"thread {thread}"}}


def _name(record: Record) -> str:
    event: str = record["event"]
    subjects = [str(record[key]) for key in _SUBJECTS if key in record]
    if not subjects or event in _BARE:
        return subjects[0] if subjects else event
    return f"{event} {subjects[0]}"


def _arguments(record: Record) -> Record:
    return {key: value for key, value in record.items() if key not in _OWN}


# ---------------------------------------------------------------------------------- trace files
def records_in(path: str | os.PathLike[str]) -> tuple[list[Record], int]:
    """The records of a trace file, and how many of its lines are none: a process may have been
    killed while it wrote. Raises FormatError for a file without any, or of a later version, and
    OSError for one that cannot be read."""
    found, wrong = list[Record](), 0
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            record = _record(line)
            if record is not None:
                found.append(record)
            elif line.strip():
                wrong += 1
    name = os.fspath(path)
    if wrong and not found:
        raise FormatError(f"trace: {name} has no line of a trace, expected a file of AOTLITE_LOG's")
    later = [each["version"] for each in found if each.get("version", 0) > VERSION]
    if later:
        raise FormatError(f"trace: {name} has version {later[0]}, expected at most {VERSION}")
    return found, wrong


_TYPES: dict[str, type] = {
    "event": str,
    "compile_id": str,
    "time": int,
    "process": int,
    "thread": int,
}


def _record(line: str) -> Record | None:
    """The record of a line; None for a line that is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or type(record.get("seconds", 0.0)) not in (int, float):
        return None
    if any(type(record.get(name)) is not kind for name, kind in _TYPES.items()):
        return None
    return record if type(record.get("version", 0)) is int else None


__all__ = ["Record", "chrome_events", "chrome_text", "chrome_trace", "records_in"]
