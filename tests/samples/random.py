"""Samples of random ops, their pure forms and their composites."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from aotlite.ir import dtypes
from aotlite.ir.geometry.memory_format import contiguous_format
from aotlite.testing.laws.samples.sample import Sample, array, expanded, flipped
from tests.samples import register

SIZES = ((), (0,), (2, 3), (9,))
FLOATING = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.complex64, dtypes.complex128)


@register("rand", "randn")
def _of_size(name: str) -> Iterable[Sample]:
    for size in SIZES:
        yield from (Sample((size,), {"dtype": dtype}) for dtype in FLOATING)
    yield Sample(((2,),))


@register("uniform", "standard_normal")
def _pure_of_size(name: str) -> Iterable[Sample]:
    for size in SIZES:
        yield Sample((7, 8, 4, size))
        yield Sample((1 << 40, 0, 0, size), {"dtype": dtypes.float64})
    yield from (Sample((3, 4, 0, (2, 3)), {"dtype": dtype}) for dtype in FLOATING)
    yield Sample((np.array(7), np.array(8), 0, (5,)), {"dtype": dtypes.float16})


@register("advance_offset")
def _advance(name: str) -> Iterable[Sample]:
    yield Sample((8, 12))
    yield Sample((np.array(1 << 40), 0))
    yield Sample((np.array((1 << 62) + 4, "uint64"), 8))


_RANGES: tuple[tuple[tuple[int, int], dict[str, Any]], ...] = (
    ((0, 5), {}),
    ((-3, 4), {"dtype": dtypes.int8}),
    ((0, 2), {"dtype": dtypes.bool_}),
    ((-(1 << 63), 1 << 63), {}),
    ((0, 1 << 64), {"dtype": dtypes.uint64}),
    ((-7, 1 << 20), {"dtype": dtypes.float32}),
)


@register("randint", "random_integers")
def _integers(name: str) -> Iterable[Sample]:
    front = (7, 8, 4) if name == "random_integers" else ()
    for bounds, wishes in _RANGES:
        yield Sample((*front, *bounds, (2, 3)), wishes)
    yield from (Sample((*front, 0, 1 << 62, size)) for size in SIZES)


@register("randperm", "random_permutation")
def _permutations(name: str) -> Iterable[Sample]:
    front = (7, 8, 4) if name == "random_permutation" else ()
    yield from (Sample((*front, n)) for n in (0, 1, 2, 9))
    yield Sample((*front, 5), {"dtype": dtypes.float32})
    yield Sample((*front, 5), {"dtype": dtypes.int16})


def probabilities(shape: tuple[int, ...], dtype: str = "float64") -> np.ndarray:
    """Different numbers from 0 to 1, these two among them."""
    count = max(int(np.prod(shape)), 1)
    return np.linspace(0, 1, count)[: int(np.prod(shape))].reshape(shape).astype(dtype)


@register("bernoulli", "bernoulli_at")
def _bernoulli(name: str) -> Iterable[Sample]:
    front = (7, 8, 4) if name == "bernoulli_at" else ()
    for dtype in ("float32", "float64", "float16"):
        for a in (probabilities((2, 3), dtype), flipped(probabilities((3, 3), dtype))):
            yield Sample((*front, a))
    yield Sample((*front, expanded(probabilities((4,)), 3)))
    yield Sample((*front, probabilities(())))
    yield Sample((*front, probabilities((0, 3))))


@register("normal_of", "normal_at")
def _normal(name: str) -> Iterable[Sample]:
    front = (7, 8, 4) if name == "normal_at" else ()
    for dtype in ("float32", "float64", "float16"):
        a, b = array((2, 3), dtype), np.abs(array((2, 3), dtype, 1))
        yield Sample((*front, flipped(a), b))
    yield Sample((*front, a, 0.5))
    yield Sample((*front, 0.5, b))
    yield Sample((*front, array((3, 1)), np.abs(array((2,), "float32"))))
    yield Sample((*front, array(()), 1.0))
    yield Sample((*front, array((0, 3)), np.ones((1, 3))))


@register("multinomial", "multinomial_at", "multinomial()")
def _multinomial(name: str) -> Iterable[Sample]:
    front = (7, 8, 4) if name == "multinomial_at" else ()
    for dtype in ("float32", "float64", "float16"):
        weights = probabilities((3, 5), dtype)
        yield Sample((*front, weights, 3))
        yield Sample((*front, flipped(weights), 7, True))
    yield Sample((*front, probabilities((6,)), 1))
    yield Sample((*front, expanded(probabilities((4,)), 3), 3))
    yield Sample((*front, np.ones((0, 4)), 2))
    yield Sample((*front, np.ones((1, 1)), 1))


# -------------------------------------------------------------------------------------- composites
@register("bernoulli()")
def _bernoulli_forms(name: str) -> Iterable[Sample]:
    yield Sample((probabilities((2, 3)),))
    yield Sample((flipped(array((2, 3), "int64")), 0.5))
    yield Sample((array((2, 3)), 1))


@register("rand_like", "randn_like", "randint_like")
def _like(name: str) -> Iterable[Sample]:
    bounds = (2, 7) if name == "randint_like" else ()
    for a in (array((2, 3)), flipped(array((2, 3), "float32")), expanded(array((3,)), 2)):
        yield Sample((a, *bounds))
    yield Sample((array((2, 3)), *bounds), {"dtype": dtypes.float32, "requires_grad": True})
    yield Sample((flipped(array((2, 3))), *bounds), {"memory_format": contiguous_format})
    if bounds:
        yield Sample((array((2, 3)), 4))


_INPLACE: dict[str, list[tuple[Any, ...]]] = {
    "uniform_": [(), (-1.0, 2.0)],
    "normal_": [(), (1.0, 0.5)],
    "log_normal_": [(), (0.0, 0.5)],
    "exponential_": [(), (2.0,)],
    "geometric_": [(0.25,)],
    "bernoulli_": [(), (0.25,), (np.array([0.0, 1.0, 0.5]),)],
    "random_": [(), (5,), (-5, 5)],
}


@register(*_INPLACE)
def _in_place(name: str) -> Iterable[Sample]:
    for args in _INPLACE[name]:
        for a in (array((2, 3)), flipped(array((2, 3), "float32")), array((0, 3))):
            yield Sample((a, *args))
    if name in ("bernoulli_", "random_"):
        yield Sample((array((2, 3), "int64"), *_INPLACE[name][1]))
        yield Sample((array((2, 3), "bool"),))
