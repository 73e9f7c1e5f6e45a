"""Runs mutants in parallel, each in a process with a time limit."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import attrs

from tests.mutation.child import Verdict, planned, preload_all, start
from tests.mutation.reach import Reach, in_child
from tests.mutation.sites import Mutant
from tests.mutation.swapped import may_be_swapped


@attrs.frozen
class Plan:
    """The settings of a run."""

    reach: Reach
    seed: int = 0
    budget: float = 20.0
    """Seconds of processor time for a mutant that survives."""
    jobs: int = 1
    swaps: bool = True
    """Whether code is swapped if possible; else each mutant is imported."""
    patience: float = 40.0
    """The factor of the budget that a process may take by the clock, as the machine is shared."""


@attrs.frozen
class _Running:
    mutant: Mutant | None
    cases: list[str]
    out: Path
    end: float


def run_all(mutants: list[Mutant], plan: Plan) -> Iterator[tuple[Mutant, Verdict]]:
    """Yields each mutant with its verdict when it is found.

    First those that have to be imported, in a process without aotlite; then those whose function's
    code is swapped.
    """
    ran = in_child(preload_all) if plan.swaps else None
    if plan.swaps and ran is None:
        raise ValueError("the properties cannot be imported")
    swapped = [m for m in mutants if ran is not None and may_be_swapped(m, ran)]
    yield from _run([mutant for mutant in mutants if mutant not in swapped], plan)
    if swapped:
        preload_all()
        yield from _run(swapped, plan)


def _run(mutants: list[Mutant], plan: Plan) -> Iterator[tuple[Mutant, Verdict]]:
    todo = list(reversed(mutants))
    running: dict[int, _Running] = {}
    with tempfile.TemporaryDirectory() as folder:
        while todo or running:
            while todo and len(running) < plan.jobs:
                process, each = _begin(todo.pop(), plan, Path(folder))
                running[process] = each
            for process in list(running):
                verdict = _ended(process, running[process])
                if verdict is not None:
                    mutant = running.pop(process).mutant
                    assert mutant is not None
                    yield mutant, _confirmed(verdict, plan)
            time.sleep(0.02)


def baseline(plan: Plan, cases: list[str]) -> Verdict:
    """The verdict about the original code by some cases, which it must survive."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "baseline"
        budget = 3 * plan.budget
        process = start(None, cases, plan.reach.seconds, budget, out)
        end = time.monotonic() + plan.patience * budget
        running = _Running(None, cases, out, end)
        while True:
            verdict = _ended(process, running)
            if verdict is not None:
                return verdict
            time.sleep(0.05)


def _confirmed(verdict: Verdict, plan: Plan) -> Verdict:
    """The verdict; of a case that was not recorded, whose property is false anyway, none."""
    if verdict.kind != "caught" or verdict.by in plan.reach.seconds:
        return verdict
    as_it_is = baseline(plan, [verdict.by])
    if not as_it_is.is_caught:
        return verdict
    text = f"the code as it is fails, too: {as_it_is.by}: {as_it_is.text}"
    return attrs.evolve(verdict, kind="survived", text=text)


def _begin(mutant: Mutant, plan: Plan, folder: Path) -> tuple[int, _Running]:
    cases = planned(plan.reach, mutant, plan.seed, plan.budget)
    out = folder / str(abs(hash(mutant.key)))
    process = start(mutant, cases, plan.reach.seconds, plan.budget, out)
    return process, _Running(mutant, cases, out, time.monotonic() + plan.patience * plan.budget)


def _ended(process: int, running: _Running) -> Verdict | None:
    """The verdict of a process that has ended, or that is ended now; None while it runs.

    A hang is a limit of processor time, which the process sets itself. A process over the limit by
    the clock has no verdict, as the machine is shared.
    """
    done, status = os.waitpid(process, os.WNOHANG)
    count = len(running.cases)
    if not done:
        if time.monotonic() < running.end:
            return None
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        return Verdict("survived", text="ended by the clock: run it again", of=count)
    if running.out.exists() and status == 0:
        return _read(running.out)
    ended = os.waitstatus_to_exitcode(status)
    kind = "hang" if -ended in (signal.SIGXCPU, signal.SIGPROF) else "crash"
    return Verdict(kind, text=f"its process ended with {ended}", of=count)


def _read(path: Path) -> Verdict:
    return Verdict(**json.loads(path.read_text()))
