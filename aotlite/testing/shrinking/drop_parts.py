"""Smaller programs: without some calls, results, steps or arguments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import attrs

from aotlite.testing.programs.program import Program
from aotlite.testing.programs.steps import Call, Step, is_name

NOTHING = "$none"
"""The name of a dropped value; a program that uses it does not run."""

Steps = tuple[Step, ...]


def dropped_calls(program: Program) -> Iterator[Program]:
    """One call alone, then all but one."""
    calls = program.calls
    if len(calls) > 1:
        yield from (attrs.evolve(program, calls=(call,)) for call in reversed(calls))
        for i in range(len(calls)):
            yield attrs.evolve(program, calls=calls[:i] + calls[i + 1 :])


def fewer_results(program: Program) -> Iterator[Program]:
    """No result, one, all but one."""
    results = program.results
    if results:
        yield attrs.evolve(program, results=())
        yield from (attrs.evolve(program, results=(each,)) for each in results)
    for i in range(len(results)):
        yield attrs.evolve(program, results=results[:i] + results[i + 1 :])


def dropped_steps(program: Program) -> Iterator[Program]:
    """Without half of the steps, a quarter, ... one step: of the body, then of setups."""
    yield from _without_chunks(program, None)
    for number in range(len(program.calls)):
        yield from _without_chunks(program, number)


def pairs_of_steps(program: Program) -> Iterator[Program]:
    """Without two steps of any lists, which need not be neighbors."""
    lists: list[int | None] = [None, *range(len(program.calls))]
    places = [(which, i) for which in lists for i in range(len(steps_of(program, which)))]
    for (one, i), (other, j) in combinations(places, 2):
        if one != other or j > i + 1:
            for smaller in without_steps(program, other, [j]):
                yield from without_steps(smaller, one, [i])


def _without_chunks(program: Program, which: int | None) -> Iterator[Program]:
    count = size = len(steps_of(program, which))
    while size:
        for start in reversed(range(0, count, size)):
            yield from without_steps(program, which, range(start, min(start + size, count)))
        size //= 2


def steps_of(program: Program, which: int | None) -> Steps:
    """The steps of a call's setup, or of the body for None."""
    return program.body if which is None else program.calls[which].setup


def without_steps(program: Program, which: int | None, places: Sequence[int]) -> Iterator[Program]:
    """The program without some steps of a list; operands replace the values of dropped steps."""
    operands = [name for place in places for name in _operands(steps_of(program, which)[place])]
    most = max(1, len(operands)) if len(places) == 1 else 1
    for choice in range(most):
        smaller = program
        for place in reversed(places):
            smaller = _without(smaller, which, place, choice)
        yield smaller


def _operands(step: Step) -> list[str]:
    return [arg for arg in step.args if is_name(arg)]


def _without(program: Program, which: int | None, place: int, choice: int) -> Program:
    """The program without a step; an operand replaces its value."""
    steps = steps_of(program, which)
    names = _operands(steps[place])
    instead = names[min(choice, len(names) - 1)] if names else NOTHING
    number = place + (program.arity if which is None else 0)
    later = [with_args(step, number, instead) for step in steps[place + 1 :]]
    kept = (*steps[:place], *later)
    if which is None:
        return attrs.evolve(program, body=kept, results=renamed(program.results, number, instead))
    args = renamed(program.calls[which].args, number, instead)
    return with_call(program, which, attrs.evolve(program.calls[which], setup=kept, args=args))


def with_args(step: Step, dropped: int, instead: str) -> Step:
    return attrs.evolve(step, args=renamed(step.args, dropped, instead))


def with_call(program: Program, number: int, call: Call) -> Program:
    """The program with one of its calls replaced."""
    calls = program.calls
    return attrs.evolve(program, calls=(*calls[:number], call, *calls[number + 1 :]))


def renamed(value: Any, dropped: int, instead: str) -> object:
    """A name after value `dropped` is dropped: later numbers are lower, its own is `instead`."""
    if isinstance(value, tuple):
        return tuple(renamed(item, dropped, instead) for item in value)
    if not is_name(value) or value == NOTHING:
        return value
    place, dot, part = value[1:].partition(".")
    if int(place) == dropped:
        return instead
    return f"${int(place) - (int(place) > dropped)}{dot}{part}"


# ----------------------------------------------------------------------------------- the arguments
def fewer_arguments(program: Program) -> Iterator[Program]:
    """The program without an argument, which is not used or replaced by another one.

    The other one keeps its position, or takes that of the dropped one.
    """
    for place in reversed(range(program.arity)):
        yield _without_argument(program, place, NOTHING)
        for other in range(program.arity):
            if other != place:
                yield _without_argument(program, place, f"${other - (other > place)}")
                moved = [_moved(call, other, place) for call in program.calls]
                changed = attrs.evolve(program, calls=moved)
                yield _without_argument(changed, other, f"${place - (place > other)}")


def _moved(call: Call, source: int, place: int) -> Call:
    """A call that passes one argument in place of another one."""
    args = list(call.args)
    args[place] = args[source]
    return attrs.evolve(call, args=args)


def _without_argument(program: Program, place: int, instead: str) -> Program:
    body = [with_args(step, place, instead) for step in program.body]
    calls = [
        attrs.evolve(call, args=call.args[:place] + call.args[place + 1 :])
        for call in program.calls
    ]
    return Program(body, renamed(program.results, place, instead), calls)
