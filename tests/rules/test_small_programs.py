"""Short programs, compiled and eager: GEN-1, with the steps that only aotlite has."""

from __future__ import annotations

from itertools import permutations, product
from random import Random

import pytest

from tests.rules.helpers.small_programs import Small, drawn, outcome

COUNT = 120
FOUND = (1583, 2558)
"""Programs that once differed: read-only memory copied to itself; a leaf with another geometry."""


@pytest.mark.rules("GEN-11", "GEN-2")
def test_a_short_program_is_eagers_or_refused_before_anything_happens() -> None:
    for number in (*range(COUNT), *FOUND):
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


@pytest.mark.rules("TEN-25", "FUN-18")
def test_what_grows_is_eagers_and_refused_only_beside_an_older_view() -> None:
    """An argument, and a tensor made inside; what is written or read after it grew; the results."""
    refused = 0
    afters = [[], ["grown"], ["old"], ["read"], ["read", "grown"]]
    choices = product((0, 2), ("", "part", "whole"), afters, ((0,), (0, 1), (0, 1, 2), (1, 2)))
    for grown, view, after, results in choices:
        if not view and {"old", "read"} & set(after):
            continue
        steps = [("product", 0, 0), *([(view, grown, grown)] if view else []), ("grow", grown, 0)]
        for what in after:
            on = grown if what == "grown" else 3
            steps.append(("product" if what == "read" else "write bytes", on, on))
        program = Small("plain", tuple(steps), results)
        found, reason = outcome(program)
        assert not found, f"{program}: {found[0]}"
        assert reason is None or view, f"{program}: {reason}"
        refused += reason is not None
    assert refused


@pytest.mark.rules("FUN-36")
def test_gradients_to_a_history_and_to_the_leaf_in_its_place_are_refused_together_alone() -> None:
    """Made of an argument that has a history: results of before, of after, or of both."""
    change = [("detach_", 0, 0), ("requires_grad_", 0, 0)]
    for before, after in product((False, True), repeat=2):
        steps = [("product", 0, 0)] * before + change + [("product", 0, 0)] * after
        program = Small("made", tuple(steps), tuple(range(before + after)) or (1,))
        found, reason = outcome(program)
        assert not found, f"{program}: {found[0]}"
        assert (reason is not None) == (before and after), f"{program}: {reason}"


@pytest.mark.rules("TEN-41")
def test_a_leaf_made_inside_is_refused_as_a_result_if_another_is_computed_from_it() -> None:
    """Hooks on it are registered by each call (HOOK-1)."""
    for hooked, used, returned in product((False, True), repeat=3):
        steps = [("leaf", 0, 0), *[("hook", 2, 2)] * hooked, *[("twice", 2, 2)] * used]
        program = Small("plain", tuple(steps), (0, 1) if returned else (0,))
        found, reason = outcome(program)
        assert not found, f"{program}: {found[0]}"
        is_result = returned or not used
        assert (reason is not None) == (is_result and used), f"{program}: {reason}"
