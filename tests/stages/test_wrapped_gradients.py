"""Which gradients of wrappers are none, and which are zeros (TAN-8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import aotlite as al
from aotlite.subclasses import TwoTensor


def both(function: Callable[..., Any], make: Callable[[], Any], *, index: int = 0) -> list[Any]:
    """The gradients of what `make` gives, eager and compiled, after a backward of a result."""
    found = []
    for each in (function, al.compile(function, backend="reference")):
        leaves, args = make()
        results = each(*args)
        result = results[index] if isinstance(results, tuple) else results
        result.backward(al.ones_like(result).detach())
        found.append([None if x.grad is None else x.grad.a.tolist() for x in leaves])
    return found


@pytest.mark.rules("TAN-8")
def test_zeros_that_a_write_leaves_of_a_gradient_are_one() -> None:
    """What arrives at an empty view is summed with what its base gets, which does not arrive."""

    def overwritten(empty: Any, other: Any) -> Any:
        other.add_(other)
        total = other.sum()
        total[...] = 5
        return total * 2

    def make() -> Any:
        x = TwoTensor(al.ones(2), al.ones(2), requires_grad=True)
        base = x * 1
        return [x], [base.narrow(0, 0, 0).view(0, 1) for _ in range(2)]

    eager, compiled = both(overwritten, make)
    assert eager == compiled
    assert [[0.0, 0.0]] == compiled
