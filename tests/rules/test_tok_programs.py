"""What a compiled program does besides computing is what eager does: exactly once, and in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from tests.rules.helpers.tok_programs import (
    Compute,
    Fail,
    Give,
    Hook,
    Loudly,
    Note,
    Program,
    Take,
    Write,
    alike,
    by_type,
    function,
    pair,
    programs,
    registered,
    story,
)

TWO_BRANCHES = (Loudly(0, "log", "log"), Loudly(1, "callback", "print"), Hook("log", 4))
"""Values 3 and 4: of the first leaf, and of the second."""
BREAKS_OFF = (Compute("add", 0, 0), Loudly(3, "log", "log"), Write(3, 2.0), Hook("log", 4))
"""What the custom function has saved is written before its backward."""
GIVEN_AND_SAVED = (Give("callback", 0), Compute("mul", 3, 0), Compute("mul", 4, 1))
"""The backward needs what a callback gave."""
BY_FORMULAS = (Give("log", 0), Give("log", 1), Note("print", 3))
"""No Python of the user's runs in the backward but in gradient formulas."""


@pytest.fixture(autouse=True)
def _ops() -> Iterator[None]:
    with registered():
        yield


def compiled(program: Program, **options: Any) -> Any:
    return story(program, al.compile(function(program), **options))


@pytest.mark.draws(long=300)
@pytest.mark.rules("TOK-1", "TOK-4", "TOK-6", "TOK-7")
@settings(max_examples=25)
@given(
    programs(), st.booleans(), st.sampled_from(("default", "min_cut")), st.sampled_from((0, 1, 2))
)
@example(Program(TWO_BRANCHES, (3, 4), arriving=1), True, "default", 1)
@example(Program(TWO_BRANCHES, (3, 4), arriving=2, again=True), False, "min_cut", 1)
@example(Program(TWO_BRANCHES, (3, 4), wanted=(0,)), True, "default", 1)
@example(Program(TWO_BRANCHES, (3, 4), wanted=(1,)), True, "default", 2)
@example(Program(GIVEN_AND_SAVED, (5,)), True, "min_cut", 1)
@example(Program(GIVEN_AND_SAVED, (5, 3), trains=False), False, "default", 1)
@example(Program(BY_FORMULAS, (3, 4), arriving=1), True, "default", 1)
@example(Program(BY_FORMULAS, (3, 4), wanted=(1,)), True, "min_cut", 1)
@example(Program(BREAKS_OFF, (4,), arriving=1), True, "default", 1)
@example(Program((Loudly(0, "log", "log", nothing=True), Note("log", 3)), (3,)), True, "default", 1)
@example(Program((Write(2, 2.0), Note("log", 2), Write(2, -1.0)), (2,)), True, "default", 1)
def test_effects_happen_once_and_in_the_order_of_eager(
    program: Program, unlifts: bool, partition: str, level: int
) -> None:
    """By the reference backend, across types as well; in graphs of both forms."""
    seen = compiled(
        program,
        backend="reference",
        unlift_tokens=unlifts,
        partition=partition,
        verify=bool(level == 2),
    )
    assert alike(story(program), seen)


@pytest.mark.draws(long=160)
@pytest.mark.rules("TOK-1", "TOK-6", "TOK-7")
@settings(max_examples=25)
@given(programs(), st.booleans())
@example(Program(TWO_BRANCHES, (3, 4), arriving=1), True)
@example(Program(GIVEN_AND_SAVED, (5,)), True)
@example(Program(BY_FORMULAS, (3, 4), arriving=2, again=True), False)
def test_fused_programs_keep_the_order_of_effects(program: Program, unlifts: bool) -> None:
    """Loop programs, whose steps are merged and moved; their effects stay, all in one order."""
    seen = compiled(program, backend="loops", unlift_tokens=unlifts)
    assert alike(story(program), seen)


@pytest.mark.rules("TOK-6", "TOK-7")
@settings(max_examples=12)
@given(programs(may_raise=True))
@example(Program(TWO_BRANCHES, (3, 4), arriving=1))
@example(Program((Take(0), Note("log", 3), Give("callback", 3)), (3, 4), out_of_range=True))
def test_compiled_code_calls_effects_between_its_segments(program: Program) -> None:
    """The same in C."""
    assert alike(story(program), compiled(program, backend="cpu"))


@pytest.mark.draws(long=240)
@pytest.mark.rules("TOK-6", "TOK-7")
@settings(max_examples=25)
@given(programs(may_raise=True), st.sampled_from(("reference", "loops")))
@example(Program((Note("log", 0), Take(0), Note("log", 3)), (3,), out_of_range=True), "loops")
@example(Program((Take(0), Note("log", 3), Take(1)), (3,), out_of_range=True), "loops")
@example(Program((Write(2, 2.0), Note("print", 2), Fail(0), Note("log", 1))), "reference")
def test_what_raises_stops_the_effects_behind_it(program: Program, backend: str) -> None:
    """Those before have happened, once: no graph is run again to find out what raises."""
    expected, seen = story(program), compiled(program, backend=backend)
    assert alike(expected, seen)


@pytest.mark.draws(long=120)
@pytest.mark.rules("TOK-4", "TOK-7")
@settings(max_examples=20)
@given(programs(), st.booleans())
@example(Program(TWO_BRANCHES, (3, 4), arriving=1), True)
@example(Program(TWO_BRANCHES, (3, 4), wanted=(1,)), False)
@example(Program(GIVEN_AND_SAVED, (5,)), True)
@example(Program(BY_FORMULAS, (3, 4), arriving=1), True)
@example(Program(BY_FORMULAS, (3, 4), wanted=(0,)), True)
@example(Program((Loudly(1, "log", "log", nothing=True),), (3,), arriving=1, wanted=(1,)), False)
def test_effects_on_tensors_made_of_tensors_are_what_their_class_makes_of_them(
    program: Program, unlifts: bool
) -> None:
    """A pair lets each happen for its parts; for itself nothing does."""
    f = al.compile(function(program), backend="reference", unlift_tokens=unlifts)
    assert alike(story(program, make=pair), story(program, f, make=pair))


@pytest.mark.draws(long=240)
@pytest.mark.rules("TOK-5")
@settings(max_examples=30)
@given(programs())
@example(Program(TWO_BRANCHES, (3, 4)))
def test_each_type_has_its_own_order_in_each_half(program: Program) -> None:
    """The chains of a graph: what happens of a type, in order, is one chain of the forward, and
    one of the backward. An inference runs the first alone.
    """
    whole = story(program)
    if whole["error"] is not None:
        return
    expected = by_type(whole["log"])
    forward_only = by_type(
        compiled(attrs.evolve(program, trains=False), backend="reference")["log"]
    )
    for kind, all_of_it in expected.items():
        count = len(forward_only[kind])
        assert forward_only[kind] == all_of_it[:count]
