"""DYN-2: reductions of which the gradient depends on how many elements there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al

SIZES = (4, 7, 2, 12, 5)
CASES: dict[str, Callable[[Any], Any]] = {
    "var": lambda x: x.var(0),
    "var of all": lambda x: x.var(),
    "var without correction": lambda x: x.var(0, correction=0),
    "var with a correction of halves": lambda x: x.var(0, correction=0.5),
    "var with a whole float": lambda x: x.var(0, correction=1.0),
    "std": lambda x: x.std(0, keepdim=True),
    "std and mean": lambda x: al.std_mean(x, 0)[0],
    "prod": lambda x: x.prod(0),
    "prod of all": lambda x: x.prod(),
    "prod of rows": lambda x: (x * x).prod(1, keepdim=True).sum(0),
}


def _data(n: int) -> al.Tensor:
    numbers = np.random.default_rng(n).uniform(-1.5, 1.5, (n, 3))
    numbers[0, 0] = 0  # one zero in a column, two in another
    numbers[:2, 1] = 0
    return al.tensor(numbers).requires_grad_()


def _gradient(function: Callable[[Any], Any], x: al.Tensor) -> tuple[al.Tensor, al.Tensor]:
    result = function(x)
    (grad,) = al.autograd.grad((result * result).sum() + result.sum(), [x])
    assert grad is not None
    return result.detach(), grad


@pytest.mark.rules("DYN-2")
@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", CASES)
def test_one_entry_serves_all_sizes(name: str) -> None:
    compiled = al.compile(CASES[name], dynamic=True, backend="reference")
    for n in SIZES:
        for found, expected in zip(
            _gradient(compiled, _data(n)), _gradient(CASES[name], _data(n)), strict=True
        ):
            assert found.meta is expected.meta
            assert found.numpy().tobytes() == expected.numpy().tobytes()
    assert len(compiled.entries) == 1


@pytest.mark.rules("DYN-2", "DYN-26")
def test_a_correction_may_be_a_symbol() -> None:
    compiled = al.compile(lambda x, by: x.var(0, correction=by), dynamic=True, backend="reference")
    for n, by in ((4, 0), (7, 1), (9, 3)):
        assert (compiled(_data(n), by) == _data(n).var(0, correction=by)).all()
    assert len(compiled.entries) == 1


@pytest.mark.rules("DYN-2")
def test_too_few_elements_are_an_entry_of_their_own() -> None:
    compiled = al.compile(CASES["var"], dynamic=True, backend="reference")
    for n in (4, 1, 0, 6):
        found = compiled(_data(4)[:n].detach().requires_grad_())
        expected = _data(4)[:n].var(0)
        np.testing.assert_array_equal(found.detach().numpy(), expected.detach().numpy())
    assert len(compiled.entries) <= 3


def test_gradient_of_a_product_with_zeros() -> None:
    """One zero in a row: only its own element has a gradient; two zeros: none has."""
    x = al.tensor([[2.0, 0.0, 3.0], [0.0, 5.0, 0.0], [2.0, 3.0, 4.0]], requires_grad=True)
    x.prod(1).sum().backward()
    expected = [[0.0, 6.0, 0.0], [0.0, 0.0, 0.0], [12.0, 8.0, 6.0]]
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), expected)
