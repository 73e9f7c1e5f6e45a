"""Programs made small: to the known smallest, of one kind of difference, alike each time."""

from __future__ import annotations

import re
import time
from typing import Any

import attrs
import pytest

import aotlite as al
from aotlite.testing import Program, differences_of, shrunk
from aotlite.testing.compiled import kind_of
from aotlite.testing.coverage.cells import CELLS, POSSIBLE
from aotlite.testing.generate.random_programs import draw
from aotlite.testing.shrinking import lines, smallest
from aotlite.testing.shrinking.costs import cost
from tests.testing.helpers.examples import program
from tests.testing.helpers.planting import PLANTS, Plant, planted
from tests.testing.planted import Found, find, in_child


def drawn(view: str, write: str, relation: str, seed: int = 5) -> Program:
    """A program towards a cell of these."""
    cells = [n for n in POSSIBLE if (*CELLS[n][:2], CELLS[n][3]) == (view, write, relation)]
    return draw(seed, cells[0])


def runs(given: Program) -> bool:
    return all(world.error is None for world in given.run())


def writes_expanded(given: Program) -> bool:
    """Whether a view of an expanded argument is written."""
    ops = [step.op for call in given.calls for step in call.setup]
    return "expand" in ops and any(s.op.endswith("_") for s in given.body) and runs(given)


@pytest.fixture(scope="module")
def expanded() -> Program:
    """A large program that writes a view of an expanded argument."""
    found = (drawn("select", "pointwise", "expanded", seed) for seed in range(50))
    return next(each for each in found if lines(each) > 8 and writes_expanded(each))


def test_shrinking_ends_at_the_known_smallest(expanded: Program) -> None:
    whole = expanded
    small = shrunk(whole, writes_expanded)
    assert lines(small) < lines(whole)
    assert ["make", "expand"] == [step.op for step in small.calls[0].setup]
    assert 1 == len(small.calls) == small.arity
    assert ((), None, True) == (small.results, small.calls[0].write, small.calls[0].grad)


@pytest.mark.parametrize("seed", range(6))
def test_what_does_not_matter_goes(seed: int) -> None:
    """Of a program that takes a `t` only the tensor and the `t` stay."""
    whole = drawn("t", "copy", "overlapping siblings", seed)

    def transposes(given: Program) -> bool:
        return any(step.op == "t" for step in given.body) and runs(given)

    small = shrunk(whole, transposes)
    expected = program(
        [["t", ["$0"]]], [], {"setup": [["make", [0, [], "float64", False]]], "args": ["$0"]}
    )
    assert expected == small


def test_shrinking_asks_once_and_gives_the_same_each_time(expanded: Program) -> None:
    whole = expanded
    asked: list[Program] = []

    def fails(given: Program) -> bool:
        asked.append(given)
        return writes_expanded(given)

    first = shrunk(whole, fails)
    assert len(set(asked)) == len(asked)
    assert first == shrunk(whole, writes_expanded)
    assert cost(first) < cost(whole)


def test_shrinking_stops_when_its_time_is_over(expanded: Program) -> None:
    whole = expanded

    def slow(given: Program) -> bool:
        time.sleep(0.05)
        return writes_expanded(given)

    start = time.monotonic()
    small = shrunk(whole, slow, seconds=0.3)
    assert time.monotonic() - start < 5
    assert writes_expanded(small)
    assert cost(shrunk(whole, writes_expanded)) < cost(small)


def wrong_results(function: Any, **options: Any) -> Any:
    """A compiled function that drops a write of its first argument, or copies results."""
    compiled = al.compile(function, **options)

    def run(*args: Any) -> Any:
        found = compiled(*args)
        if any(isinstance(each, int) for each in found):
            args[0].mul_(3)
        return [each.clone() if isinstance(each, al.Tensor) else each for each in found]

    return run


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 25), marks=pytest.mark.long)])
def test_the_kind_of_a_difference_is_kept(seeds: range) -> None:
    """The values differ in programs that return a number, and what is a view in the others."""
    kept = 0
    for seed in seeds:
        given = draw(seed, POSSIBLE[(seed * 7919) % len(POSSIBLE)])
        found = differences_of(given, compile=wrong_results)
        if not found:
            continue
        small = smallest(given, compile=wrong_results)
        assert kind_of(found) == kind_of(differences_of(small, compile=wrong_results))
        assert lines(small) <= 4
        kept += 1
    assert kept > len(seeds) // 3


def test_a_program_without_a_difference_is_given_back() -> None:
    given = drawn("t", "copy", "alone")
    assert smallest(given) is given


# ------------------------------------------------------------------------------------- the plants
@pytest.mark.parametrize("name", ["stale view"])
def test_a_planted_bug_is_found_and_shrunk(name: str) -> None:
    _expect_small(find(name, 0))


@pytest.mark.long
@pytest.mark.parametrize("name", PLANTS)
def test_every_planted_bug_is_found_and_shrunk_in_a_minute(name: str) -> None:
    _expect_small(in_child(name, 1000))


def _expect_small(found: Found | None) -> None:
    assert found is not None
    assert found.is_good(), found
    assert re.search(r"\ndef f\(x", found.script)


def test_plants_are_gone_afterwards_and_fail_loudly_where_the_code_has_changed() -> None:
    from aotlite.stages import s2_analyze

    right = s2_analyze._families
    with planted(PLANTS["history"]):
        assert right is not s2_analyze._families
    assert right is s2_analyze._families
    assert 10 <= len(PLANTS)
    gone = attrs.evolve(PLANTS["history"], old="no such text")
    with pytest.raises(AssertionError, match="_families: 'no such text' is there 0 times"):
        gone.apply()
    assert isinstance(gone, Plant)
