"""Timing of work on a GPU, by events of its stream in alternating rounds; and without a GPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import attrs
import numpy as np

Action = Callable[[int], Any]
"""A function that starts work on the inputs of a number, and returns before its end."""
ROUND = 0.02
"""The approximate seconds of a round."""
MOST_CALLS = 400
"""The most calls of a round, as the host waits after a thousand pending launches."""

SPIN = r"""
extern "C" __global__ void spin(long long nanoseconds)
{
    long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - start < nanoseconds);
}
"""


class Spin:
    """Work of one thread that takes a given time."""

    def __init__(self, cupy: Any) -> None:
        self.kernel = cupy.RawKernel(SPIN, "spin", backend="nvrtc")
        self(0.0)  # compiled and loaded

    def __call__(self, seconds: float) -> None:
        self.kernel((1,), (1,), (np.int64(1e9 * seconds),))


class EventClock:
    """Time between events of the current stream.

    With `ahead` the device is busy until the host has launched all calls, so that the work of the
    device is measured without pauses.
    """

    name = "events"

    def __init__(self, cupy: Any, *, ahead: bool = False) -> None:
        self.cupy, self.ahead = cupy, ahead

    @cached_property
    def spin(self) -> Spin:
        return Spin(self.cupy)

    def seconds(self, action: Action, calls: int) -> float:
        """The seconds of one call, in a row of `calls`."""
        start, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()
        self.cupy.cuda.runtime.deviceSynchronize()
        if self.ahead:
            self.spin(1.5 * ROUND)
        start.record()
        for call in range(calls):
            action(call)
        end.record()
        end.synchronize()
        return float(self.cupy.cuda.get_elapsed_time(start, end)) / 1e3 / calls


class HostClock:
    """Time of the host, which waits for the work: for JAX's streams, and without a GPU."""

    name = "host"

    def __init__(self, wait: Callable[[Any], Any] = lambda result: result) -> None:
        self.wait = wait

    def seconds(self, action: Action, calls: int) -> float:
        """The seconds of one call, in a row of `calls`."""
        start = time.perf_counter()
        for call in range(calls):
            result = action(call)
        self.wait(result)
        return (time.perf_counter() - start) / calls


@attrs.frozen
class Timed:
    """An action and the clock for it."""

    action: Action
    clock: Any


def medians(actions: Mapping[str, Timed], seconds: float) -> dict[str, float]:
    """The seconds of a call of each, as the median of alternating rounds, in about `seconds`.

    Each action is called three times before, so that one that fails raises early.
    """
    calls = {}
    for name, timed in actions.items():
        for warm in range(3):
            timed.action(warm)
        once = timed.clock.seconds(timed.action, 2)
        calls[name] = max(2, min(MOST_CALLS, int(ROUND / max(once, 1e-6))))
    found: dict[str, list[float]] = {name: [] for name in actions}
    end = time.perf_counter() + seconds
    for count in range(25):
        if count >= 3 and time.perf_counter() > end:
            break
        for name, timed in actions.items():
            found[name].append(timed.clock.seconds(timed.action, calls[name]))
    return {name: statistics.median(times) for name, times in found.items()}
