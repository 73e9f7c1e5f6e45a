"""Sample inputs of searches, quantiles and sets."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from aotlite.testing.laws.samples.sample import (
    ALL,
    FLOATS,
    NUMERIC,
    Sample,
    array,
    flipped,
    layouts,
    special,
)
from tests.samples import register

REPEATED = np.array([[2, 1, 2, 2], [2, 1, 2, 2], [0, 3, 0, 0]])


# ------------------------------------------------------------------------------------ places
@register("searchsorted")
def _searchsorted(name: str) -> Iterable[Sample]:
    line = np.array([-1.0, 0.0, 0.0, 0.5, np.inf, np.nan])
    for dtype in NUMERIC:
        steps = np.sort(array((5,), dtype))
        for a in [*layouts(dtype), special(dtype)]:
            yield Sample((steps, a))
            yield Sample((steps, a), {"right": True, "out_int32": True})
    yield Sample((line, special("float64")))
    yield Sample((line, special("float32")), {"side": "right"})
    yield Sample((line, 0.25))
    yield Sample((np.zeros(0), array((2, 3))))
    lines = np.sort(array((2, 5)), axis=1)
    yield Sample((lines, array((2, 3), seed=1)))
    yield Sample((flipped(lines), flipped(array((2, 3), seed=1))))
    yield Sample((np.array([5, 1, 3]), np.array([3, 6, 0])), {"sorter": np.array([1, 2, 0])})


@register("bucketize")
def _bucketize(name: str) -> Iterable[Sample]:
    steps = np.array([-0.25, 0.0, 0.5])
    yield from (Sample((a, steps)) for a in layouts("float64"))
    yield Sample((0.5, steps), {"right": True})
    yield Sample((array((2, 3), "int64"), steps), {"out_int32": True})


@register("quantile", "nanquantile")
def _quantile(name: str) -> Iterable[Sample]:
    several = np.array([0.1, 0.5, 1.0])
    for a in layouts("float64"):
        if a.size:
            yield Sample((a, 0.3))
            yield Sample((a, several, -1))
    yield Sample((array((2, 3), "float32"), 0.25, 1, True))
    yield Sample((array((2, 3, 4)), several, 1, True))
    yield Sample((array((2, 3, 4)), several), {"keepdim": True})
    for way in ("lower", "higher", "midpoint", "nearest"):
        yield Sample((array((2, 5)), several, 1), {"interpolation": way})
    yield Sample((np.array([[1.0, np.inf, -np.inf]]), several, 1))
    yield Sample((np.array([[1.0, np.nan, 3.0], [5.0, 4.0, 6.0], [np.nan] * 3]), 0.3, 1))
    yield Sample((array((2, 3)), 0.3, 1), smooth=True)
    yield Sample((flipped(array((4, 3))), several + 0.02 - 0.04 * (several == 1)), smooth=True)


# -------------------------------------------------------------------------------------- sets
@register("unique_slices")
def _unique_slices(name: str) -> Iterable[Sample]:
    for consecutive in (False, True):
        for dtype in ALL:
            for a in [*layouts(dtype), special(dtype)]:
                yield Sample((a, None, consecutive))
        for a in (REPEATED, REPEATED.T, flipped(REPEATED), REPEATED[:, :0].T, array((2, 3, 2))):
            yield Sample((a, 0, consecutive))
        yield Sample((REPEATED, 1, consecutive))
        yield Sample((np.array([[-0.5, 2.5, np.nan], [1.0, -1.0, 0.5]]), 1, consecutive))
        yield Sample((np.stack([REPEATED, REPEATED], 1) / 2, -1, consecutive))


@register("unique", "unique_consecutive")
def _unique(name: str) -> Iterable[Sample]:
    for asked in ({}, {"return_inverse": True}, {"return_counts": True, "dim": 1}):
        yield Sample((REPEATED,), asked)
    yield Sample((np.zeros((0, 3)),), {"return_inverse": True, "return_counts": True})


@register("bincount")
def _bincount(name: str) -> Iterable[Sample]:
    for dtype in ("int64", "int32", "uint8"):
        yield Sample((np.array([1, 5, 1, 0], dtype),))
    yield Sample((np.array([1, 0, 2, 0, 1])[::2], np.array([0.5, 2.0, -1.0], "float32")))
    yield Sample((np.array([1, 1, 0]), np.array([True, True, False]), 4))
    yield Sample((np.array([1, 1, 0]), np.array([0.5, np.nan, np.inf]), 1))
    yield Sample((np.zeros(0, "int64"), None, 3))
    yield Sample((np.zeros(0, "int64"), np.zeros(0, "float32")))


@register("histc")
def _histc(name: str) -> Iterable[Sample]:
    for dtype in FLOATS:
        for a in layouts(dtype):
            yield Sample((a, 4))
            yield Sample((a, 3, -0.5, 0.25))
        yield Sample((special(dtype), 5, -2.0, 2.0))
    yield Sample((np.ones(3), 4))
