"""Makes a program of `alias_data` smaller as long as it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tests.end_to_end.alias_data import Program, Step


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
    calls = program["calls"]
    if len(calls) > 1:
        yield from ({**program, "calls": calls[:i] + calls[i + 1 :]} for i in range(len(calls)))
    results = program["results"]
    for i in range(len(results)):
        yield {**program, "results": results[:i] + results[i + 1 :]}
    first = len(calls[0]["args"])
    for i in reversed(range(len(program["body"]))):
        rest = (program["body"], program["results"])
        body, kept = _without(rest[0], rest[1], i, first)
        yield {**program, "body": body, "results": kept}
    for number, call in enumerate(calls):
        for i in reversed(range(len(call["setup"]))):
            setup, args = _without(call["setup"], call["args"], i, 0)
            changed = {**call, "setup": setup, "args": args}
            yield {**program, "calls": [*calls[:number], changed, *calls[number + 1 :]]}
    for i in reversed(range(first)):
        yield from _without_argument(program, i)
    for number, call in enumerate(calls):
        for change in ({"write": None}, {"grad": True}):
            if call | change != call:
                yield {**program, "calls": [*calls[:number], call | change, *calls[number + 1 :]]}


def _without(
    steps: list[Step], ends: list[Any], place: int, first: int
) -> tuple[list[Step], list[Any]]:
    """The steps without one, whose value becomes what it was made of."""
    args = steps[place][1]
    instead = next((arg for arg in args if isinstance(arg, str) and arg[:1] == "$"), "$none")

    def renamed(value: Any) -> Any:
        return _renamed(value, first + place, instead)

    later = [[op, renamed(given), *more] for op, given, *more in steps[place + 1 :]]
    return [*steps[:place], *later], renamed(ends)


def _renamed(value: Any, dropped: int, instead: str) -> Any:
    if isinstance(value, list):
        return [_renamed(item, dropped, instead) for item in value]
    if not (isinstance(value, str) and value[:1] == "$" and value != "$none"):
        return value
    place, dot, part = value[1:].partition(".")
    if int(place) == dropped:
        return instead
    return f"${int(place) - (int(place) > dropped)}{dot}{part}"


def _without_argument(program: Program, place: int) -> Iterator[Program]:
    """The program without an argument that the body does not use."""
    body = [[op, _renamed(args, place, "$none"), *more] for op, args, *more in program["body"]]
    results = _renamed(program["results"], place, "$none")
    if "$none" not in str((body, results)):
        calls = [
            {**call, "args": call["args"][:place] + call["args"][place + 1 :]}
            for call in program["calls"]
        ]
        yield {"body": body, "results": results, "calls": calls}
