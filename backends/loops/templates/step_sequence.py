"""Repetitions in the sequence of a program's steps, for those who read it.

    k0 k1 k2 k3 k1 k2 k3 k1 k2 k3 k4     steps 1..3 repeat 3 times

Steps are alike if they have one template, or are one product or op, on other buffers. Nothing that
is compiled depends on it. Spec: `specs/equal_regions.md`, REG-9.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import attrs

from aotlite.backends.loops.program import (
    Extern,
    Gemm,
    Kernel,
    LoopProgram,
    Placed,
    Step,
    ValueCheck,
)
from aotlite.backends.loops.templates.shared_templates import known_instance

LEAST_TIMES, LEAST_STEPS = 3, 6
"""The fewest times, and steps in all, of a repetition that is shown."""
FARTHEST = 8
"""Of equal steps, so many later ones are tried as the beginning of the next time."""


@attrs.frozen
class Repetition:
    """Steps `first` to `first + period - 1`, so many times one after the other."""

    first: int
    period: int
    times: int

    def __str__(self) -> str:
        last, end = self.first + self.period - 1, self.first + self.period * self.times - 1
        one = (
            f"step {self.first} repeats"
            if self.period == 1
            else f"steps {self.first}..{last} repeat"
        )
        return f"{one} {self.times} times on other buffers, up to step {end}"


def repetition(program: LoopProgram) -> Repetition | None:
    """Returns the repetition that covers most steps, with the shortest period; None if there is
    none of `LEAST_TIMES` and `LEAST_STEPS`."""
    numbers: dict[Hashable, int] = {}
    sequence = [numbers.setdefault(_key(step), len(numbers)) for step in program.steps]
    return repeated(sequence)


def repeated(sequence: Sequence[int]) -> Repetition | None:
    """Returns the same for a sequence of numbers.

    >>> print(repeated([0, 1, 2, 3, 1, 2, 3, 1, 2, 3, 4]))
    steps 1..3 repeat 3 times on other buffers, up to step 9
    """
    best: Repetition | None = None
    for period in sorted(_distances(sequence)):
        first, length = _longest(sequence, period)
        times = length // period + 1
        most = 0 if best is None else best.period * best.times
        if times >= LEAST_TIMES and period * times >= max(most + 1, LEAST_STEPS):
            best = Repetition(first, period, times)
    return best


def _distances(sequence: Sequence[int]) -> set[int]:
    places: dict[int, list[int]] = {}
    found: set[int] = set()
    for place, number in enumerate(sequence):
        before = places.setdefault(number, [])
        found.update([place - each for each in before[-FARTHEST:]])
        before.append(place)
    return found


def _longest(sequence: Sequence[int], period: int) -> tuple[int, int]:
    """Returns where the longest run of steps begins that are equal to those a period later, and
    its length."""
    first = best = run = 0
    for place in range(len(sequence) - period):
        run = run + 1 if sequence[place] == sequence[place + period] else 0
        if run > best:
            first, best = place - run + 1, run
    return first, best


def _key(step: Step) -> Hashable:
    """Returns all of a step but its name and its buffers."""
    if type(step) is Kernel:
        return known_instance(step).template
    if type(step) is Gemm:
        windows = [(w.start, w.batch, w.row, w.column) for w in (step.a, step.b, step.c)]
        return step.batch, step.m, step.n, step.k, *windows
    if type(step) is Extern:
        return step.op, step.meta, _without_buffers(step.args)
    return ValueCheck


def _without_buffers(value: object) -> Hashable:
    if type(value) is tuple:
        return tuple([_without_buffers(each) for each in value])
    return (value.start, value.meta) if type(value) is Placed else (type(value), repr(value))
