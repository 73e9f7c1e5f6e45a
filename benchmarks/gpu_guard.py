"""Runs the work in worker processes, so that one fault on a GPU does not end everything.

A fault spoils the whole process on a GPU, and a kernel may never end. A worker writes its present
work and its limit; one that crashes, or is late, is ended, its work is a failure, and the next
worker continues after it. This module uses no GPU.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

SPOILED = 70
"""The exit status of a worker that has noted the fault of its process."""
POLL = 0.2
"""Seconds."""
GRACE = 20.0
"""The seconds for a worker to end after the end of all time."""


def read(path: Path) -> dict[str, Any]:
    """Returns the findings so far."""
    found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return found


def write(path: Path, found: dict[str, Any]) -> None:
    """Writes the findings; a concurrent reader gets the old ones."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(found, indent=1, default=str) + "\n", "utf-8")
    new.replace(path)


class Marker:
    """A file with the present work of a worker."""

    def __init__(self, path: Path) -> None:
        self.path = path.with_suffix(".running")
        self.held: list[tuple[str, str, float]] = []

    @contextlib.contextmanager
    def at(self, section: str, name: str, seconds: float) -> Iterator[None]:
        """A block whose work and limit are in the file, also after an error in it."""
        self.held.append((section, name, time.time() + seconds))
        self._write()
        yield
        self.held.pop()
        self._write()

    def _write(self) -> None:
        if not self.held:
            self.path.unlink(missing_ok=True)
            return
        new = self.path.with_suffix(".new-running")
        new.write_text(json.dumps(self.held[-1]), "utf-8")
        new.replace(self.path)

    def read(self) -> tuple[str, str, float] | None:
        """(section, name, until when)."""
        with contextlib.suppress(FileNotFoundError):
            section, name, until = json.loads(self.path.read_text("utf-8"))
            return section, name, until
        return None


def guarded(command: Sequence[str], path: Path, seconds: float, cwd: Path) -> None:
    """Runs workers until one finishes or the time is over; a stopped one is a finding."""
    marker, end = Marker(path), time.time() + seconds
    marker.path.unlink(missing_ok=True)
    while True:
        given = [*command, "--seconds", f"{end - time.time():.1f}"]
        why = _worked(subprocess.Popen(given, cwd=cwd, start_new_session=True), marker, end + GRACE)
        if why is None:
            return
        at = marker.read()
        marker.path.unlink(missing_ok=True)
        section, name = ("workers", "start") if at is None else at[:2]
        found = read(path)
        found.setdefault(section, {}).setdefault(name, {"error": f"the process {why}"})
        write(path, found)
        if at is None or time.time() > end:
            return


def _worked(worker: subprocess.Popen[bytes], marker: Marker, end: float) -> str | None:
    """Returns None if a worker finishes; else how it ended."""
    try:
        while (code := worker.poll()) is None:
            at = marker.read()
            if time.time() > min(end, end if at is None else at[2]):
                return "took too long and was ended"
            time.sleep(POLL)
    finally:
        ended(worker)
    if code in (0, SPOILED):
        return None if code == 0 else "was spoiled"
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"


def ended(process: subprocess.Popen[Any]) -> None:
    """Ends a process that leads a session, with all its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
