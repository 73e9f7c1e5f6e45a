"""Indices that leave the range of int64 wrap around in compiled code as they do in eager."""

from __future__ import annotations

from typing import Any

import pytest

import aotlite as al


@pytest.mark.parametrize("times", [3, 4, 5])
@pytest.mark.parametrize("factor", [2**16, -(2**16), 3 * 2**15])
def test_products_of_indices_wrap_around(times: int, factor: int) -> None:
    """Four times 2**16 is 0 in int64: every index was taken to be beyond 5, and gave 0."""

    def function(i: Any) -> Any:
        k = al.arange(12)
        for _ in range(times):
            k = k * factor
        return al.where(k < 5, i, 0)

    i = al.arange(1, 13)
    assert function(i).tolist() == al.compile(function, backend="cpu")(i).tolist()


@pytest.mark.parametrize("times", [2, 3])
def test_sums_of_indices_wrap_around(times: int) -> None:
    def function(i: Any) -> Any:
        k = al.arange(12) * 2**61
        for _ in range(times):
            k = k + k
        return al.where(k < 5, i, 0)

    i = al.arange(1, 13)
    assert function(i).tolist() == al.compile(function, backend="cpu")(i).tolist()
