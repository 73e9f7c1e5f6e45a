"""What keeps one fault on a GPU from costing everything: the work is done by workers.

A fault spoils the whole process on a GPU, and a kernel may never end. A worker writes what it is
at, and until when; one that crashes, or is late, is ended, what it was at is a failure, and the
next worker goes on behind that. No GPU is touched here.
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
"""The exit of a worker that has noted what spoiled its process."""
POLL = 0.2
"""Seconds."""
GRACE = 20.0
"""Seconds for a worker to end after all time is up."""


def read(path: Path) -> dict[str, Any]:
    """What has been found so far."""
    found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return found


def write(path: Path, found: dict[str, Any]) -> None:
    """Keeps what has been found; whoever reads meanwhile gets what was there before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(found, indent=1, default=str) + "\n", "utf-8")
    new.replace(path)


class Marker:
    """A file that says what a worker is at."""

    def __init__(self, path: Path) -> None:
        self.path = path.with_suffix(".running")
        self.held: list[tuple[str, str, float]] = []

    @contextlib.contextmanager
    def at(self, section: str, name: str, seconds: float) -> Iterator[None]:
        """Says so meanwhile, and after an error: that it is at this, for so long at most."""
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
    """Runs workers till one is through, or all time is up; what stopped one is found."""
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
    """None where a worker is through; else what happened to it."""
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
    """Ends a process that leads a session, and all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
