"""Oracles: the two sides on which a program runs, and the differences allowed between them.

`Compiled` compares compiled functions of a library with its eager ones;
`oracles.libraries.Across` compares two libraries, both eager. A judge runs all calls of a program
on both sides and compares observations (GEN-11). If two runs of one side differ, the program is
nondeterministic.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import attrs

from aotlite.ir.errors import IndexOutOfRangeError
from aotlite.testing.compiled import REFUSED, compile_by_reference
from aotlite.testing.coverage.cells import Watcher
from aotlite.testing.engines import Engine
from aotlite.testing.engines.interpreter import body_of
from aotlite.testing.fuzzing.outcomes import Outcome
from aotlite.testing.observe.differences import differences
from aotlite.testing.observe.observation import Observation
from aotlite.testing.observe.observe_call import observe_call
from aotlite.testing.programs.program import Program

Options = dict[str, Any]
OF_VALUES = (IndexOutOfRangeError,)
"""Errors that depend on values; a capture, which has no values, may raise another error first."""


@attrs.frozen
class Sides:
    """The observations of one call on both sides, and the cells that it hit."""

    mine: Observation
    its: Observation
    cells: list[int]


Player = Callable[[int], Sides]
"""A function that runs the call with a number."""


@attrs.frozen
class Verdict:
    """The differences of a call, and the rule that allows them."""

    found: list[str] = attrs.field(factory=list)
    reason: str | None = None


class Judge(ABC):
    """Decides the outcome of programs."""

    names: tuple[str, str]
    """The names of the two sides."""

    @abstractmethod
    def player(self, program: Program, options: Options) -> Player:
        """Returns a function that runs the calls of a program in order; each has new functions."""

    @abstractmethod
    def verdict(self, program: Program, number: int, sides: Sides) -> Verdict:
        """Returns the differences of a call, and the rule that allows them."""

    def left_out(self, program: Program) -> str | None:
        """Returns the reason why a program is left out; None if it runs."""
        del program
        return None

    def outcome(self, program: Program, options: Options) -> Outcome:
        """Runs the calls until one differs; returns the outcome."""
        result = Outcome()
        reason = self.left_out(program)
        if reason is not None:
            result.refused.append(reason)
            return result
        result.steps = len(program.body)
        play = self.player(program, options)
        for number in range(len(program.calls)):
            sides = play(number)
            result.calls += 1
            result.raised += sides.its.error is not None
            verdict = self.verdict(program, number, sides)
            if verdict.reason is not None:
                result.refused.append(verdict.reason)
                continue
            result.found += [f"call {number}: {each}" for each in verdict.found]
            if result.found:
                break
            result.cells += sides.cells
        return result

    def unsteady(self, program: Program, options: Options, rounds: int) -> list[str]:
        """Runs the program `rounds` times more, twice each; returns the differences of one side."""
        if self.left_out(program) is not None:
            return []
        for _ in range(rounds):
            once, again = self.player(program, options), self.player(program, options)
            for number in range(len(program.calls)):
                found = self._unlike(once(number), again(number))
                if found:
                    return [f"call {number}: {line}" for line in found]
        return []

    def _unlike(self, once: Sides, again: Sides) -> list[str]:
        # The second side first: if eager is nondeterministic, so is the compiled side.
        for name, one, other in (
            (self.names[1], once.its, again.its),
            (self.names[0], once.mine, again.mine),
        ):
            found = _changes(self.plain(one), self.plain(other))
            if found:
                return [f"nondeterministic: {name} gives {_in_turn(line)}" for line in found[:3]]
        return []

    def plain(self, world: Observation) -> Observation:
        """Returns the observation without values that may differ from run to run."""
        return world


def _changes(once: Observation, again: Observation) -> list[str]:
    """Returns the differences between two runs of one side; a run may write inputs and raise."""
    if once.error is not None and type(once.error) is type(again.error):
        return []
    again = attrs.evolve(again, untouched=True)
    return differences(attrs.evolve(once, untouched=True), again)


def _in_turn(line: str) -> str:
    return re.sub(r",? eager ", ", then ", line)


def eager_call(program: Program, number: int, library: Engine) -> tuple[Observation, list[int]]:
    """Returns the observation of an eager call, and the cells that it hit."""
    grad = program.calls[number].grad
    seen: list[int] = []

    def body(*args: object) -> list[Any]:
        watcher = Watcher(library, list(args), grad=grad)
        results = body_of(library, program, watcher)(*args)
        seen.extend(watcher.cells(results))
        return results

    return observe_call(library, program, number, body), seen


# ------------------------------------------------------------------------------ compiled and eager
@attrs.frozen
class Compiled(Judge):
    """Compares compiled functions of a library with its eager ones."""

    engine: Engine
    compile: Callable[..., Any] = compile_by_reference
    refusals: tuple[type[Exception], ...] = REFUSED
    names: tuple[str, str] = ("compiled", "eager")

    def player(self, program: Program, options: Options) -> Player:
        compiled = self._compiled(program, options)

        def play(number: int) -> Sides:
            its, cells = eager_call(program, number, self.engine)
            return Sides(observe_call(self.engine, program, number, compiled), its, cells)

        return play

    def _compiled(self, program: Program, options: Options) -> Callable[..., Any]:
        """Returns the compiled body; if compilation raises, a function that raises this error."""
        try:
            compiled: Callable[..., Any] = self.compile(body_of(self.engine, program), **options)
        except Exception as error:
            compiled = _raiser(error)
        return compiled

    def verdict(self, program: Program, number: int, sides: Sides) -> Verdict:
        del program, number
        mine, its = sides.mine, sides.its
        other = type(mine.error) is not type(its.error)
        if other and mine.untouched and isinstance(mine.error, self.refusals):
            return Verdict(reason=_refusal(mine.error))
        if other and mine.untouched and mine.error and isinstance(its.error, OF_VALUES):
            return Verdict(reason="a capture meets errors of shapes before those of values")
        return Verdict(differences(mine, its))


def _raiser(error: Exception) -> Callable[..., object]:
    def function(*_: Any) -> Any:
        raise error

    return function


def _refusal(error: Exception | None) -> str:
    """Returns the error of a refused call, without names and numbers."""
    text = re.sub(r"\S*\[.*?\](\[.*?\])?|\(.*?\)|\b\d+\b", "_", str(error).split("\n")[0])
    return f"{type(error).__name__}: {text[:150]}"
