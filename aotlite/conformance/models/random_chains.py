"""Random chains of views and writes on one memory, as plain data, the same in every run.

A step names its array by a number modulo the number of arrays, and an impossible step is skipped.
So each part of a program is a program, and shrinking is simple.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any, TypeAlias

from aotlite.conformance.models.memory_model import NoView, Shape, View, dense
from aotlite.conformance.models.model_arrays import Step

Action: TypeAlias = tuple[int, Step]
"""The number of an array, and a step on it."""
Program: TypeAlias = tuple[Shape, tuple[Action, ...]]
"""The shape of the first array, and the actions."""

BASES: tuple[Shape, ...] = ((2,), (3,), (4,), (2, 2), (2, 3), (3, 2), (2, 2, 2), (1, 3), (6,))
PER_LENGTH = 100
LONGEST = 10
WRITES = ("add_", "mul_", "setitem", "copy_", "poke", "fill_")


def programs() -> Iterator[Program]:
    """Programs, shortest first, from two steps up."""
    for length in range(2, LONGEST + 1):
        for number in range(PER_LENGTH):
            yield draw(random.Random(1000 * length + number), length)


def draw(source: random.Random, length: int) -> Program:
    """One program: views of views, writes through any of them, few copies."""
    shape = source.choice(BASES)
    live = [dense([0] * math.prod(shape), shape)]
    actions: list[Action] = []
    while len(actions) < length:
        which = source.randrange(len(live))
        kind = source.random()
        if kind < 0.45:
            step, made = source.choice(list(possible_views(live[which])))
            live += made
        elif kind < 0.5:
            step = ("clone",)
            live.append(dense([0] * math.prod(live[which].shape), live[which].shape))
        else:
            step = (source.choice(WRITES), source.randrange(2 * len(live)))
        actions.append((which, step))
    return shape, tuple(actions)


def possible_views(view: View) -> Iterator[tuple[Step, list[View]]]:
    """Every possible view of a view, with small arguments."""
    for step in _steps(view.shape):
        try:
            made: Any = getattr(view, step[0])(*step[1:])
        except NoView:
            continue
        views = [made] if isinstance(made, View) else made
        if all(0 not in each.shape for each in views):
            yield step, views


def _steps(shape: Shape) -> Iterator[Step]:
    count = math.prod(shape)
    yield "view", (count,)
    yield "view", (count, 1)
    yield "reshape", (2, -(-count // 2))
    yield "unsqueeze", len(shape)
    yield ("diagonal",)
    for dim, size in enumerate(shape):
        if dim:
            yield "transpose", 0, dim
        yield "narrow", dim, 0, max(size - 1, 0)
        yield "narrow", dim, 1, size - 1
        yield "slice", dim, 0, size, 2
        yield "select", dim, size - 1
        yield "split", 1, dim
        yield "unfold", dim, 2, 1
        yield "squeeze", dim
        yield "expand", (*shape[:dim], 2, *shape[dim + 1 :])


def smaller(program: Program) -> Iterator[Program]:
    """Simpler programs: a step less, smaller numbers of arrays, a smaller base."""
    shape, actions = program
    for index in range(len(actions)):
        for shift in (1, 0):  # the step may have made an array, which later numbers count
            later = ((max(which - shift, 0), step) for which, step in actions[index + 1 :])
            yield shape, (*actions[:index], *later)
    for index, (which, step) in enumerate(actions):
        for lower in range(which):
            yield shape, (*actions[:index], (lower, step), *actions[index + 1 :])
    for base in BASES[: BASES.index(shape)]:
        yield base, actions
