"""First and second derivatives of a function's results by the leaves behind its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import aotlite as al
from aotlite.ir.errors import AotliteError
from aotlite.testing.generate.bodies import LIBRARY
from aotlite.testing.observe.exact_numbers import are_exact
from aotlite.testing.observe.observe_call import asked, tensors_in

Setup = Callable[[], tuple[list[Any], list[Any]]]
"""A function that makes all values that exist before a call, and the arguments."""


def derivatives(setup: Setup, body: Callable[..., Any]) -> list[np.ndarray | None] | None:
    """d f / d leaves, then d |d f / d leaves|^2 / d leaves, for f the sum of squares of all results
    with a history; None if there are no such results or leaves."""
    values, args = setup()
    leaves = leaves_of(values)
    results = [r for r in _once(body(*args)) if r.requires_grad]
    if not leaves or not results:
        return None
    value = sum([(each * each).sum() for each in results], al.zeros((), dtype=al.float64))
    first = al.autograd.grad(value, leaves, create_graph=True, allow_unused=True)
    squares = [(each * each).sum() for each in first if each is not None and each.requires_grad]
    found = list(first)
    if squares:
        total = sum(squares, al.zeros((), dtype=al.float64))
        found += al.autograd.grad(total, leaves, allow_unused=True)
    return [None if each is None else each.detach().numpy().copy() for each in found]


def leaves_of(values: Sequence[Any]) -> list[Any]:
    """The leaves that require grad, each once."""
    return [v for v in _once(values) if asked(v, "is_leaf") is True and v.requires_grad]


def _once(values: Sequence[Any]) -> list[Any]:
    return list({id(value): value for value in tensors_in(LIBRARY, values)}.values())


def derivative_differences(
    setup: Setup,
    mine: Callable[..., Any],
    its: Callable[..., Any],
    tolerance: float = 1e-5,
    found_by: Callable[..., list[Any] | None] = derivatives,
) -> list[str] | None:
    """How derivatives of `mine` differ from those of `its`; None if `its` has none, or raises.

    Numbers are equal if those of `its` are exact, else to the tolerance, of the largest of them.
    `found_by` computes those of `mine`; where it is not `derivatives`, None and zeros are one.
    """
    try:
        expected = derivatives(setup, its)
    except (AotliteError, RuntimeError):
        return None
    if expected is None:
        return None
    found = found_by(setup, mine)
    if found is not None and found_by is not derivatives:
        found = _with_zeros(found, expected)
    if found is None or [x is None for x in found] != [x is None for x in expected]:
        return [f"derivatives are {found}, expected {expected}"]
    pairs = [
        (x, y) for x, y in zip(found, expected, strict=True) if x is not None and y is not None
    ]
    exact = are_exact([y for _, y in pairs])
    return [
        f"derivative {x.tolist()}, expected {y.tolist()}"
        for x, y in pairs
        if not (_equal(x, y) if exact else _near(x, y, tolerance))
    ]


def _with_zeros(
    found: Sequence[np.ndarray | None], like: Sequence[np.ndarray | None]
) -> list[np.ndarray | None]:
    """The derivatives, None and zeros as in `like`, which has as many, or fewer: no second ones."""
    made: list[np.ndarray | None] = []
    for k, x in enumerate(found):
        y = like[k] if k < len(like) else None
        if y is None and x is not None and not x.any():
            x = None
        made.append(np.zeros_like(y) if x is None and y is not None else x)
    rest = made[len(like) :]
    return made[: len(like)] if all(each is None for each in rest) else made


def _equal(mine: np.ndarray, its: np.ndarray) -> bool:
    return bool(np.array_equal(mine, its, equal_nan=True))


def _near(mine: np.ndarray, its: np.ndarray, tolerance: float) -> bool:
    if mine.shape != its.shape or mine.dtype != its.dtype:
        return False
    largest = np.abs(its[np.isfinite(its)]).max(initial=1.0)
    return bool(np.allclose(mine, its, rtol=tolerance, atol=tolerance * largest, equal_nan=True))
