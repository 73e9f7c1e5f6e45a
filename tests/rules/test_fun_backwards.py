"""FUN-31 to FUN-33, SAV-3: what users' Python does to memory while a backward runs is eager's."""

from typing import Any

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir.role import Current, Rewritten
from tests.rules.backwards import REFUSED, Forward, Program, Step, story

A, B, C = 0, 1, 2
"""Numbers of memories: the first two are inputs, the last is what the forward makes."""

WRITES = ("add", "mul", "copy_grad", "zero", "add_row", "add_to_view", "add_current")


@st.composite
def programs(draw: Any) -> Program:
    """One to three custom functions in a row or side by side, and what is done around them."""
    steps = tuple(
        draw(
            st.lists(
                st.builds(
                    Step,
                    memory=st.sampled_from((A, B, C)),
                    write=st.sampled_from((None, *WRITES)),
                    reads=st.sampled_from((None, "stashed", "saved", "view")),
                    materialize=st.booleans(),
                    hook=st.booleans(),
                ),
                min_size=1,
                max_size=3,
            )
        )
    )
    return Program(
        steps=steps,
        forward=Forward(
            chained=draw(st.booleans()),
            writes=draw(st.sampled_from((None, A, B, C))),
            before=draw(st.booleans()),
            returns=draw(st.sampled_from(("none", "memory", "view"))),
        ),
        between=draw(st.sampled_from((None, A, B))),
        arriving=draw(st.sets(st.integers(0, len(steps) - 1), min_size=1).map(sorted).map(tuple)),
        again=draw(st.booleans()),
        partition=draw(st.booleans()),
    )


@pytest.mark.rules("FUN-31", "FUN-32", "FUN-33", "SAV-3", "TAN-8", "SAV-5")
@settings(max_examples=400)
@given(program=programs())
def test_backwards_that_write_memory_are_those_of_eager(program: Program) -> None:
    """Values, versions, gradients, errors; after the call, after a backward, after a second one."""
    eager, compiled = story(program, compiled=False), story(program, compiled=True)
    assert compiled in (eager, [REFUSED])
    if compiled == [REFUSED]:
        everything = attrs.evolve(program, arriving=tuple(range(len(program.steps))))
        assert "AutogradError" == story(everything, compiled=False)[-1]
