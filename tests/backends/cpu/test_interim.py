"""Who does not wait for the compiler: when runs before it is done begin, and when they are left."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.cpu import backend as cpu
from aotlite.backends.cpu.interpreter_schedule import InterpreterSchedule
from aotlite.backends.loops.interpreter import kernel_interpreter


class Unfinished:
    """A job that nobody does."""

    def done(self) -> bool:
        return False

    def is_absent(self) -> bool:
        return True

    def wait(self, timeout: float) -> bool:
        return self.done()


def do_jobs(monkeypatch: pytest.MonkeyPatch, start: Callable[[Callable[[], Any]], Any]) -> None:
    """Jobs are these, also where another test has left the library in the disk cache."""
    monkeypatch.setattr(cpu, "in_background", start)
    monkeypatch.setattr(cpu.CpuBackend, "_is_compiled", lambda self, text: False)


# -------------------------------------------------------------------------------- left when done
class Finished(Unfinished):
    """A job that is done after it was asked so often."""

    def __init__(self, make: Callable[[], Any], asks: int) -> None:
        self.made = make()
        self.asks = asks

    def done(self) -> bool:
        self.asks -= 1
        return self.asks < 0

    def exception(self) -> None:
        return None

    def result(self) -> Any:
        return self.made


@pytest.fixture
def operations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the interpreter does from now on."""
    found: list[str] = []
    own = kernel_interpreter.apply

    def counted(scalar: Any, operands: Any) -> Any:
        found.append(scalar.op)
        return own(scalar, operands)

    monkeypatch.setattr(kernel_interpreter, "apply", counted)
    return found


@pytest.mark.parametrize("asks", [0, 1, 2, 7, 20])
def test_the_first_call_goes_on_with_what_was_compiled_meanwhile(
    asks: int, operations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked before each operation on a block, so that no call takes longer than waiting."""
    monkeypatch.setattr(kernel_interpreter, "POINTS", 10)
    do_jobs(monkeypatch, lambda make: Finished(make, asks))
    x = al.arange(100).to(al.float32)
    compiled = al.compile(lambda x: (x * 2 + 1) * x, backend="cpu", wait=False)
    for _ in range(2):
        assert [(2 * k + 1) * k for k in range(100)] == compiled(x).tolist()
    assert len(operations) <= asks


def test_a_run_that_was_left_never_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument that is written, and read before, has its new value once."""
    for asks in range(0, 40, 3):
        do_jobs(monkeypatch, partial(Finished, asks=asks))
        x = al.ones(5)
        compiled = al.compile(lambda x: x.mul_(3).sum(), backend="cpu", wait=False)
        assert 15.0 == compiled(x).item()
        assert [3.0] * 5 == x.tolist()


# ----------------------------------------------------------------------- not slower than waiting
class Slow(Unfinished):
    """A job that is done by who waits for it alone; in Python until then, or in a process."""

    def __init__(self, make: Callable[[], Any], absent: bool = False) -> None:
        self.make, self.absent = make, absent
        self.made: Any = None

    def done(self) -> bool:
        return self.made is not None

    def is_absent(self) -> bool:
        return self.absent

    def wait(self, timeout: float) -> bool:
        self.made = self.make()
        return True

    def exception(self) -> None:
        return None

    def result(self) -> Any:
        return self.made


def test_nothing_is_interpreted_while_the_job_is_in_python(
    operations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    do_jobs(monkeypatch, Slow)
    compiled = al.compile(lambda x: x.sin() * 2, backend="cpu", wait=False)
    assert [0.0, 0.0] == compiled(al.zeros(2)).tolist()
    assert [] == operations


def test_a_text_is_printed_before_anything_is_interpreted(
    operations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = cpu.text_of
    when: list[int] = []

    def printed(program: Any) -> Any:
        when.append(len(operations))
        return own(program)

    monkeypatch.setattr(cpu, "text_of", printed)
    do_jobs(monkeypatch, lambda make: Unfinished())
    compiled = al.compile(lambda x: x.sin() * 3, backend="cpu", wait=False)
    compiled(al.zeros(2))
    assert [0] == when and operations


def test_nothing_is_interpreted_where_the_library_is_there(
    operations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although nothing is remembered of the graph, and no thread is given anything."""
    monkeypatch.setattr(cpu, "remembered", lambda key: None)
    monkeypatch.setattr(cpu, "in_background", lambda make: pytest.fail("a job was made"))
    for wait in (True, False):
        compiled = al.compile(lambda x: x.sin() * 4, backend="cpu", wait=wait)
        assert [0.0, 0.0] == compiled(al.zeros(2)).tolist()
    assert [] == operations


WRITING: dict[str, Callable[[Any], Any]] = {
    "an argument": lambda x: x.mul_(2).sin_(),
    "an effect": lambda x: (x * 2, al.effects.callback(lambda y: None, x), x.sin())[0],
    "an extern": lambda x: x.sort().values * 2,
}


@pytest.mark.parametrize("name", WRITING)
@pytest.mark.parametrize(("count", "is_large"), [(100, False), (300_000, True)])
def test_a_large_run_waits_before_what_it_may_not_be_left_in(
    name: str, count: int, is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[Slow] = []

    def started(make: Callable[[], Any]) -> Any:
        jobs.append(Slow(make, absent=True))
        return jobs[-1]

    do_jobs(monkeypatch, started)
    monkeypatch.setattr(InterpreterSchedule, "go_on", lambda self: None)
    compiled = al.compile(WRITING[name], backend="cpu", wait=False)
    x, mine = al.linspace(1.0, 0.0, count), al.linspace(1.0, 0.0, count)
    found, expected = compiled(mine), WRITING[name](x)
    np.testing.assert_allclose(expected.numpy(), found.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(x.numpy(), mine.numpy(), rtol=1e-5, atol=1e-6)
    assert [is_large] == [job.done() for job in jobs[:1]]
