"""The schedule of an interpreted run beside a compilation in the background.

Both want processors and the GIL. The run gives way when it measures that the compilation loses
time, so that a call that does not wait is no slower than one that does. The interpreter calls
`go_on` between its operations. Spec: `specs/cpu_backend.md`, CPU-11.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

from aotlite.backends.threads import processors

LOOK = 0.001
"""Seconds between two looks at the clocks, which cost some microseconds."""
LOSS = 0.004
"""Seconds that the compilation may lose, plus a fiftieth of the time, before the run pauses."""
REST, MOST_REST = 10, 40
"""A pause is this many times the loss: at first, and at most, after doubling each time."""
LONGEST_REST = 1.0
"""The longest pause in seconds."""
ASIDE = 0.04
"""The longest time in seconds for which the run leaves the GIL to a job that needs it."""
PATIENCE = 2.0
"""Seconds that all runs of a graph wait, together, before steps that cannot be abandoned. It has an
end, since a compiler may hang."""
BRIEF = 1_000_000
"""Operations, some milliseconds: for fewer the run does not wait."""


class Awaited(Protocol):
    """The part of a `background` job's interface that is used here."""

    def done(self) -> bool: ...

    def wait(self, timeout: float) -> bool: ...

    def is_absent(self) -> bool: ...


class Clocks:
    """Clocks in seconds: wall time, CPU time of this thread, CPU time of this process."""

    wall = staticmethod(time.perf_counter)
    thread = staticmethod(time.thread_time)
    process = staticmethod(time.process_time)


class InterpreterSchedule:
    """The schedule of one run, in one thread, beside the job that compiles its graph.

    The job's loss cannot be measured, but bounded: a fair system makes it wait no longer than this
    thread has waited for a processor; and the threads of this process, a BLAS's for instance, leave
    it at least what they do not use of the last processor.
    """

    def __init__(self, job: Awaited, patience: float = PATIENCE, clocks: Any = Clocks) -> None:
        self.job, self.patience, self.clocks = job, patience, clocks
        self._others = processors() - 1
        self._next = clocks.wall()
        self._rest = REST
        self._begin()

    def _begin(self) -> None:
        """Starts to count losses from now on."""
        clocks = self.clocks
        self._since = clocks.wall(), clocks.thread(), clocks.process()

    def go_on(self) -> None:
        """Returns when the run may go on or the job is done. Pauses if the job is losing time."""
        now = self.clocks.wall()
        if now < self._next or self.job.done():
            return
        self._next = now + LOOK
        if not self.job.is_absent():
            self._step_aside()
        elif (lost := self._lost()) > 0:
            self.job.wait(min(self._rest * lost, LONGEST_REST))
            self._rest = min(2 * self._rest, MOST_REST)
            self._begin()

    def _lost(self) -> float:
        """Returns the seconds that the job may have lost; 0 if they are too few to count."""
        wall, thread, process = self._since
        gone = self.clocks.wall() - wall
        waited = gone - (self.clocks.thread() - thread)
        taken = self.clocks.process() - process - self._others * gone
        lost = max(waited, 0.0) + max(taken, 0.0)
        return lost if lost > LOSS + gone / 50 else 0.0

    def _step_aside(self) -> None:
        """Leaves the GIL to the job until it needs it no more, for `ASIDE` seconds at most."""
        end = self.clocks.wall() + ASIDE
        while not self.job.wait(LOOK) and not self.job.is_absent():
            if self.clocks.wall() >= end:
                self._next = end + LOSS
                break
        self._begin()

    def before_the_last(self, operations: int) -> None:
        """Waits for the job before operations that cannot be abandoned, or would be repeated."""
        if operations < BRIEF or self.patience <= 0 or self.job.done():
            return
        begin = self.clocks.wall()
        self.job.wait(self.patience)
        self.patience -= self.clocks.wall() - begin
        self._begin()
