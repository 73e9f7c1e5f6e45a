"""Makes a program smaller as long as it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs

from aotlite.testing.programs import Call, Program, Step, is_name


def shrunk(program: Program, fails: Callable[[Program], bool]) -> Program:
    """A program of fewer calls, results and steps that still fails."""
    while True:
        for smaller in _smaller(program):
            if fails(smaller):
                program = smaller
                break
        else:
            return program


def _smaller(program: Program) -> Iterator[Program]:
    """Programs that lack one thing, the largest things first."""
    calls, results = program.calls, program.results
    if len(calls) > 1:
        for i in range(len(calls)):
            yield attrs.evolve(program, calls=calls[:i] + calls[i + 1 :])
    for i in range(len(results)):
        yield attrs.evolve(program, results=results[:i] + results[i + 1 :])
    for i in reversed(range(len(program.body))):
        body, kept = _without(program.body, results, i, program.arity)
        yield attrs.evolve(program, body=body, results=kept)
    for number, call in enumerate(calls):
        for i in reversed(range(len(call.setup))):
            setup, args = _without(call.setup, call.args, i, 0)
            yield _with_call(program, number, attrs.evolve(call, setup=setup, args=args))
    for i in reversed(range(program.arity)):
        yield from _without_argument(program, i)
    for number, call in enumerate(calls):
        for changed in (attrs.evolve(call, write=None), attrs.evolve(call, grad=True)):
            if changed != call:
                yield _with_call(program, number, changed)


def _with_call(program: Program, number: int, call: Call) -> Program:
    calls = program.calls
    return attrs.evolve(program, calls=(*calls[:number], call, *calls[number + 1 :]))


def _without(
    steps: tuple[Step, ...], ends: tuple[Any, ...], place: int, first: int
) -> tuple[tuple[Step, ...], tuple[Any, ...]]:
    """The steps without one, whose value becomes what it was made of."""
    instead = next(filter(is_name, steps[place].args), NOTHING)

    def renamed(value: Any) -> Any:
        return _renamed(value, first + place, instead)

    later = [attrs.evolve(step, args=renamed(step.args)) for step in steps[place + 1 :]]
    return (*steps[:place], *later), renamed(ends)


NOTHING = "$none"
"""The name of a value that there is no more: a program that needs it does not run."""


def _renamed(value: Any, dropped: int, instead: str) -> Any:
    if isinstance(value, tuple):
        return tuple(_renamed(item, dropped, instead) for item in value)
    if not is_name(value) or value == NOTHING:
        return value
    place, dot, part = value[1:].partition(".")
    if int(place) == dropped:
        return instead
    return f"${int(place) - (int(place) > dropped)}{dot}{part}"


def _without_argument(program: Program, place: int) -> Iterator[Program]:
    """The program without an argument that the body does not use."""
    body = [attrs.evolve(step, args=_renamed(step.args, place, NOTHING)) for step in program.body]
    results = _renamed(program.results, place, NOTHING)
    if NOTHING not in str((body, results)):
        calls = [
            attrs.evolve(call, args=call.args[:place] + call.args[place + 1 :])
            for call in program.calls
        ]
        yield Program(body, results, calls)
