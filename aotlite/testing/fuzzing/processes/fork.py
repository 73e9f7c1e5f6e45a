"""Runs an action in a fork of this process, so that a hang or a crash costs milliseconds.

Used only to shrink a failure: a fork has the modules of its parent, but not its threads.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import threading
import time
from collections.abc import Callable

from aotlite.testing.fuzzing.outcomes import Outcome

PIECE = 65536
CAN_FORK = hasattr(os, "fork")


def in_fork(action: Callable[[], Outcome], seconds: float) -> Outcome:
    """Runs the action in a fork. Returns its result, or the outcome of a hang or a crash."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.close(ours)
        _run(action, theirs)
    os.close(theirs)
    told = _read(ours, time.monotonic() + seconds)
    os.close(ours)
    if told is None:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if told is None:
        return Outcome(found=[f"hang: no answer within {seconds:g} s"])
    if status or not told:
        return Outcome(found=[f"crash: {exit_text(os.waitstatus_to_exitcode(status))}"])
    outcome: Outcome = pickle.loads(told)
    return outcome


def _run(action: Callable[[], Outcome], out: int) -> None:
    """Runs the action in the fork, and never returns."""
    try:
        watch_parent()
        with os.fdopen(out, "wb") as file:
            file.write(pickle.dumps(action()))
    finally:
        os._exit(0)


def _read(pipe: int, end: float) -> bytes | None:
    """Returns everything that is written to the pipe; None after the limit."""
    found = b""
    while True:
        ready, _, _ = select.select([pipe], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            return None
        piece = os.read(pipe, PIECE)
        if not piece:
            return found
        found += piece


def exit_text(status: int) -> str:
    """Returns an exit status in words: the name of the signal if it is negative."""
    if status >= 0:
        return f"exit status {status}"
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


def watch_parent() -> None:
    """Ends this process when its parent is gone, whatever runs here."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
