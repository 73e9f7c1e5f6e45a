"""What is known of sizes stays known, whatever else is learned: bounds only become tighter."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from aotlite.ir.symbols.table import SymbolTable

pytestmark = pytest.mark.rules("DYN-2", "DYN-11")

LEARNED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a + b == 8": lambda a, b, c: a + b == 8,
    "a == b - 2": lambda a, b, c: a == b - 2,
    "a * b == 15": lambda a, b, c: a * b == 15,
    "c == a + 1": lambda a, b, c: c == a + 1,
    "a % 2 == 1": lambda a, b, c: a % 2 == 1,
    "b // 2 == 2": lambda a, b, c: b // 2 == 2,
    "c >= 2": lambda a, b, c: c >= 2,
    "c < b": lambda a, b, c: c < b,
    "a != c": lambda a, b, c: a != c,
    "2 * c == b + 3": lambda a, b, c: 2 * c == b + 3,
    "a // 3 == c // 4": lambda a, b, c: a // 3 == c // 4,
    "b == 5": lambda a, b, c: b == 5,
}


@pytest.mark.parametrize("lower", [0, 2, None])
def test_bounds_only_become_tighter(lower: int | None) -> None:
    for names in itertools.permutations(LEARNED, 2):
        table = SymbolTable()
        a = table.symbol(3, "a", lower=0)
        b = table.symbol(5, "b", lower=lower)
        c = table.symbol(4, "c", lower=0, upper=9)
        extremes = table.call("min", 1, b), table.call("max", a, 3), table.call("min", a, b)
        sizes = (a, b, c, *extremes, 2 * c + 1, b // 2, -c)
        known = [table.range(each) for each in sizes]
        for name in names:
            assert LEARNED[name](a, b, c)
            bounds = [table.range(each) for each in sizes]
            for size, (low, high), (before, above) in zip(sizes, bounds, known, strict=True):
                assert before is None or low is not None and low >= before, (names, size)
                assert above is None or high is not None and high <= above, (names, size)
            known = bounds
