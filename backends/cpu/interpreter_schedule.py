"""How an interpreted run shares processors and Python's lock with the compilation that is to take
its place: a call that does not wait is then no slower than one that does.

Spec: `specs/cpu_backend.md`, CPU-11. Input: a job; output: what the interpreter asks between
operations.
"""

from __future__ import annotations

import time
from typing import Any, Protocol

from aotlite.backends.threads import processors

LOOK = 0.001
"""Seconds between two looks at the clocks, which cost some microseconds."""
LOSS = 0.004
"""Seconds that a compilation may lose, beside a fiftieth of the time, before it is left alone."""
REST, MOST_REST = 10, 40
"""How many times as long it is left alone as it lost: at first, and after doubling."""
LONGEST_REST = 1.0
"""Seconds."""
ASIDE = 0.04
"""Seconds for which a job in Python has its lock."""
PATIENCE = 2.0
"""Seconds that a run waits, all in all, before what cannot be left: a compiler may hang."""
BRIEF = 1_000_000
"""Operations on numbers, some milliseconds, for which nobody waits."""


class Awaited(Protocol):
    """A job of `background`, as far as it is asked here."""

    def done(self) -> bool: ...

    def wait(self, timeout: float) -> bool: ...

    def is_absent(self) -> bool: ...


class Clocks:
    """What time it is, in seconds: for everybody, for this thread, for all threads of Python."""

    wall = staticmethod(time.perf_counter)
    thread = staticmethod(time.thread_time)
    process = staticmethod(time.process_time)


class InterpreterSchedule:
    """What one run, in one thread, asks about the job that makes what is faster.

    The job loses no more than the run waits for a processor itself, since the system is fair,
    nor more than all threads here, as those of a BLAS, take of the last processor.
    """

    def __init__(self, job: Awaited, patience: float = PATIENCE, clocks: Any = Clocks) -> None:
        self.job, self.patience, self.clocks = job, patience, clocks
        self._others = processors() - 1
        self._next = clocks.wall()
        self._rest = REST
        self._begin()

    def _begin(self) -> None:
        """Counts what is lost from now on."""
        clocks = self.clocks
        self._since = clocks.wall(), clocks.thread(), clocks.process()

    def go_on(self) -> None:
        """Returns once the run may go on, or the job is done."""
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
        """Seconds that the job may have lost; 0 where they are too few to count."""
        wall, thread, process = self._since
        gone = self.clocks.wall() - wall
        waited = gone - (self.clocks.thread() - thread)
        taken = self.clocks.process() - process - self._others * gone
        lost = max(waited, 0.0) + max(taken, 0.0)
        return lost if lost > LOSS + gone / 50 else 0.0

    def _step_aside(self) -> None:
        """Leaves Python's lock to the job, until it needs none; for a while only."""
        end = self.clocks.wall() + ASIDE
        while not self.job.wait(LOOK) and not self.job.is_absent():
            if self.clocks.wall() >= end:
                self._next = end + LOSS
                break
        self._begin()

    def before_the_last(self, operations: int) -> None:
        """Waits, before so many operations in a row that cannot be left, or would be done again."""
        if operations < BRIEF or self.patience <= 0 or self.job.done():
            return
        begin = self.clocks.wall()
        self.job.wait(self.patience)
        self.patience -= self.clocks.wall() - begin
        self._begin()
