"""Traced programs of views, writes, gradients and aliases have the effects of eager (FXG-10)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from aotlite import fx
from aotlite.fx import TraceError
from aotlite.ir.errors import SubclassError
from aotlite.testing.generate.random_programs import draw


@pytest.mark.rules("FXG-10", "FXG-11")
@pytest.mark.draws(long=2000)
@settings(max_examples=20)
@given(st.integers(0, 2**32))
@example(2925)  # an index is written after it was used
@example(0)
def test_a_traced_program_has_the_effects_of_eager(seed: int) -> None:
    program = draw(seed)
    function, refused = program.function_of(), []

    def traced(*args: Any) -> Any:
        try:
            module = fx.symbolic_trace(function, *args)
        except (TraceError, SubclassError) as error:  # of ops that change a geometry in place
            refused.append(error)
            raise
        return module(*args)

    expected = program.run()
    found = program.run(function=traced)
    assume(not refused)
    assert repr(expected) == repr(found)
