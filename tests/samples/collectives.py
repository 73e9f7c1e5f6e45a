"""Sample inputs of collectives: one array a rank."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from aotlite.testing.laws.samples.sample import ALL, FLOATS, Sample, array, flipped, gapped, special
from tests.samples import register

LINEAR, NONLINEAR = ("sum", "avg"), ("product", "max", "min")


def reductions(name: str) -> tuple[str, ...]:
    """The reductions that the op or composite of this name forms."""
    if name.endswith("()"):
        return LINEAR + NONLINEAR
    return NONLINEAR if name.endswith("nonlinear") else LINEAR


def ranks(count: int, shape: tuple[int, ...], dtype: str = "float64", seed: int = 0) -> Any:
    """An array a rank, no two with an equal element at a place."""
    whole = array((count, *shape), dtype, seed)
    return tuple(np.array(whole[rank]) for rank in range(count))


def layouts(shape: tuple[int, ...], dtype: str) -> Iterable[Any]:
    """Ranks that lie alike, and each in its own way."""
    yield ranks(2, shape, dtype)
    a, b, c = ranks(3, shape, dtype, 1)
    yield (a,)
    yield a, flipped(b), gapped(c)
    yield tuple(map(flipped, (a, b)))


def takes(op: str, dtype: str) -> bool:
    """Whether the reduction is formed of this dtype."""
    if op in ("max", "min"):
        return True
    return dtype != "bool" and (op != "avg" or dtype in FLOATS)


@register("wait")
def _wait(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        yield from (Sample((each,)) for each in layouts((2, 3), dtype))
        yield Sample((ranks(2, (), dtype),))
        yield Sample((ranks(2, (0, 2), dtype),))
    yield Sample((ranks(3, (2, 3)),), smooth=True)


@register("broadcast")
def _broadcast(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        yield from (Sample((each,)) for each in layouts((2, 3), dtype))
        yield from (Sample((ranks(3, (2,), dtype), source)) for source in range(3))
        yield Sample((ranks(2, (), dtype), 1))
    yield Sample((ranks(3, (2, 3)), 1), smooth=True)


@register("all_reduce", "all_reduce_nonlinear", "all_reduce()")
def _all_reduce(name: str) -> Iterable[Sample]:
    for op in reductions(name):
        for dtype in (each for each in ALL if takes(op, each)):
            yield from (Sample((each, op)) for each in layouts((2, 3), dtype))
            yield Sample((ranks(2, (), dtype), op))
            yield Sample((ranks(2, (0, 2), dtype), op))
        if op != "product":  # in another order, zero times infinity may not come up
            line = special("float32")
            line = line[~np.isnan(line)]
            yield Sample(((line, line[::-1].copy()), op))
        for count in (2, 4):
            yield Sample((ranks(count, (2, 3)), op), smooth=True)
    if name == "all_reduce":
        yield Sample((ranks(1, (2, 3)), "avg"), smooth=True)
        yield Sample(((np.array([1 + 2j, -1j]), np.array([0.5 - 1j, 2 + 0j])), "sum"))


@register("all_gather")
def _all_gather(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        for dim in (0, 1, -1):
            yield from (Sample((each, dim)) for each in layouts((2, 3), dtype))
        yield Sample((ranks(2, (0, 2), dtype), 1))
    yield from (Sample((ranks(3, (2, 3)), dim), smooth=True) for dim in (0, -1))


@register("reduce_scatter", "reduce_scatter_nonlinear", "reduce_scatter()")
def _reduce_scatter(name: str) -> Iterable[Sample]:
    for op in reductions(name):
        for dtype in (each for each in ALL if takes(op, each)):
            for dim in (0, 1, -1):
                yield from (Sample((each, dim, op)) for each in layouts((6, 6), dtype))
            yield Sample((ranks(2, (0, 2), dtype), 1, op))
        for count in (2, 3):
            yield Sample((ranks(count, (2, 6)), -1, op), smooth=True)


@register("all_to_all")
def _all_to_all(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        for split, concat in ((0, 1), (1, 0), (-1, -1)):
            yield from (Sample((each, split, concat)) for each in layouts((6, 6), dtype))
        yield Sample((ranks(2, (0, 2), dtype), 1, 0))
    for split, concat in ((0, 1), (1, 0), (1, 1)):
        yield Sample((ranks(2, (2, 4)), split, concat), smooth=True)
