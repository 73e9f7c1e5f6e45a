"""What is known of sizes stays known, whatever else is learned: bounds only become tighter."""

from __future__ import annotations

import itertools
import signal
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


AT_ZERO: dict[str, Callable[[Any, Any, Any], Any]] = {
    "a == c * min(1, b)": lambda a, b, c: a == c * least(b),
    "c == b * min(1, a)": lambda a, b, c: c == b * least(a),
    "a == b": lambda a, b, c: a == b,
    "b == a * c": lambda a, b, c: b == a * c,
    "b <= 1": lambda a, b, c: b <= 1,
    "a < 2": lambda a, b, c: a < 2,
    "a * a != 4": lambda a, b, c: a * a != 4,
    "c * b >= 0": lambda a, b, c: c * b >= 0,
}


def least(size: Any) -> Any:
    return size.table.call("min", 1, size)


def test_no_value_leads_back_to_itself() -> None:
    """`min(1, b)` is b where b is at most 1; with b == c * min(1, b) that is no value for it."""

    def too_long(*_: object) -> None:
        raise TimeoutError(f"facts are put into each other without end: {names}")

    before = signal.signal(signal.SIGALRM, too_long)
    try:
        for names in itertools.permutations(AT_ZERO, 4):
            signal.alarm(20)
            table = SymbolTable()
            a, b, c = (table.symbol(0, name, lower=0) for name in "abc")
            for name in names:
                assert AT_ZERO[name](a, b, c)
            for size in (a, b, c, least(a), least(b), a * c):
                low, high = table.range(size)
                assert (low is None or low <= 0) and (high is None or high >= 0)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
