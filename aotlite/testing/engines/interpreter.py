"""Runs steps on an engine: the interpreter of programs.

Place: above `Engine` and `programs.steps`, below everything that calls a program's body.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from aotlite.testing.engines.base import Engine
from aotlite.testing.programs.steps import Call, ProgramData, Step, resolved, returned

Watch = Callable[[Step, list[Any], Any], None]
"""A function that is called with each step, its arguments and its result."""


def run_steps(
    library: Engine, steps: Sequence[Step], values: list[object], watch: Watch | None = None
) -> None:
    """Runs steps and appends the value of each; calls `watch(step, args, result)` after each."""
    for step in steps:
        args = [resolved(value, values) for value in step.args]
        with library.no_grad() if step.no_grad else nullcontext():
            result = library.call(step.op, args)
        values.append(result)
        if watch is not None:
            watch(step, args, result)


class _Body:
    """The data of a body, which a capture does not search: programs read arguments alone."""

    def __init__(self, library: Engine, program: ProgramData, watch: Watch | None) -> None:
        self.library = library
        self.program = program
        self.watch = watch

    def run(self, args: tuple[Any, ...]) -> list[Any]:
        values = list(args)
        run_steps(self.library, self.program.body, values, self.watch)
        return returned(self.program, values)


def body_of(
    library: Engine, program: ProgramData, watch: Watch | None = None
) -> Callable[..., list[Any]]:
    """The program's function."""
    whole = _Body(library, program, watch)

    def body(*args: object) -> list[Any]:
        return whole.run(args)

    return body


def setup_of(library: Engine, call: Call) -> tuple[list[Any], list[Any]]:
    """Returns all values of a call's setup, and the arguments."""
    values: list[Any] = []
    run_steps(library, call.setup, values)
    return values, [resolved(value, values) for value in call.args]
