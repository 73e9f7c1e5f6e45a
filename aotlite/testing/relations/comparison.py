"""Runs programs and their variants, eagerly or compiled, and compares their observations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

import attrs

import aotlite
from aotlite.testing.compiled import REFUSED
from aotlite.testing.engines import Engine, engine
from aotlite.testing.engines.interpreter import body_of
from aotlite.testing.observe.observation import Observation
from aotlite.testing.observe.observe_call import Body, observe_call
from aotlite.testing.programs.program import Program
from aotlite.testing.programs.steps import is_name
from aotlite.testing.relations.relation import Relation, Traced, Variant

Maker = Callable[..., Body]
"""A function that makes the called function of a body: `make(body, **options)`."""


@attrs.frozen
class Subject:
    """The tested side: an engine's eager mode, or the functions that `make` makes of bodies."""

    library: Engine
    make: Maker | None = None
    options: Mapping[str, Any] = attrs.field(factory=dict)

    def function(self, program: Program, cut: int | None, options: Mapping[str, Any]) -> Body:
        """The program's function; with `cut`, one that runs two functions in turn."""
        made = self._made(options)
        if cut is None:
            return made(body_of(self.library, program))
        first, second = halves(program, cut)
        return _joined(*[made(body_of(self.library, half)) for half in (first, second)])

    def _made(self, options: Mapping[str, object]) -> Callable[[Body], Body]:
        if self.make is None:
            return lambda body: body
        return partial(self.make, **{**self.options, **options})


def subject(
    on: str | Engine = "aotlite",
    options: Mapping[str, object] | None = None,
    make: Maker | None = None,
) -> Subject:
    """The eager mode of an engine; compiled by aotlite where there are options, or by `make`."""
    if make is None and options is not None:
        make = aotlite.compile
    return Subject(engine(on), make, options or {})


# --------------------------------------------------------------------------- a function of halves
def halves(program: Program, cut: int) -> tuple[Program, Program]:
    """Splits a program: the first part returns all values that the second part uses as further
    arguments."""
    later = program.body[cut:]
    arity, live = program.arity, []
    for name in _names([step.args for step in later] + [program.results]):
        place = int(name[1:].partition(".")[0])
        if arity <= place < arity + cut and name not in live:
            live.append(name)
    first = Program(program.body[:cut], live, program.calls)
    renamed = {name: f"${arity + i}" for i, name in enumerate(live)}
    shift = len(live) - cut

    def moved(value: Any) -> object:
        if isinstance(value, tuple):
            return tuple(map(moved, value))
        if not is_name(value):
            return value
        place, dot, part = value[1:].partition(".")
        if int(place) < arity:
            return value
        return renamed.get(value) or f"${int(place) + shift}{dot}{part}"

    steps = [attrs.evolve(step, args=moved(step.args)) for step in later]
    # No setup makes its arguments; only their number is read.
    calls = [attrs.evolve(call, args=(*call.args, *live)) for call in program.calls]
    return first, Program(steps, moved(program.results), calls)


def _names(value: Any) -> list[str]:
    if isinstance(value, (tuple, list)):
        return [name for item in value for name in _names(item)]
    return [value] if is_name(value) else []


def _joined(first: Body, second: Body) -> Body:
    def both(*args: object) -> list[Any]:
        return second(*args, *first(*args))

    return both


# ------------------------------------------------------------------------------------- the checks
@attrs.define
class Examined:
    """The outcome of a relation on one program."""

    variants: int = 0
    """The number of variants of this program."""
    compared: int = 0
    """The number of compared calls."""
    refused: int = 0
    """The number of calls that one of the two refuses (GEN-2), which are not compared."""
    found: list[str] = attrs.field(factory=list)
    failing: Variant | None = None
    """The first variant that differs."""


def _worlds(
    whose: Subject, program: Program, cut: int | None, options: Mapping[str, object]
) -> list[Observation]:
    function = whose.function(program, cut, options)
    return [observe_call(whose.library, program, i, function) for i in range(len(program.calls))]


def examined(
    relation: Relation, traced: Traced, whose: Subject, *, limit: int | None = None, seed: int = 0
) -> Examined:
    """Compares the observations of a program and of at most `limit` variants."""
    result = Examined()
    if relation.needs_compiler and whose.make is None:
        return result
    pairs = relation.pairs(traced)
    result.variants = len(pairs)
    if limit is not None and len(pairs) > limit:
        pairs = Random(seed).sample(pairs, limit)
    first: dict[str, list[Observation]] = {}
    for some, variant in pairs:
        key = str(sorted(variant.first_options.items()))
        if key not in first:
            first[key] = _worlds(whose, some.program, None, variant.first_options)
        _compare(relation, whose, first[key], variant, result)
        if result.found:
            break
    return result


def _compare(
    relation: Relation,
    whose: Subject,
    first: Sequence[Observation],
    variant: Variant,
    result: Examined,
) -> None:
    worlds = _worlds(whose, variant.program, variant.cut, variant.options)
    order = range(len(worlds)) if variant.calls is None else variant.calls
    for number, (place, its) in enumerate(zip(order, first, strict=True)):
        mine = worlds[place]
        if any(isinstance(each.error, REFUSED) for each in (mine, its)) and whose.make:
            result.refused += 1
            continue
        if whose.make is None:
            # Eager code has written its inputs before an error.
            mine, its = (attrs.evolve(each, untouched=True) for each in (mine, its))
        result.compared += 1
        found = relation.same.differences(mine, its)
        result.found += [f"{relation.name}: call {number}: {_worded(each)}" for each in found]
    if result.found:
        result.failing = variant


def _worded(line: str) -> str:
    """A line about a difference, with the original program named as such."""
    mine, comma, its = line.rpartition(", eager ")
    return f"{mine}, unchanged {its}" if comma else line
