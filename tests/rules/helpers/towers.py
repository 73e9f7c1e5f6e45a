"""Towers of derivatives: gradients, gradients of these, and so on, with a history throughout."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings

import aotlite as al

ORDERS = 3
gradients: Any = al.autograd.grad


def numbers(*shape: int, seed: int = 0) -> Any:
    """A leaf of normal numbers."""
    drawn = np.random.default_rng(seed).normal(size=shape)
    return al.tensor(drawn.tolist(), dtype=al.float64).requires_grad_()


def weighted(tensors: Sequence[Any]) -> Iterator[Any]:
    """A function of each tensor whose derivatives do not end."""
    for place, each in enumerate(tensors):
        yield (each * (0.5 + 0.25 * place)).sin()


def total(tensors: Sequence[Any]) -> Any:
    """A number that is a function of all."""
    terms = [term.sum() for term in weighted(tensors)]
    return sum(terms[1:], terms[0])


def history_of(grads: Sequence[Any]) -> list[Any]:
    """The gradients that can be differentiated."""
    return [g for g in grads if g is not None and g.requires_grad]


def close(one: Any, other: Any, rtol: float = 1e-6) -> bool:
    """Whether numbers are near, and all else is equal."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(close(a, b, rtol) for a, b in pairs)
    if type(one) is float and type(other) is float:
        return bool(np.isclose(one, other, rtol=rtol, atol=rtol / 10, equal_nan=True))
    return bool(one == other)


def close_but_zeros(one: Any, other: Any, rtol: float = 1e-6) -> bool:
    """Whether towers are near up to the first order at which zeros have lost their history.

    Each order is a list of gradients: None, or numbers and whether they require grad.
    """
    if not (type(one) is type(other) is list):
        return False
    for mine, its in zip(one, other, strict=False):
        if not close(mine, its, rtol):
            return len(mine) == len(its) and all(
                close(a, b, rtol) or _is_zeros(a) and (b is None or _is_zeros(b) and not b[1])
                for a, b in zip(mine, its, strict=True)
            )
    return len(one) == len(other)


def _is_zeros(grad: Any) -> bool:
    return type(grad) is tuple and type(grad[1]) is bool and not np.any(grad[0])


def many(count: int) -> Callable[[Any], Any]:
    """Settings for that many examples, the same in every run."""
    return settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
