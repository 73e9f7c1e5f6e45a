"""CACHE-14: derivatives of restored entries are eager's, of views and shared memory, too."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

import aotlite as al
from tests.artifacts.looked_up import cached, outcomes
from tests.rules.helpers.towers import ORDERS
from tests.rules.helpers.written_programs import (
    agrees,
    drawn,
    drawn_larger,
    function_of,
    story,
)

REFUSED = (al.UnsupportedError, al.AliasError, al.ShapeError, al.DTypeError)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("AOTLITE_CACHE", str(tmp_path / "cache"))


@pytest.mark.rules("CACHE-14", "DBL-2")
@pytest.mark.parametrize(("draw", "first"), [(drawn, 690), (drawn_larger, 230)])
def test_derivatives_of_restored_functions_that_write_are_eagers(draw, first):
    """To the third order, of inputs that are views of one base or of a leaf, turned and in part."""
    seen = seen_of(range(first, first + 6), draw)
    assert seen["equal"] >= 3 and seen["derived"] >= 3, seen


def seen_of(seeds: range, draw: Any) -> Counter[str]:
    """What became of the programs of these seeds."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        program = draw(Random(seed))
        function = function_of(program)
        try:
            expected = story(program, function)
            story(program, cached(function))
        except REFUSED:
            continue
        with outcomes() as found:
            restored = story(program, cached(function))
        if "hit" in found:
            assert agrees(program, expected, restored), f"{seed}: {program}"
            seen["equal"] += 1
            seen["derived"] += len(expected) > 3 and len(expected[3]) == ORDERS
    return seen


def placed(x: Any) -> Any:
    y = x * 1.0
    y[[0, 2]] = x[:2]
    return (y * y * y).sum()


@pytest.mark.rules("CACHE-14", "DBL-2")
def test_constants_of_a_file_are_those_of_the_tape_that_is_recorded_later():
    """Program 10139 of `drawn`, made small: a saved value was not known again, as it is computed
    from a constant that the file has once more."""
    orders = []
    for run in (placed, cached(placed), cached(placed)):
        x = al.tensor([0.5, 2.0, 3.0], dtype=al.float64, requires_grad=True)
        value: Any = run(x)
        for _ in range(3):
            (value,) = al.autograd.grad(value.sum(), x, create_graph=True)
        orders.append(value.tolist())
    assert orders[0] == orders[1] == orders[2]


def scaled_rows(x: Any, y: Any) -> Any:
    x[0] = 2.0
    return y * 3.0


@pytest.mark.rules("CACHE-14", "SYN-2")
def test_an_entry_of_a_tensor_and_its_hidden_alias_is_found():
    """Both are in one memory, but on storages of their own: the base of arguments is none less."""

    def called() -> list[Any]:
        x = al.ones(2, 1).mul(1.0)
        y = x.hidden_alias()
        result = cached(scaled_rows)(x, y)
        return [result.tolist(), x.tolist()]

    first = called()
    with outcomes() as found:
        again = called()
    assert [[[6.0], [3.0]], [[2.0], [1.0]]] == first == again
    assert ["hit"] == found, found.why
