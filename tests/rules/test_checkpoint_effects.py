"""Effects in the backward of what a region calls happen once a backward, compiled or not."""

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
    Hook,
    Loudly,
    Program,
    Write,
    alike,
    function,
    kinds,
    registered,
    story,
    values,
)

NONE = "none"
"""The type of no effect: a custom function whose forward is quiet."""
UNUSED = Program(
    (*[Compute("add", 0, 0)] * 3, Loudly(0, NONE, "log", materialize=False)), (0, 6), 2
)
"""What it saves nobody needs, but its backward asks for it."""
ONE = Program((Loudly(0, NONE, "log", of_saved=True), Compute("mul", 3, 1)), (4,))


@pytest.fixture(autouse=True)
def _ops() -> Iterator[None]:
    with registered():
        yield


@st.composite
def late_programs(draw: Any) -> Program:
    """Programs whose effects are all in the backward, asked for once or twice."""
    steps = st.one_of(
        st.builds(Compute, st.sampled_from(("add", "sub", "mul", "flip")), values, values),
        st.builds(Loudly, values, st.just(NONE), kinds, st.booleans(), materialize=st.booleans()),
        st.builds(Hook, kinds, values),
        st.builds(Write, values, st.just(2.0)),
    )
    return draw(
        st.builds(
            Program,
            st.lists(steps, min_size=1, max_size=6).map(tuple),
            st.lists(values, min_size=1, max_size=3).map(tuple),
            st.integers(1, 7),
            st.none() | st.sampled_from(((0,), (1,), (0, 1))),
            st.booleans(),
        )
    )


def in_region(f: Any) -> Any:
    return lambda *args: al.checkpoint(f, *args)


def own_buffer(f: Any) -> Any:
    """With memory of its own for the buffer: the caller's later write of it is no error."""
    return lambda x, w, buffer, index: f(x, w, buffer * 1, index)


@pytest.mark.draws(long=320)
@pytest.mark.rules("CKP-7", "CKP-9", "TOK-6")
@settings(max_examples=40)
@given(late_programs(), st.sampled_from(("default", "min_cut")), st.booleans(), st.booleans())
@example(ONE, "default", False, True)
@example(attrs.evolve(ONE, again=True), "min_cut", True, True)
@example(UNUSED, "default", False, False)
@example(UNUSED, "min_cut", True, False)
def test_a_region_may_call_what_has_effects_in_its_backward(
    program: Program, partition: str, nested: bool, alone: bool
) -> None:
    """What the region does again is the forward; the backward, compiled or not, runs once.

    Where the region is not `alone` with the buffer, the caller has written it by then; all results
    arrive there, since a compiled backward unpacks all that it has saved.
    """
    program = program if alone else attrs.evolve(program, arriving=7)
    f = function(program)
    compiled = al.compile(f, backend="reference", partition=partition)
    regions = (lambda f: in_region(in_region(f))) if nested else in_region
    around = (lambda f: own_buffer(regions(f))) if alone else regions
    expected, seen = story(program, around(f)), story(program, around(compiled))
    assert alike(expected, seen)


@pytest.mark.rules("CKP-7")
@pytest.mark.parametrize("around", [in_region, lambda f: in_region(in_region(f))])
def test_the_effects_of_a_region_are_seen_in_its_stories(around: Any) -> None:
    """A guard of the law above: programs that only raise would be alike whatever happens."""
    seen = story(ONE, own_buffer(around(function(ONE))))
    assert (None, story(ONE)["log"]) == (seen["error"], seen["log"])
    assert seen["log"]


@pytest.mark.rules("CKP-7", "TOK-6")
@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_backward_within_a_region_has_no_effects(is_compiled: bool, capsys: Any) -> None:
    """It would run again with the region; elsewhere, the same compiled function has them."""

    def loud(x: Any) -> Any:
        y = x.exp()
        y.register_hook(lambda grad: al.effects.print("told {}", grad))
        return y * x

    run = al.compile(loud, backend="reference") if is_compiled else loud

    def region(x: Any) -> Any:
        inner = x * 2
        (grad,) = al.autograd.grad(run(inner).sum(), [inner])
        return grad * x

    x = al.ones(2).requires_grad_()
    for _ in range(2):
        with pytest.raises(al.TokenError, match="the effect 'print' is in a region") as caught:
            al.checkpoint(region, x)
        assert "(TOK-6, CKP-7)" in "".join(caught.value.__notes__)
    assert "" == capsys.readouterr().out
    run(x).sum().backward()
    assert "told [1. 1.]\n" == capsys.readouterr().out
