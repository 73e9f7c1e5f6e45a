"""The random programs as properties of a seed; other modules do not know how they are drawn.

The properties: a compiled call has the effects of eager, the same arguments find their entry again
(GRD-1, GRD-2), and each refusal has a reason (GEN-2).
"""

from __future__ import annotations

import re
from random import Random

import attrs
from hypothesis import Phase, given, seed, settings

import aotlite as al
from aotlite.testing.coverage.cells import POSSIBLE
from aotlite.testing.engines.interpreter import body_of
from aotlite.testing.fuzzing.one_program import REFUSED, eager_call, options_of, outcome
from aotlite.testing.generate.bodies import LIBRARY
from aotlite.testing.generate.random_programs import draw
from aotlite.testing.observe.differences import differences
from aotlite.testing.observe.observe_call import observe_call
from aotlite.testing.programs.program import Program
from tests.end_to_end.helpers.cases import Case
from tests.end_to_end.helpers.cases import cases as drawn_cases
from tests.end_to_end.helpers.random_sessions import random_script
from tests.end_to_end.helpers.scripts import eager_form, play
from tests.end_to_end.random_programs import MODES
from tests.end_to_end.random_programs import outcome as session_outcome
from tests.rules.helpers.small_programs import drawn as drawn_small
from tests.rules.helpers.small_programs import outcome as small_outcome
from tests.stages.helpers.journeys import Journey, journey_of


def target_of(number: int) -> int:
    """The cell towards which the program of a seed is drawn."""
    return POSSIBLE[(number * 6151) % len(POSSIBLE)]


def alias_program(number: int) -> None:
    """A program about aliasing, compiled, is the eager one."""
    alias_program_towards(target_of(number), number)


def alias_program_towards(target: int, number: int) -> None:
    """The same, drawn towards this cell."""
    program = draw(number, target)
    found = outcome(program, options_of(number))
    assert not found.found, found.found[0]
    unknown = [text for text in found.refused if not _has_reason(text, program)]
    assert not unknown, unknown[0]


def alias_program_again(number: int) -> None:
    """Repeated calls compile nothing, and equal eager in any order."""
    program = draw(number, POSSIBLE[(number * 4099) % len(POSSIBLE)])
    compiled = al.compile(body_of(LIBRARY, program), **options_of(number))
    worlds = [eager_call(program, place)[0] for place in range(len(program.calls))]
    entries = 0
    for turn in range(4):
        for place, its in enumerate(worlds):
            mine = observe_call(LIBRARY, program, place, compiled)
            refused = isinstance(mine.error, REFUSED) and mine.untouched
            found = [] if refused else differences(mine, its)
            assert not found, f"call {place}, turn {turn}: {found[0]}"
        assert turn == 0 or entries == len(compiled.entries), "compiled again"
        entries = len(compiled.entries)


def random_session(number: int) -> None:
    """A random session with a compiled function is the one with the eager function."""
    script = random_script(number)
    mode = list(MODES.values())[number % len(MODES)]
    found = session_outcome(script, play(script, eager_form), mode).found
    assert not found, found[0]


def small_programs(number: int) -> None:
    """Ten programs of a few steps, compiled, are the eager ones."""
    for each in range(10 * number, 10 * number + 10):
        program = drawn_small(Random(each))
        found, _ = small_outcome(program)
        assert not found, f"{program}: {found[0]}"


def some_journeys(number: int, examples: int) -> tuple[Journey, ...]:
    """The journeys of a few random programs through all stages: the last of many drawn ones, as the
    first ones hardly do anything.
    """
    found: list[Case] = []

    @seed(number)
    @settings(max_examples=10 * examples, database=None, phases=[Phase.generate], deadline=None)
    @given(drawn_cases())
    def collect(case: Case) -> None:
        found.append(attrs.evolve(case, calls=(attrs.evolve(case.calls[0], grad=True),)))

    collect()
    journeys = [journey_of(case) for case in found[-2 * examples :]]
    return tuple([journey for journey in journeys if journey is not None])


# ---------------------------------------------------------------------------------------- refusals
_REASONS: tuple[tuple[str, set[str]], ...] = (
    ("resize_", {"resize_"}),
    ("by set_", {"set_", "resize_"}),
    ("as_strided|of another dtype, is written|of what detach_ gave", set()),
)
"""Text of a refusal -> the ops of which the program must have one, if any."""


def _has_reason(text: str, program: Program) -> bool:
    ops = {step.op for steps in (program.body, *(c.setup for c in program.calls)) for step in steps}
    met = [needed for pattern, needed in _REASONS if re.search(pattern, text)]
    return any(not needed or ops & needed for needed in met)
