"""Smaller programs: with smaller shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import attrs

from aotlite.testing.programs.program import Program
from aotlite.testing.programs.steps import Step
from aotlite.testing.programs.vocabulary import SHAPES

Change = Callable[[Step], Step]


def smaller_shapes(program: Program) -> Iterator[Program]:
    """With one size smaller everywhere, one dimension less everywhere, then in one step."""
    sizes = sorted({n for step in _all(program) for n in _sizes(step) if n > 1}, reverse=True)
    for size in sizes:
        for smaller in (1, 2, size - 1):
            yield _changed(program, partial(_replaced, size=size, smaller=smaller))
            yield _changed(program, partial(_lowered, above=smaller, by=size - smaller))
    for dim in (0, -1, 1):
        yield _changed(program, partial(_without_dim, dim=dim))
    for number, call in enumerate(program.calls):
        for place, step in enumerate(call.setup):
            for smaller_step in _smaller_makes(step):
                setup = (*call.setup[:place], smaller_step, *call.setup[place + 1 :])
                calls = list(program.calls)
                calls[number] = attrs.evolve(call, setup=setup)
                yield attrs.evolve(program, calls=calls)


def _all(program: Program) -> Iterator[Step]:
    yield from program.body
    for call in program.calls:
        yield from call.setup


def _sizes(step: Step) -> tuple[int, ...]:
    return step.args[2:] if step.op == "narrow" else _shape(step)


def _shape(step: Step) -> tuple[int, ...]:
    place = SHAPES.get(step.op)
    found = step.args[place] if place is not None and place < len(step.args) else ()
    return found if isinstance(found, tuple) else ()


def _with_shape(step: Step, shape: tuple[int, ...]) -> Step:
    place = SHAPES[step.op]
    return attrs.evolve(step, args=(*step.args[:place], shape, *step.args[place + 1 :]))


def _changed(program: Program, change: Change) -> Program:
    calls = [attrs.evolve(call, setup=map_steps(call.setup, change)) for call in program.calls]
    return attrs.evolve(program, body=map_steps(program.body, change), calls=calls)


def map_steps(steps: tuple[Step, ...], change: Change) -> list[Step]:
    return [change(step) for step in steps]


def _replaced(step: Step, size: int, smaller: int) -> Step:
    """A step with another number for a size, in shapes and lengths."""
    if step.op in ("narrow", "split", "split_with_sizes", "resize_"):
        return attrs.evolve(step, args=_numbers_replaced(step.args, size, smaller))
    shape = _shape(step)
    if size not in shape:
        return step
    return _with_shape(step, tuple(smaller if n == size else n for n in shape))


def _numbers_replaced(value: object, size: int, smaller: int) -> object:
    if isinstance(value, tuple):
        return tuple(_numbers_replaced(item, size, smaller) for item in value)
    return smaller if type(value) is int and value == size else value


def _lowered(step: Step, above: int, by: int) -> Step:
    """A step with all sizes and starts above a number lowered, so that windows stay in order."""
    if step.op == "narrow":
        return attrs.evolve(step, args=(*step.args[:2], *_less(step.args[2:], above, by)))
    shape = _shape(step)
    return _with_shape(step, _less(shape, above, by)) if shape else step


def _less(numbers: tuple[int, ...], above: int, by: int) -> tuple[int, ...]:
    return tuple([max(n - by, 0) if n > above else n for n in numbers])


def _without_dim(step: Step, dim: int) -> Step:
    shape = list(_shape(step))
    if step.op in SHAPES and -len(shape) <= dim < len(shape):
        del shape[dim]
        return _with_shape(step, tuple(shape))
    return step


def _smaller_makes(step: Step) -> Iterator[Step]:
    """A `make` with one dimension less, or one smaller dimension."""
    if step.op != "make":
        return
    shape = step.args[1]
    for dim, size in enumerate(shape):
        yield _with_shape(step, shape[:dim] + shape[dim + 1 :])
        for smaller in (1, 2, size - 1):
            if smaller < size:
                yield _with_shape(step, (*shape[:dim], smaller, *shape[dim + 1 :]))
