"""Short programs, compiled and eager: GEN-1, with the steps that only aotlite has."""

from __future__ import annotations

from itertools import permutations, product
from random import Random

import pytest

from tests.rules.small_programs import KNOWN, Small, drawn, outcome

COUNT = 300


@pytest.mark.rules("GEN-11", "GEN-2")
def test_a_short_program_is_eagers_or_refused_before_anything_happens() -> None:
    for number in sorted(set(range(COUNT)) - KNOWN):
        program = drawn(Random(number))
        found, _ = outcome(program)
        assert not found, f"{number}: {program}: {found[0]}"


@pytest.mark.rules("FUN-22", "FUN-12")
def test_copies_between_arguments_and_values_are_eagers() -> None:
    """Two results are two memories, and what is written last still has its source's first value."""
    places = list(permutations(range(4), 2))
    for copies in product(places, repeat=2):
        steps = [("product", 0, 0), ("product", 1, 0), *(("copy all", i, k) for i, k in copies)]
        found, refused = outcome(Small("plain", tuple(steps), (0, 1)))
        assert not found, f"{copies}: {found[0]}"
        assert refused is None
