"""A run that is interpreted leaves processors and Python's lock to the compilation beside it: what
the compilation loses is a small part of the time, whatever else the machine does."""

from __future__ import annotations

import threading

import attrs
import pytest

from aotlite.backends.cpu import interpreter_schedule
from aotlite.backends.cpu.interpreter_schedule import BRIEF, LOSS, PATIENCE, InterpreterSchedule
from aotlite.backends.native.blocked_threads import absent, is_absent
from aotlite.backends.native.libraries.background import in_background


@attrs.define(slots=False)
class Machine:
    """Processors, of which a run has a share, and threads of its BLAS the rest of what they take.

    It is the job as well, which takes `work` seconds of one processor that it has for itself, and
    what the run leaves of it otherwise.
    """

    share: float = 1.0
    """Of each second what the run has a processor for."""
    taken: float = 1.0
    """Processors that all threads of the run's process take."""
    work: float = 1.0
    in_python: bool = False
    now: float = 0.0
    of_thread: float = 0.0
    of_process: float = 0.0
    waits: list[float] = attrs.field(factory=list)

    def wall(self) -> float:
        return self.now

    def thread(self) -> float:
        return self.of_thread

    def process(self) -> float:
        return self.of_process

    def done(self) -> bool:
        return self.work <= 1e-9

    def is_absent(self) -> bool:
        return not self.in_python

    def wait(self, timeout: float) -> bool:
        self.waits.append(timeout)
        spent = min(timeout, self.work)
        self.now += spent
        self.work -= spent
        return self.done()

    def interpret(self, seconds: float, left: float) -> None:
        """The run goes on, and leaves the job a part of a processor."""
        self.now += seconds
        self.of_thread += seconds * self.share
        self.of_process += seconds * max(self.taken, self.share)
        self.work -= seconds * left


@pytest.mark.parametrize("step", [0.0001, 0.002, 0.005])
@pytest.mark.parametrize(
    ("processors", "share", "taken", "left"),
    [
        (2, 1.0, 1.0, 1.0),  # nobody else
        (2, 2 / 3, 2 / 3, 2 / 3),  # one more process
        (2, 1 / 2, 1 / 2, 1 / 2),  # two more
        (1, 1 / 2, 1 / 2, 1 / 2),
        (2, 1.0, 2.0, 1 / 2),  # a BLAS with a thread for each processor
        (8, 1.0, 8.0, 7 / 8),
        (1, 1.0, 1.0, 0.0),  # the system is not fair
    ],
)
def test_a_compilation_takes_a_tenth_longer_at_most(
    step: float,
    processors: int,
    share: float,
    taken: float,
    left: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(interpreter_schedule, "processors", lambda: processors)
    machine = Machine(share, taken)
    run = InterpreterSchedule(machine, clocks=machine)
    while not machine.done():
        machine.interpret(step, left)
        run.go_on()
    assert machine.now <= 1.1 + step
    assert bool(machine.waits) == (left < 1)


def test_a_run_begins_when_the_job_needs_pythons_lock_no_more() -> None:
    machine = Machine(in_python=True)
    own = machine.wait

    def wait(timeout: float) -> bool:
        machine.in_python = len(machine.waits) < 5
        return own(timeout)

    object.__setattr__(machine, "wait", wait)
    InterpreterSchedule(machine, clocks=machine).go_on()
    assert [interpreter_schedule.LOOK] * 6 == machine.waits


def test_a_job_that_stays_in_python_stops_nobody_for_ever() -> None:
    machine = Machine(in_python=True, work=100.0)
    run = InterpreterSchedule(machine, clocks=machine)
    run.go_on()
    assert machine.now == pytest.approx(
        interpreter_schedule.ASIDE, abs=2 * interpreter_schedule.LOOK
    )
    before = len(machine.waits)
    machine.interpret(LOSS / 2, 1.0)
    run.go_on()
    assert before == len(machine.waits)


def test_nobody_waits_for_ever_before_what_cannot_be_left() -> None:
    machine = Machine(work=100.0)
    run = InterpreterSchedule(machine, clocks=machine)
    run.before_the_last(BRIEF - 1)
    assert [] == machine.waits
    for _ in range(3):
        run.before_the_last(BRIEF)
    assert [PATIENCE] == machine.waits
    assert 0.0 == run.patience


def test_a_thread_is_absent_while_it_waits() -> None:
    thread = threading.get_ident()
    assert not is_absent(thread)
    with absent():
        assert is_absent(thread)
    assert not is_absent(thread)
    assert not is_absent(None)


def test_a_job_is_absent_while_its_thread_waits() -> None:
    entered, leave = threading.Event(), threading.Event()

    def work() -> None:
        with absent():
            entered.set()
            leave.wait(20)

    job = in_background(work)
    assert entered.wait(20)
    assert job.is_absent() and not job.wait(0.001)
    leave.set()
    assert job.wait(20) and not job.is_absent()
