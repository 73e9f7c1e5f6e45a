"""Cases: a random program, its two calls from different states, and later actions of the user.

A case is plain data: it shrinks and prints as a script. Programs come from
`tests.helpers.programs`.
Rules: GEN-11, GEN-12, GEN-13.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from hypothesis import strategies as st

from tests.helpers.program_strategy import programs
from tests.helpers.programs import Program, Ref, Step

BACKWARDS = ("together", "each", "alone")
"""One backward from all results; one each, adding up; one each, with `.grad` cleared between."""


@attrs.frozen
class Call:
    """One call of the compiled function, from a state of its own."""

    inputs: tuple[int, ...]
    """Numbers of setup values."""
    flipped: tuple[int, ...] = ()
    """The fresh setup values whose requires_grad is the opposite of the program's."""
    grad: bool = True
    """The ambient grad mode."""
    after: tuple[Step, ...] = ()
    """Writes between call and backward; Refs count setup values, then results."""
    backward: str = "together"
    looks: bool = True
    """Whether tape nodes are asked for before the writes after the call (asking refreshes them)."""


@attrs.frozen(repr=False)
class Case:
    """A program and the calls of it. `extras` are results that are no tensors, at these places."""

    program: Program
    calls: tuple[Call, ...]
    extras: tuple[tuple[int, Any], ...] = ()

    def __repr__(self) -> str:
        return f"Case({self.program!r}, {self.calls!r}, {self.extras!r})"

    def __str__(self) -> str:
        lines = [str(self.program)]
        if self.extras:
            lines.append(f"# among the results: {self.extras}")
        return "\n".join([*lines, *(f"# {call}" for call in self.calls)])


def results_of(case: Case, values: list[Any]) -> list[Any]:
    """The results of the body, of all its values."""
    results = [values[i] for i in case.program.outputs]
    for place, extra in case.extras:
        results.insert(min(place, len(results)), extra)
    return results


def setup_of(case: Case, call: Call) -> tuple[Step, ...]:
    """The setup of one call: the program's, with other leaves requiring grad."""
    steps: list[Step] = []
    made = 0
    for step in case.program.setup:
        if step.op == "fresh" and made in call.flipped:
            step = attrs.evolve(step, args=(step.args[0], not step.args[1]))
        steps.append(step)
        made += step.results
    return tuple(steps)


# ------------------------------------------------------------------------------------ the drawing
WRITES = (("mul_", (2,)), ("add_", (1,)), ("fill_", (3,)), ("neg_", ()), ("mul_", (1,)))


@st.composite
def cases(draw: Callable[[Any], Any], max_steps: int = 8) -> Case:
    """Programs called twice."""
    program = draw(programs(max_steps=max_steps))
    count = sum(step.results for step in program.setup)
    fresh = _fresh(program)
    first = draw(_calls(program.inputs, count, len(program.outputs), ()))
    inputs = tuple(
        i if draw(st.integers(0, 2)) else draw(st.integers(0, count - 1)) for i in program.inputs
    )
    flipped = tuple(i for i in fresh if draw(st.integers(0, 2)) == 0)
    second = draw(_calls(inputs, count, len(program.outputs), flipped))
    extras: tuple[tuple[int, Any], ...] = ()
    if draw(st.integers(0, 7)) == 0:
        extras = ((draw(st.integers(0, 3)), draw(st.sampled_from((None, 7, 2.5, "text")))),)
    return Case(program, (first, second), extras)


def _fresh(program: Program) -> list[int]:
    found, made = [], 0
    for step in program.setup:
        if step.op == "fresh":
            found.append(made)
        made += step.results
    return found


@st.composite
def _calls(
    draw: Callable[[Any], Any],
    inputs: tuple[int, ...],
    setup: int,
    results: int,
    flipped: tuple[int, ...],
) -> Call:
    after = []
    for _ in range(draw(st.sampled_from((0, 0, 0, 1, 1, 2)))):
        op, args = draw(st.sampled_from(WRITES))
        target = draw(st.integers(0, setup + results - 1))
        after.append(Step(op, (Ref(target), *args), draw(st.integers(0, 3)) > 0))
    return Call(
        inputs,
        flipped,
        draw(st.integers(0, 5)) > 0,
        tuple(after),
        draw(st.sampled_from(BACKWARDS)),
        draw(st.booleans()),
    )
