"""Random views and writes as plain data, from one step up: cases of the rules of gradients."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any, TypeAlias

from aotlite.conformance.adapter import Adapter, Array
from aotlite.conformance.models.memory_model import View, dense

Program: TypeAlias = tuple[int, tuple[tuple[Any, ...], ...], int]
"""The size of the leaves, steps (kind, array, method, operand), and the number of the result."""

PER_LENGTH = 40
LONGEST = 6


def drawn() -> Iterator[Program]:
    """Programs, those of fewest steps first, the same in every run."""
    for length in range(1, LONGEST + 1):
        for seed in range(PER_LENGTH):
            yield program(random.Random(1000 * length + seed), length)


def few() -> Iterator[Program]:
    """Every fourth program of `drawn`, for rules that take a second a case."""
    return itertools.islice(drawn(), 0, None, 4)


def enact(on: Adapter, program: Program, base: Array, w: Array) -> Array:
    """Runs a program on a base of its size, with a second array `w` to read."""
    _, steps, result = program
    live = [base]
    for kind, source, name, operand in steps:
        act = getattr(on, name)
        match kind:
            case "view":
                live.append(act(live[source], *operand))
            case "write":
                act(live[source], operand)
            case "leaf":
                act(live[source], on.select(w, *operand))
            case "copy":
                act(live[source], on.clone(live[operand]))
    return live[result]


def smaller(program: Program) -> Iterator[Program]:
    """The programs with one step less, where no other step needs the dropped one."""
    size, steps, result = program
    for dropped, step in enumerate(steps):
        views = [i for i, each in enumerate(steps) if each[0] == "view"]
        gone = 1 + views.index(dropped) if step[0] == "view" else len(views) + 1
        kept = [each for i, each in enumerate(steps) if i != dropped]
        if result != gone and all(gone not in _used(each) for each in kept):
            moved = tuple(_moved(each, gone) for each in kept)
            yield size, moved, result - (result > gone)


def _used(step: tuple[Any, ...]) -> tuple[int, ...]:
    """The arrays that a step reads or writes, by their numbers."""
    return (step[1], step[3]) if step[0] == "copy" else (step[1],)


def _moved(step: tuple[Any, ...], gone: int) -> tuple[object, ...]:
    """The step with its array numbers as they are after the array `gone` is dropped."""
    kind, source, name, operand = step
    operand = operand - (operand > gone) if kind == "copy" else operand
    return kind, source - (source > gone), name, operand


def program(draw: random.Random, length: int) -> Program:
    """One program. It writes no array that overlaps itself, so that every step is legal."""
    size = draw.randint(1, min(length + 1, 4))
    live = [dense(list(range(size)), (size,))]
    steps: list[tuple[Any, ...]] = []
    for _ in range(length):
        source = draw.randrange(len(live))
        if draw.random() < 0.5 and not live[source].overlaps_itself():
            steps.append(_write(draw, live, source, size))
        else:
            name, arguments, view = draw.choice(list(_views(live[source])))
            steps.append(("view", source, name, arguments))
            live.append(view)
    return size, tuple(steps), draw.randrange(len(live))


def _write(draw: random.Random, live: list[View], source: int, size: int) -> tuple[object, ...]:
    """A write by a number, by an element of the second leaf, or by a copy of a live array."""
    match draw.choice(("number", "leaf", "copy")):
        case "number":
            name = draw.choice(("mul_", "add_", "fill_"))
            return "write", source, name, float(draw.randint(2, 5))
        case "leaf":
            name = draw.choice(("mul_", "add_", "copy_"))
            return "leaf", source, name, (0, draw.randrange(size))
    others = [i for i, each in enumerate(live) if each.shape == live[source].shape]
    return "copy", source, draw.choice(("add_", "copy_")), draw.choice(others)


def _views(a: View) -> Iterator[tuple[str, tuple[object, ...], View]]:
    """Every possible view op on an array: name, arguments and view."""
    for name, arguments in _candidates(a.shape):
        yield name, arguments, getattr(a, name)(*arguments)


def _candidates(shape: tuple[int, ...]) -> Iterator[tuple[str, tuple[object, ...]]]:
    yield "unsqueeze", (0,)
    yield "expand", ((2, *shape),)
    for dim, size in enumerate(shape):
        yield "select", (dim, size - 1)
        yield "narrow", (dim, size // 2, size - size // 2)
        yield "slice", (dim, 0, size, 2)
        if size > 1:
            yield "unfold", (dim, 2, 1)
    if len(shape) > 1:
        yield "transpose", (0, 1)
        yield "diagonal", ()
