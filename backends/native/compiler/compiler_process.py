"""Compilers as child processes, with a time limit, and ended together with their children.

Part of `specs/cpu_toolchain.md`.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import BinaryIO

import attrs

from aotlite.backends.native.blocked_threads import absent

_SAID_LINES = 20
_LONGEST_POLL = 2**31 - 1
"""The longest timeout of poll, in milliseconds. Naps wait for the rest of a longer limit."""
_running: set[tuple[int, int]] = set()
"""(pid of this process, pid of a child that leads a process group)."""
_exiting = threading.Event()

_starting = threading.Lock()
"""Held while a child is started, so that no fork happens then: the fork would hold the pipe on
which `Popen` waits for the start."""
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=_starting.acquire,
        after_in_parent=_starting.release,
        after_in_child=_starting.release,
    )


@attrs.frozen
class CommandResult:
    """The end of a command: `problem` is empty if it succeeded; `said` is its output."""

    problem: str
    said: str = ""
    is_refusal: bool = False
    """Whether the command itself reported an error, and was not ended by a signal or the limit."""
    is_late: bool = False
    """Whether it was ended by the time limit."""

    def reason(self) -> str:
        """Returns the problem with the most telling line of the output.

        >>> CommandResult("status 1", "f.c:1: note: x\\nf.c:2: error: no y\\nfailed").reason()
        'status 1: f.c:2: error: no y'
        """
        return ": ".join(filter(None, [self.problem, self.line()]))

    def line(self) -> str:
        """Returns the most telling line: the first with "error", "failed" or "cannot", or the last.

        A linker prints "failed" or "cannot", and its driver "error" after that.
        """
        lines = [line.strip() for line in self.said.splitlines() if line.strip()]
        words = ("error", "failed", "cannot")
        telling = [line for line in lines if any(word in line.lower() for word in words)]
        return (telling or lines[-1:] or [""])[0]

    def last_lines(self) -> str:
        """Returns the last lines of the output."""
        return "\n".join(self.said.rstrip().splitlines()[-_SAID_LINES:])


def run(
    command: Sequence[str], folder: str, limit: float, meanwhile: Callable[[], None] | None = None
) -> CommandResult:
    """Runs a command in `folder` for at most `limit` seconds, and returns how it ended. Calls
    `meanwhile` once it runs.

    Its output goes to a file, since a pipe would have to wait for a process that the command leaves
    behind. It leads a process group of its own, which is killed as a whole when time is up, when
    the command itself is killed, at Ctrl-C, and at the exit of Python. Its temporary files, such as
    object files, lie in the folder as well.
    """
    if _exiting.is_set():
        return CommandResult("is not started any more, Python exits")
    with _file(folder) as said:
        try:
            with _starting:
                child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    cwd=folder,
                    env={**os.environ, "TMPDIR": folder},
                    start_new_session=True,
                )
        except OSError as error:
            return CommandResult(f"cannot be run: {error.strerror}")
        is_late = _wait(child, limit, meanwhile)
        said.seek(0)
        text = said.read().decode("utf-8", "replace")
    problem = _problem(child.returncode, limit if is_late else None)
    return CommandResult(problem, text, not is_late and child.returncode > 0, is_late)


def _file(folder: str) -> BinaryIO:
    """Returns a new file for the output: in memory on Linux, so that a full disk can be reported,
    else in the folder."""
    if sys.platform == "linux" and hasattr(os, "memfd_create"):
        return open(os.memfd_create("said"), "w+b")
    return open(os.path.join(folder, "said"), "w+b")


def _wait(
    child: subprocess.Popen[bytes], limit: float, meanwhile: Callable[[], None] | None
) -> bool:
    """Waits for the end of a child, and kills it when time is up. Returns whether it was killed."""
    entry = (os.getpid(), child.pid)
    _running.add(entry)
    end = time.monotonic() + limit
    try:
        if meanwhile is not None:
            meanwhile()
        limit = max(0.0, end - time.monotonic())
        with absent():
            return not _ends(child, limit)
    finally:
        if child.returncode is None or child.returncode < 0:
            _end_group(child.pid)
            child.wait()
        _running.discard(entry)


def _ends(child: subprocess.Popen[bytes], limit: float) -> bool:
    """Whether a child ends by itself within `limit` seconds.

    No thread is started, for which memory may be missing. On Linux poll returns at once when the
    child ends. Elsewhere, and without a free descriptor, it waits in naps of up to 50 ms.
    """
    end = time.monotonic() + limit
    if sys.platform == "linux" and hasattr(os, "pidfd_open"):
        with suppress(OSError), open(os.pidfd_open(child.pid), "rb", buffering=0) as ended:
            poll = select.poll()
            poll.register(ended, select.POLLIN)
            poll.poll(min(1000 * limit, _LONGEST_POLL))
    try:
        child.wait(max(0.0, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        return False
    return True


def _problem(status: int, late: float | None) -> str:
    if late is not None:
        return f"took more than {late:g} s"
    if status < 0:
        return f"was ended by signal {-status}"
    return f"ended with status {status}" if status else ""


def _end_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def is_exiting() -> bool:
    """Whether Python is exiting, so that no compiler is started any more."""
    return _exiting.is_set()


@atexit.register
def _end_all() -> None:
    """Kills the children for which daemon threads of this process still wait."""
    _exiting.set()
    for parent, leader in list(_running):
        if parent == os.getpid():
            _end_group(leader)
