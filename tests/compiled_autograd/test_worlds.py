"""CAG: after a compiled backward of any program the world is the one that the engine leaves."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import aotlite as al
from tests.compiled_autograd.helpers.worlds import world
from tests.helpers.program_strategy import programs
from tests.helpers.programs import Program

pytestmark = pytest.mark.rules(
    "CAG-1", "CAG-3", "CAG-6", "CAG-7", "CAG-8", "CAG-9", "CAG-10", "CAG-18", "CAG-20"
)


def check(program: Program, seed: int, tapes: Any) -> str:
    """Compares the engine's world with compiled ones: captured, looked at, and twice matched."""
    try:
        expected = world(program, seed, None)
    except (al.AotliteError, TypeError, ValueError):
        return "refused"
    for _ in range(4):
        assert world(program, seed, tapes) == expected, (str(program), seed)
    return "ran"


REFERENCE = al.compiled_autograd.CompiledAutograd.of("reference")


@settings(max_examples=150)
@given(programs(), st.integers(0, 1 << 20))
def test_random_programs_with_random_hooks(program: Program, seed: int) -> None:
    check(program, seed, REFERENCE)


@settings(max_examples=12)
@given(programs(), st.integers(0, 1 << 20))
def test_random_programs_with_random_hooks_in_c(program: Program, seed: int) -> None:
    check(program, seed, al.compiled_autograd.CompiledAutograd.of("cpu"))


@pytest.mark.long
def test_many_random_programs_with_random_hooks() -> None:
    """20,000 tapes; captures are at most as many as structures that were not seen before."""
    tally: Counter[str] = Counter()
    tapes = al.compiled_autograd.CompiledAutograd.of("reference")

    @settings(
        max_examples=20_000,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(programs(), st.integers(0, 1 << 20))
    def run(program: Program, seed: int) -> None:
        tally[check(program, seed, tapes)] += 1

    run()
    assert tally["ran"] > 12_000
    counters = tapes.counters
    assert counters.calls == counters.hits + counters.resized + counters.captures + counters.skipped
