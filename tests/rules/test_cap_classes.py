"""CAP-12: variables that the methods of named classes read are compared like any function's."""

from __future__ import annotations

import copy
import copyreg
import logging
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.stages.s1_capture.environment.access_search import AccessPathIndex
from tests.rules.helpers.class_ways import FUNCTION_WAYS, WAYS, Way

NUMBERS = (2.0, -1.0, 3.0, 0.5)


def scaled(x: Any, w: Any) -> Any:
    return x * w


def seen(function: Any, x: Any) -> Any:
    """A result and its gradient."""
    y = function(x)
    gradients: Any = al.autograd.grad(y.sum(), [x])
    return y.tolist(), gradients[0].tolist()


@pytest.mark.draws(long=600)
@pytest.mark.rules("CAP-12", "GRD-1")
@settings(max_examples=75)
@given(
    st.sampled_from([*WAYS, *FUNCTION_WAYS]),
    st.lists(st.sampled_from(NUMBERS), min_size=2, max_size=4),
)
@example(FUNCTION_WAYS[0], [1.0, 2.0])
@example(WAYS[0], [1.0, 2.0])
def test_numbers_behind_classes_are_what_they_are_by_then(way: Way, values: list[float]) -> None:
    """And nothing is compiled again for a number that was met."""
    function, put = way(values[0], scaled)
    compiled = al.compile(function)
    x = al.tensor([1.0, -2.0], requires_grad=True)
    for value in (*values, *values):
        put(value)
        assert seen(function, x) == seen(compiled, x), value
    if not way.__name__ == "of_replaced_method":
        assert len(compiled.entries) <= len(set(values))


@pytest.mark.rules("CAP-3", "CAP-12")
@pytest.mark.parametrize("way", WAYS)
def test_tensors_behind_classes_are_found_again(way: Way) -> None:
    function, put = way(al.tensor([1.0, 2.0]), scaled)
    compiled = al.compile(function)
    x = al.tensor([1.0, -2.0], requires_grad=True)
    for value in (al.tensor([3.0, 4.0]), al.tensor(2.0), al.tensor([5.0, 6.0])):
        put(value)
        assert seen(function, x) == seen(compiled, x)


@pytest.mark.rules("CAP-12")
def test_what_nobody_names_is_not_looked_at() -> None:
    """A class's other methods and numbers cost nothing, and their changes no new entry."""

    class Plain:
        counted = 0

        @staticmethod
        def used(x: Any) -> Any:
            return x * 2

        @staticmethod
        def other(x: Any) -> Any:
            return x * counter

    counter = 1
    compiled = al.compile(lambda x: Plain.used(x))
    for number in range(3):
        Plain.counted = counter = number
        compiled(al.ones(2))
    assert 1 == len(compiled.entries)
    assert "counted" not in compiled.source
    assert "other" not in compiled.source


@pytest.mark.rules("CAP-12")
def test_what_a_class_of_pythons_library_has_is_not_looked_at() -> None:
    """It may change while it is captured: `logging` has a cache."""

    def function(x: Any) -> Any:
        logger: Any = logging.Logger("tests", logging.CRITICAL)
        logger.warning("nobody hears it")
        return x * 2

    compiled = al.compile(function)
    for _ in range(2):
        assert [2.0, 2.0] == compiled(al.ones(2)).tolist()
    assert 1 == len(compiled.entries)


@pytest.mark.rules("CAP-12")
def test_what_packages_register_with_pythons_library_is_not_searched() -> None:
    """`copy` asks a table, to which any package may have added, for each class."""

    class Odd:
        pass

    def reduced(odd: Any) -> Any:
        return Odd, ()

    def f(x: Any) -> Any:
        return copy.copy(copy.deepcopy(x)) * 2

    copyreg.pickle(Odd, reduced)
    try:
        assert not {reduced, Odd} & set(AccessPathIndex(f, []).functions())
        assert [2.0, 2.0] == al.compile(f)(al.ones(2)).tolist()
    finally:
        copyreg.dispatch_table.pop(Odd)
