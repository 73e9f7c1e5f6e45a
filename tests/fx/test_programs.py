"""Traced programs of views, writes, gradients and aliases have the effects of eager (FXG-10)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import aotlite as al
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
        except (TraceError, SubclassError) as error:  # of set_ and resize_
            refused.append(error)
            raise
        return module(*args)

    expected = program.run()
    found = program.run(function=traced)
    assume(not refused)
    assert repr(expected) == repr(found)


@pytest.mark.rules("FXG-29")
@pytest.mark.draws(long=2000)
@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_proxies_say_which_values_require_gradients(seed: int) -> None:
    program = draw(seed)
    seen: dict[bool, list[Any]] = {True: [], False: []}
    function = program.function_of()

    def watched(*args: Any) -> Any:
        found = function(*args)
        tensors = [each for each in found if isinstance(each, al.Tensor)]
        is_trace = any(isinstance(each, fx.Proxy) for each in (*args, *tensors))
        seen[is_trace].append([each.requires_grad for each in tensors])
        return found

    def traced(*args: Any) -> Any:
        memories = {x.untyped_storage().data_ptr() for x in args}
        try:
            fx.symbolic_trace(watched, *args)
        except al.AotliteError:
            seen[True].append(None)
        if len(memories) < len(args) or not al.is_grad_enabled():  # not known to a proxy
            seen[True][-1] = None
        return watched(*args)

    program.run(function=traced)
    for found, expected in zip(seen[True], seen[False], strict=False):
        assert found is None or found == expected
