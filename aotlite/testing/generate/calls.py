"""Random calls of programs: the order of arguments, trial runs, and calls with others."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import attrs

from aotlite.testing.engines import Engine
from aotlite.testing.engines.interpreter import body_of, setup_of
from aotlite.testing.generate.argument_aliases import Slot, arguments
from aotlite.testing.generate.choices import Limits, Source
from aotlite.testing.generate.exact_steps import Exactly, has_exact_gradients
from aotlite.testing.programs.program import Program
from aotlite.testing.programs.steps import Call, Step

TRIES = 4
OF_ONE = ("alone", "separate", "expanded", "made inside")
"""The relations of a memory with one argument, or none."""


def made_call(rng: Source, made: tuple[list[Step], list[str]], *, grad: bool) -> Call:
    """A call with these arguments, mostly with a write of a result after it."""
    if not rng.chance(0.95):
        return Call(*made, grad=grad)
    return Call(*made, grad=grad, write=(rng.randrange(4), rng.choice(["mul_", "add_", "fill_"])))


def ordered(call: Call, order: list[int]) -> Call:
    """The call with its arguments in another order."""
    return attrs.evolve(call, args=[call.args[i] for i in order])


def given_to(library: Engine, call: Call) -> tuple[list[Any], list[Any]] | None:
    """The live values of a call's setup, and the arguments; None if the setup raises."""
    try:
        return setup_of(library, call)
    except Exception:
        return None


def another_call(
    rng: Source, program: Program, slots: list[Slot], order: list[int], limits: Limits
) -> list[Call]:
    """A call of the body with other arguments, which is exact and mostly runs to its end.

    Empty if none is found. `order` is the order in which the body takes `slots`.
    """
    for _ in range(TRIES):
        wanted = slots
        if rng.chance(0.08):
            wanted = [Slot([3 if n == 2 else n for n in s.shape], s.dtype) for s in slots]
        made = _other_arguments(rng, wanted, limits)
        call = ordered(made_call(rng, made, grad=not rng.chance(0.15)), order)
        runs = _runs_exactly(limits.library, program, call)
        if runs or (runs is None and rng.chance(0.04)):
            return [call]
    return []


def _runs_exactly(library: Engine, program: Program, call: Call) -> bool | None:
    """Whether the body computes exactly; None if it raises."""
    given = given_to(library, call)
    if given is None:
        return False
    watch = Exactly(library)
    try:
        with nullcontext() if call.grad else library.no_grad():
            results = body_of(library, program, watch)(*given[1])
    except Exception:
        return None
    return not watch.is_broken and has_exact_gradients(library, given[0], results)


def _other_arguments(
    rng: Source, slots: list[Slot], limits: Limits
) -> tuple[list[Step], list[str]]:
    """Arguments: some of the slots on one memory, each of the others on new memory."""
    apart = "alone" if len(slots) == 1 else "separate"
    of_many = [r for r in limits.relations if r not in OF_ONE]
    of_many = of_many if len(slots) > 1 else []
    of_one = [r for r in limits.relations if r in (apart, "expanded")]
    is_many = of_many and (not of_one or rng.chance(0.7))
    relation = rng.choice(of_many if is_many else of_one or [apart])
    if relation in of_many:
        least = 2 if apart in limits.relations else len(slots)
        count = rng.randint(least, len(slots))
    else:
        count = 1 if relation == apart else len(slots)
    return arguments(rng, relation, slots[:count], slots[count:], limits)
