"""DYN: a region takes the calls that it was captured for, and no others."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import aotlite as al


def added(x: Any, *others: Any) -> Any:
    return x * 2 + sum(others)


def with_default(x: Any, w: Any = None, n: int = 3) -> Any:
    return x * 2 if w is None else x + w * n


def counted(x: Any, *others: Any) -> Any:
    return x[x > 1] * 2 + sum(others)


def calls(function: Any, n: int) -> list[tuple[Any, ...]]:
    x = al.arange(float(n))
    if function is with_default:
        return [(x,), (x, x), (x, x, 5), (x, None), (x, None, n)]
    return [(x,), (x, 1), (x, n), (x, 1, n), (x, 1, 2, n), (x, 0.5)]


@pytest.mark.rules("DYN-8")
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", [added, with_default, counted], ids=lambda f: f.__name__)
def test_a_call_with_other_arguments_is_of_another_region(function: Any, dynamic: Any) -> None:
    forms = len(calls(function, 3))
    for first, second in itertools.permutations(range(forms), 2):
        compiled = al.compile(function, dynamic=dynamic, backend="reference")
        for n, which in ((3, first), (4, first), (4, second), (5, second), (5, first), (6, second)):
            given = calls(function, n)[which]
            assert compiled(*given).tolist() == function(*given).tolist()
