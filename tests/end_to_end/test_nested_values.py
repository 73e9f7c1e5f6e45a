"""Containers and Modules nested deeper than Python recurses, and those that contain themselves."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import aotlite as al
from aotlite.ir.errors import ArgumentError

DEEP = 1_100
"""Levels: just more than Python's recursion limit; five times as many with -m long."""

LONG = pytest.param(5_000, marks=pytest.mark.long)


def nested(levels: int, innermost: Any) -> Any:
    value = innermost
    for _ in range(levels):
        value = (value,)
    return value


class Holder(al.nn.Module):
    """Computes nothing with what it holds."""

    def __init__(self, held: Any) -> None:
        super().__init__()
        self.held = held
        self.scale = al.nn.Parameter(al.ones(2))

    def forward(self, x: Any) -> Any:
        return x * self.scale * (1 if self.held is None else 2)


def modules_in_modules(levels: int) -> Holder:
    module = Holder(None)
    for _ in range(levels):
        module = Holder(module)
    return module


def test_levels_are_more_than_python_recurses():
    assert DEEP > sys.getrecursionlimit()


@pytest.mark.parametrize("levels", [DEEP, LONG])
@pytest.mark.parametrize("held", ["tuples", "Modules"])
def test_what_a_function_reaches_may_be_nested_at_any_depth(held, levels):
    """Guards look at it all, at every call."""
    module = Holder(nested(levels, 3) if held == "tuples" else modules_in_modules(levels))
    compiled = al.compile(lambda x: module(x))
    for _ in range(2):
        assert compiled(al.ones(2)).tolist() == [2.0, 2.0]
    assert len(compiled.entries) == 1


def test_a_change_at_the_bottom_of_nested_lists_is_seen():
    bottom = [3]
    held = nested(DEEP, bottom)

    def scaled(x: Any) -> Any:
        value = held
        while isinstance(value, (tuple, list)):
            value = value[0]
        return x * value

    compiled = al.compile(scaled)
    assert compiled(al.ones(1)).tolist() == [3.0]
    bottom[0] = 4
    assert compiled(al.ones(1)).tolist() == [4.0]


def test_nested_lists_of_other_forms_have_other_images():
    """Flat images must still tell where a container ends."""
    held: list[Any] = [[1, [2]], 3]
    compiled = al.compile(lambda x: x * len(held[0]))
    assert compiled(al.ones(1)).tolist() == [2.0]
    held[:] = [[1, [2], 3]]
    assert compiled(al.ones(1)).tolist() == [3.0]


def test_arguments_nested_900_deep_are_taken():
    compiled = al.compile(lambda x: innermost(x) * 2)
    assert compiled(nested(900, al.ones(1))).tolist() == [2.0]


def innermost(value: Any) -> Any:
    while isinstance(value, tuple):
        value = value[0]
    return value


def test_a_list_that_contains_itself_is_refused_as_an_argument():
    loop = [al.ones(1)]
    loop.append(loop)
    with pytest.raises(ArgumentError, match=r"^compile: the arguments contain themselves, exp"):
        al.compile(lambda x: x[0])(loop)


def test_a_dict_that_contains_itself_is_refused_as_a_result():
    def looped(x: Any) -> Any:
        loop = {"x": x * 2}
        loop["loop"] = loop
        return loop

    with pytest.raises(ArgumentError, match=r"^compile: the results contain themselves, exp"):
        al.compile(looped)(al.ones(1))


def test_arguments_nested_deeper_than_optree_goes_are_refused():
    with pytest.raises(ArgumentError, match=r"^compile: the arguments are nested too deep for op"):
        al.compile(innermost)(nested(DEEP, al.ones(1)))
