"""Sample inputs of ops in `ir/ops/index/sort.py` and of norms."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from aotlite.ir import dtypes
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

MANY_TIES = np.arange(40) * 7 % 5
TIES = np.array([[2, 1, 2, 1, 2], [3, 3, 1, 0, 1]])


def _lines(a: np.ndarray, dim: int) -> bool:
    """Whether there is an element along the dimension."""
    return not a.ndim or a.shape[dim] > 0


@register("sort")
def _sort(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        for a in [*layouts(dtype), special(dtype)]:
            yield Sample((a,))
            yield Sample((a, 0, True))
    yield Sample((TIES, 1), {"stable": True})
    yield Sample((TIES.astype("float16"), 1, True), {"stable": True})
    yield Sample((np.array([np.nan, 1.0, np.nan, -0.0, 0.0]), 0, True))
    yield Sample((MANY_TIES,))
    yield Sample((MANY_TIES / 2, 0, True), {"stable": True})
    yield Sample((MANY_TIES / 4,))
    yield Sample((array((2, 3)),), smooth=True)
    yield Sample((flipped(array((2, 3))), 0, True), smooth=True)


@register("argsort")
def _argsort(name: str) -> Iterable[Sample]:
    yield from (Sample((a,)) for a in layouts("float32"))
    yield Sample((TIES,), {"dim": 1, "descending": True, "stable": True})
    yield Sample((MANY_TIES,))


@register("msort")
def _msort(name: str) -> Iterable[Sample]:
    yield from (Sample((a,)) for a in layouts("int64"))
    yield Sample((flipped(array((2, 3))),), smooth=True)


@register("topk")
def _topk(name: str) -> Iterable[Sample]:
    for dtype in NUMERIC:
        for a in layouts(dtype):
            yield Sample((a, 0))
            if _lines(a, 0):
                yield Sample((a, 1, 0))
    yield from (Sample((special(dtype), 4)) for dtype in FLOATS)
    yield Sample((array((2, 3)), 2, -1, False, False))
    yield Sample((TIES, 3, 1))
    yield Sample((TIES / 4, 2, 1))
    yield Sample((array((2, 3)), 2), smooth=True)
    yield Sample((flipped(array((2, 3))), 1, 0, False), smooth=True)


@register("kthvalue", "median_dim", "nanmedian_dim", "mode")
def _chosen(name: str) -> Iterable[Sample]:
    first = (1,) if name == "kthvalue" else ()
    for dtype in NUMERIC:
        for a in layouts(dtype):
            yield from (Sample((a, *first, d)) for d in (0, -1) if _lines(a, d))
    yield from (Sample((special(dtype), *first, 0)) for dtype in FLOATS)
    yield Sample((TIES, *first, 1))
    yield Sample((np.array([[np.nan, 1.0, np.nan, 3.0], [np.nan] * 4]), *first, 1))
    yield Sample((array((2, 3)), *first, 1, True), smooth=True)
    yield Sample((flipped(array((2, 3))), *(2,) * len(first), 0), smooth=True)


@register("median", "nanmedian")
def _medians(name: str) -> Iterable[Sample]:
    for dtype in NUMERIC:
        yield from (Sample((a,)) for a in layouts(dtype) if a.size or dtype != "int64")
    yield from (Sample((special(dtype),)) for dtype in FLOATS)
    yield Sample((TIES,))
    yield Sample((np.array([2.0, 1.0, 2.0, np.nan]),))
    yield Sample((np.array([2.0, 1.0, 2.0]),))
    yield Sample((flipped(array((2, 3))),), smooth=True)


@register("median()", "nanmedian()")
def _medians_in_all_forms(name: str) -> Iterable[Sample]:
    for args in ((), (1,), (0, True)):
        yield Sample((array((2, 3)), *args), smooth=True)
    yield Sample((array((2, 3), "int64"),), {"dim": -1})


# ------------------------------------------------------------------------------------- norms
@register("linalg_vector_norm")
def _vector_norm(name: str) -> Iterable[Sample]:
    for dtype in FLOATS:
        for a in layouts(dtype):
            yield Sample((a, 2.0, None if a.ndim < 2 else (-1,)))
        for order in (0, 1, 2, 3, 0.5, 1.5, -1, np.inf, -np.inf):
            yield Sample((array((2, 3), dtype), order, (1,), True))
            yield Sample((special(dtype)[[0, 1, 5, 6]], order))
        yield Sample((special(dtype), np.inf))
        yield Sample((special(dtype), 2))
    for order in (0, 1, 2, 3, 4, 0.5, 1.5, -1, np.inf, -np.inf):
        yield Sample((array((2, 3)), order, (0,)), smooth=True)
    yield Sample((flipped(array((2, 3))), 2, ()), smooth=True)
    for order in (0, 1, 2, 3, np.inf):
        yield Sample((array((2, 3)) + 1j * array((2, 3), seed=1), order, (1,)))
    yield Sample((array((2, 3), "float32"),), {"dtype": dtypes.float64})
    yield Sample((np.zeros((2, 0)), 0.5))
    yield Sample((np.zeros((2, 3)), 2, (1,)))


@register("norm")
def _norm(name: str) -> Iterable[Sample]:
    a = array((2, 3))
    yield from (Sample((a, *args), smooth=True) for args in ((), (1,), (3, 0), ("fro", (0, 1))))
    yield Sample((array((2, 3), "float32"), 2, (0, 1), True), {"dtype": dtypes.float64})
    yield Sample((flipped(a),), {"dim": 1})
    yield Sample((a, "nuc"), smooth=True)
    yield Sample((array((2, 3, 2)), "nuc", (2, 0), True))
