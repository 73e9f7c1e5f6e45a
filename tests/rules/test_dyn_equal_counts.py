"""DYN-5: one number that depends on values is one symbol, however often it is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from tests.rules.test_dyn_data import ALL, MIXED, NONE, ONE, agree

Function = Callable[[Any], Any]
VALUES: tuple[list[float], ...] = (MIXED, ONE, ALL, NONE, [1.0, -1.0], [])


def assigned(x: Any) -> Any:
    mask, z = x > 0, al.zeros_like(x)
    z[mask] = x[mask] * 3
    return z


def written_twice(x: Any) -> Any:
    y, mask = x.clone(), x > 0
    y[mask] = x[mask] * 2
    y[~mask] = x[~mask] * 3
    y[x > 0] += x[x > 0]
    return y


def items(x: Any) -> Any:
    n, again = (x > 0).sum().item(), (x > 0).sum().item()
    return al.zeros(n) + al.ones(again)


def mask_changes(x: Any) -> Any:
    mask = x > 0
    first = x[mask]
    mask.logical_not_()
    return first, x[mask]


def mask_changes_unseen(x: Any) -> Any:
    mask = x > 0
    first = x[mask]
    mask.detach().logical_not_()
    return first, x[mask]


def part_of_a_mask_changes(x: Any) -> Any:
    mask = x > 0
    first = x[mask]
    mask.view(-1)[:1] = True
    return first, x[mask]


def values_change(x: Any) -> Any:
    y = x.clone()
    first = y[y > 0]
    y.mul_(-1.0)
    return first, y[y > 0]


def values_change_uncounted(x: Any) -> Any:
    y = x.clone()
    hidden = y.hidden_alias()
    first = y[y > 0]
    hidden.mul_(-1.0)
    return first, y[y > 0]


def drawn(x: Any) -> Any:
    return x[al.rand(x.shape[0]) > 0.5], x[al.rand(x.shape[0]) > 0.5]


def other_number(x: Any) -> Any:
    return x[x > 0], x[x > 1]


COUNTS: dict[Function, int] = {
    assigned: 1,
    written_twice: 2,
    items: 1,
    mask_changes: 2,
    mask_changes_unseen: 2,
    part_of_a_mask_changes: 2,
    values_change: 2,
    values_change_uncounted: 2,
    drawn: 2,
    other_number: 2,
}
"""A function, and how many numbers it computes that depend on values."""


@pytest.mark.rules("DYN-5", "DYN-30")
@pytest.mark.parametrize("function", COUNTS, ids=lambda each: each.__name__)
def test_equal_numbers_are_one_symbol(function: Function) -> None:
    compiled = al.compile(function, backend="reference", dynamic=True)
    for values in VALUES:
        agree(compiled, function, values)
    (region,) = compiled.regions()
    assert len(region.counts) == COUNTS[function]


VALUE_SHAPES = [(1,), (2,), (3,), (1, 1, 1), (1, 2), (1, 1, 3), (2, 2), (0,), (4,)]


@pytest.mark.rules("DYN-30")
@pytest.mark.parametrize("dtype", [al.float32, al.float64], ids=str)
def test_what_is_assigned_to_a_mask_fits_as_in_eager(dtype: al.DType) -> None:
    def assign(x: Any, value: Any) -> Any:
        z = al.zeros_like(x)
        z[x > 0] = value
        return z

    compiled = al.compile(assign, backend="reference", dynamic=True)
    for shape in VALUE_SHAPES:
        for values in VALUES:
            outcomes = []
            for function in (assign, compiled):
                try:
                    result = function(al.tensor(values), al.full(shape, 7.0, dtype=dtype))
                    outcomes.append(result.tolist())
                except al.AotliteError as error:
                    outcomes.append([type(error).__name__, str(error)])
            assert outcomes[0] == outcomes[1]
