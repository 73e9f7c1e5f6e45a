"""Programs that compute floats and ints of sizes give what eager gives, bit by bit."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotlite.backends.native.compiler.toolchain import find_compiler
from tests.end_to_end.scalar_programs import Drawing, compared

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")


@pytest.mark.rules("DYN-37", "DYN-38", "DYN-39", "DYN-40")
@settings(max_examples=25)
@given(st.data())
def test_scalars_of_sizes_are_those_of_eager(data: st.DataObject) -> None:
    program = Drawing(lambda options: data.draw(st.sampled_from(options))).program()
    found = compared(program, grad=data.draw(st.booleans()), kind=data.draw(KINDS))
    assert found.difference is None, str(found.difference)


KINDS = st.sampled_from(("float64", "float32"))


@pytest.mark.rules("DYN-37", "DYN-39")
@settings(max_examples=25)
@given(st.data())
def test_scalars_that_ask_nothing_are_compiled_once(data: st.DataObject) -> None:
    program = Drawing(lambda options: data.draw(st.sampled_from(options)), asks=False).program()
    found = compared(program, grad=data.draw(st.booleans()))
    assert found.difference is None, str(found.difference)
    assert found.compilations <= 1 + found.errors, program.text


@needs_compiler
@pytest.mark.rules("SIZ-21", "DYN-37", "DYN-40")
@pytest.mark.parametrize("seed", range(2))
def test_kernels_take_scalars_at_run_time(seed: int) -> None:
    for number in range(10):
        draw = random.Random(f"{seed} {number}")
        program = Drawing(draw.choice, asks=number % 2 == 0).program()
        kind = ("float64", "float32")[number % 2]
        found = compared(program, backend="cpu", kind=kind)
        assert found.difference is None, str(found.difference)


@pytest.mark.long
@pytest.mark.rules("DYN-37", "DYN-38", "DYN-39", "DYN-40")
@pytest.mark.parametrize("seed", range(20, 24))
def test_many_programs_with_scalars_of_sizes(seed: int) -> None:
    for number in range(200):
        draw = random.Random(f"{seed} {number}")
        program = Drawing(draw.choice).program()
        found = compared(program, grad=number % 2 == 0)
        assert found.difference is None, str(found.difference)
