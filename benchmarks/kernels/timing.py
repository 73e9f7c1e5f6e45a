"""Timing of actions in turn, from microseconds to seconds for each call."""

from __future__ import annotations

import resource
import time
from collections.abc import Mapping

import attrs

from benchmarks.kernels.functions import Action

LOOP_SECONDS = 2e-3
"""A loop of several calls takes about this long, so that reading the clock does not count."""
TURN_SECONDS = 2e-2
"""The seconds of an action's turn, of at least three loops."""
LEAST_LOOPS = 3
SLOW, SLOW_TURNS = 0.5, 3
"""Actions of more than `SLOW` seconds for each call have `SLOW_TURNS` turns of one loop each."""


@attrs.frozen
class Timed:
    """The fastest loop of all turns, and the page faults of the action."""

    seconds: float
    """A call."""
    faults: float
    """Pages a call that the system handed out anew, in the turn with the fewest."""


@attrs.frozen
class _Plan:
    calls: int
    loops: int
    turns: int
    warms_up: bool = True


def alternate(actions: Mapping[str, Action], rounds: int) -> dict[str, Timed]:
    """The times of all actions; each has one turn in every round, and one call before its loops."""
    plans = {name: _plan(action, rounds) for name, action in actions.items()}
    seconds: dict[str, float] = dict.fromkeys(actions, float("inf"))
    faults = dict(seconds)
    for turn in range(rounds):
        for name, action in actions.items():
            if turn < plans[name].turns:
                taken, pages = _turn(action, plans[name])
                seconds[name] = min(seconds[name], taken)
                faults[name] = min(faults[name], pages)
    return {name: Timed(seconds[name], faults[name]) for name in actions}


def _plan(action: Action, rounds: int) -> _Plan:
    """The plan of an action, by three uncounted calls, the first of which may compile."""
    call = min(_loop(action, 1) for _ in range(3))
    calls = max(1, int(LOOP_SECONDS / call))
    if call > SLOW:
        return _Plan(1, 1, min(rounds, SLOW_TURNS), warms_up=False)
    return _Plan(calls, max(LEAST_LOOPS, int(TURN_SECONDS / (call * calls))), rounds)


def _turn(action: Action, plan: _Plan) -> tuple[float, float]:
    """Seconds a call of the fastest loop, and pages a call of all of them."""
    if plan.warms_up:
        action()
    before = _faults()
    seconds = min(_loop(action, plan.calls) for _ in range(plan.loops))
    return seconds, (_faults() - before) / (plan.loops * plan.calls)


def _loop(action: Action, calls: int) -> float:
    times = range(calls)
    start = time.perf_counter()
    for _ in times:
        action()
    return (time.perf_counter() - start) / calls


def _faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
