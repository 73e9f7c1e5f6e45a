"""Processes that run programs; a process that hangs or dies is replaced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from typing import IO, Any

from aotlite.ir.errors import BackendError
from aotlite.testing.fuzzing.outcomes import Outcome, Played
from aotlite.testing.fuzzing.plan import Plan
from aotlite.testing.fuzzing.processes.child import (
    Drawn,
    DrawOrder,
    JudgeOrder,
    PlanRefused,
    PlayOrder,
    Told,
)
from aotlite.testing.fuzzing.processes.fork import CAN_FORK, exit_text
from aotlite.testing.programs.program import Program

START_SECONDS = 120.0
"""The limit for a process to import its libraries, in seconds."""
STACKS = ("Stack (most recent", "Current thread")
"""The first words of the tracebacks that Python writes for a signal."""
TAIL = 50_000
"""The number of last bytes of standard error that are read."""
STOPPED = "stopped"
BOOT = """\
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from multiprocessing.connection import Connection, Pipe
from aotlite.testing.fuzzing.processes.child import main
main(type(Pipe()[0])(int(sys.argv[1])))
"""
"""The code of the child. Windows has another class of connection."""


class Died(Exception):
    """Raised if the process is gone, as its program hangs or crashes. The text says how."""

    def __init__(self, found: Sequence[str]) -> None:
        super().__init__(found[0])
        self.found = list(found)


class Worker:
    """One child process, which is replaced if it dies."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.process: subprocess.Popen[bytes] | None = None
        self.connection: Connection | None = None
        self.errors: IO[bytes] | None = None
        self.mark = 0
        """The size of standard error before the present order."""
        self.is_closed = False

    # --- the process
    def start(self) -> None:
        """Starts a process if there is none. *Err* the error of a plan that cannot run."""
        if self.process is not None or self.is_closed:
            return
        mine, its = Pipe()
        self.errors = tempfile.TemporaryFile()
        arguments = [str(its.fileno()), json.dumps(["", *sys.path])]
        self.process = subprocess.Popen(
            [sys.executable, "-c", BOOT, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=self.errors,
            stderr=self.errors,
            **_handing_down(its.fileno()),
        )
        its.close()
        self.connection = mine
        if self.is_closed:  # meanwhile
            self.process.kill()
        try:
            self._send(self.plan)
            answer = self._answer(START_SECONDS)
        except Died as died:
            if self.is_closed:
                return
            text = "; ".join(died.found)
            raise BackendError(f"fuzz: a process ended while it started: {text}") from None
        if isinstance(answer, PlanRefused):
            self.stop()
            raise answer.error

    def stop(self) -> None:
        """Ends the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        for each in (self.connection, self.errors):
            if each is not None:
                each.close()
        self.process = self.connection = self.errors = None

    def close(self) -> None:
        """Ends the process, from any thread; no other one starts after it."""
        self.is_closed = True
        process = self.process
        if process is not None:
            process.kill()

    # --- orders
    def play(self, programs: Sequence[tuple[int, int]]) -> Iterator[Played]:
        """Draws and runs programs of these seeds and targets; continues after one that hangs or
        crashes."""
        left = list(programs)
        while left and not self.is_closed:
            self.start()
            try:
                self._send(PlayOrder(tuple(left)))
                while left:
                    yield self._played(*left.pop(0))
            except _Ended as ended:
                if not self.is_closed:
                    yield ended.played

    def _played(self, seed: int, target: int) -> Played:
        text = None
        try:
            answer = self._answer(self.plan.seconds)
            if isinstance(answer, Drawn):
                text = answer.text
                answer = self._answer(self.plan.seconds)
        except Died as died:
            outcome = Outcome(found=died.found)
            raise _Ended(Played(seed, target, text, outcome)) from None
        assert isinstance(answer, Told)
        return Played(seed, target, text, answer.outcome, answer.seconds)

    def judged(self, order: JudgeOrder, seconds: float) -> Outcome:
        """Returns the outcome of the program of an order."""
        self.start()
        try:
            self._send(order)
            is_forked = order.forked is not None and CAN_FORK
            answer = self._answer(seconds + START_SECONDS if is_forked else seconds)
        except Died as died:
            return Outcome(found=died.found)
        assert isinstance(answer, Told)
        return answer.outcome

    def drawing(self, program: Program) -> str:
        """Returns the drawing of a program's alias groups; "" if it cannot run."""
        self.start()
        try:
            self._send(DrawOrder(program))
            return str(self._answer(self.plan.seconds))
        except Died:
            return ""

    # --- output of the process
    def _send(self, order: object) -> None:
        if self.connection is None:
            raise Died([STOPPED])
        self.mark = self._size()
        try:
            self.connection.send(order)
        except OSError:
            raise Died(self._end("crash")) from None

    def _size(self) -> int:
        """The number of bytes that the process has written to standard error."""
        return 0 if self.errors is None else os.fstat(self.errors.fileno()).st_size

    def _answer(self, seconds: float) -> object:
        connection = self.connection
        if connection is None:
            raise Died([STOPPED])
        try:
            if connection.poll(seconds):
                return connection.recv()
        except (EOFError, OSError):
            raise Died(self._end("crash")) from None
        raise Died(self._end(f"hang: no answer within {seconds:g} s"))

    def _end(self, how: str) -> list[str]:
        """Ends the process; returns how it ended, with its last output."""
        assert self.process is not None and self.errors is not None
        if how == "crash":
            status = self.process.wait()
            how = f"crash: {exit_text(status)}"
        else:
            if hasattr(signal, "SIGUSR1"):  # the signal prints where it hangs; Windows has none
                with suppress(ProcessLookupError):
                    self.process.send_signal(signal.SIGUSR1)
                time.sleep(0.2)
        self.errors.seek(max(self.mark, self._size() - TAIL))
        said = self.errors.read().decode(errors="replace").splitlines()
        self.stop()
        return [how, *_telling(said)]


def _handing_down(handle: int) -> dict[str, Any]:
    """Returns arguments of `Popen` with which a child inherits this handle alone."""
    if sys.platform != "win32":
        return {"pass_fds": [handle]}
    os.set_handle_inheritable(handle, True)
    info = subprocess.STARTUPINFO(lpAttributeList={"handle_list": [handle]})
    return {"startupinfo": info}


class _Ended(Exception):
    """Raised if the process of a program is gone; the program counts as run."""

    def __init__(self, played: Played) -> None:
        super().__init__()
        self.played = played


def _telling(said: list[str]) -> list[str]:
    """Returns the innermost lines of the last traceback, or the last line."""
    starts = [i for i, line in enumerate(said) if line.startswith(STACKS)]
    if not starts:
        return said[-1:]
    return [line.strip() for line in said[starts[-1] :] if line.lstrip().startswith("File")][:3]
