"""Sample inputs of ops that write at positions along a dimension."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from aotlite.testing.laws.samples.sample import ALL, NUMERIC, Sample, array, flipped, gapped
from tests.samples import register

PLACES = np.array([[0, 2, 1, 0], [1, 1, 0, 2]])
"""Along dimension 0 no two in one place."""
OFTEN = np.array([[0, 0, 1, 0], [0, 1, 1, 2]])
ROWS = np.array([2, 0])


def _parents(dtype: str) -> list[np.ndarray]:
    a = array((3, 4), dtype)
    return [a, flipped(a), gapped(a)]


WITHOUT_DIMENSIONS = (((), (), (1,)), ((), (1,), ()), ((1,), (), (2,)), ((1,), (1,), ()))
"""Shapes of self, index and src: one without dimensions counts as one of size 1."""


@register("scatter")
def _scatter(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        for a in _parents(dtype):
            yield Sample((a, 0, PLACES, array((2, 4), dtype, 1)))
            yield Sample((a, -1, flipped(np.array([[3, 1], [0, 2]])), array((3, 2), dtype, 1)))
        yield Sample((array((3, 4), dtype), 0, PLACES.astype("int32"), array((3, 5), dtype, 1)))
        yield Sample((array((3, 4), dtype), 0, PLACES, 1.5))
        yield Sample((array((), dtype), 0, np.array(0), array((), dtype, 1)))
        yield Sample((array((3,), dtype), 0, np.zeros((0,), "int64"), array((2,), dtype)))
    yield Sample((np.array([-0.0, 1.0]), 0, np.array([1]), np.nan))
    yield Sample((flipped(array((3, 4))), 0, PLACES, array((2, 4), seed=1)), smooth=True)
    yield Sample((array((3, 4)), 0, PLACES, array((3, 4), seed=1)), smooth=True)
    yield Sample((array((3, 4)), 0, PLACES, -0.5), smooth=True)
    for self, index, src in WITHOUT_DIMENSIONS:
        yield Sample((array(self), 0, np.zeros(index, "int64"), array(src, seed=1)), smooth=True)


@register("scatter()", "scatter_()")
def _scatter_forms(name: str) -> Iterable[Sample]:
    for a in _parents("float64"):
        yield Sample((a, 0, PLACES, array((2, 4), seed=1)))
        yield Sample((a, 0, PLACES), {"value": 2})
        for reduce in ("add", "multiply"):
            yield Sample((a, 0, PLACES, 3), {"reduce": reduce})
            yield Sample((a, 0, OFTEN, array((2, 4), seed=1)), {"reduce": reduce})
    args = (array((3, 4)), 0, PLACES, array((2, 4), seed=1))
    yield Sample(args, smooth=name == "scatter()")


REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


@register("scatter_reduce")
def _scatter_reduce(name: str) -> Iterable[Sample]:
    for reduce in REDUCTIONS:
        for own in (True, False):
            more = {"include_self": own}
            for dtype in NUMERIC:
                a = flipped(array((3, 4), dtype))
                yield Sample((a, 0, OFTEN, array((2, 4), dtype, 1), reduce), more)
            a, src = array((3, 4)), array((3, 4), seed=1) + 0.03
            yield Sample((a, 0, OFTEN, src, reduce), more, smooth=True)
            yield Sample((array((3,)), 0, np.zeros((0,), "int64"), array((2,)), reduce), more)
            yield Sample((array((3,)), 0, np.zeros((0, 2), "int64"), array((2,)), reduce), more)
            for shape, index, shape_of_src in WITHOUT_DIMENSIONS:
                pair = np.asarray(array(shape) + 0.03), array(shape_of_src, seed=1)
                args = (pair[0], 0, np.zeros(index, "int64"), pair[1], reduce)
                yield Sample(args, more, smooth=True)
            yield Sample((array(()), 0, np.array(0), array((), seed=1), reduce), more)
        values = np.array([np.nan, np.inf, -0.0, 1.0, -np.inf])
        yield Sample((np.zeros(5), 0, np.array([0, 1, 2, 2, 4]), values, reduce))
        src = np.array([0.0, 2.0, 0.0, 0.0, 3.0])
        yield Sample((array((3,)), 0, np.array([0, 0, 1, 1, 2]), src, reduce))
        if reduce != "mean":
            yield Sample((array((3, 4), "bool"), 0, OFTEN, array((2, 4), "bool", 1), reduce))
    # A product with one factor 0 has a gradient there.
    src = np.array([0.0, 2.0, -1.5])
    yield Sample((array((3,)), 0, np.array([0, 0, 2]), src, "prod"), smooth=True)
    args = (np.array([0.0, 1.0]), 0, np.array([0, 1]), np.array([2.0, 0.5]), "prod")
    yield Sample(args, smooth=True)


@register("index_copy")
def _index_copy(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        for a in _parents(dtype):
            yield Sample((a, 0, ROWS, flipped(array((2, 4), dtype, 1))))
            yield Sample((a, -1, np.array([3]), array((3, 1), dtype, 1)))
        yield Sample((array((3, 4), dtype), 0, np.zeros((0,), "int64"), array((0, 4), dtype)))
        yield Sample((array((), dtype), 0, np.array(0), array((), dtype, 1)))
        yield Sample((array((3,), dtype), 0, np.array([1]), array((), dtype, 1)))
    yield Sample((flipped(array((3, 4))), 0, ROWS, array((2, 4), seed=1)), smooth=True)


@register("index_fill")
def _index_fill(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        for a in _parents(dtype):
            yield Sample((a, 0, ROWS, 1.5))
            yield Sample((a, -1, np.array([-1, 0]), np.array(2, dtype)))
        yield Sample((array((3, 4), dtype), 0, np.zeros((0,), "int64"), 5))
        yield Sample((array((), dtype), 0, np.array(0), 5))
    yield Sample((array((3, 4)), 0, ROWS, -0.5), smooth=True)
    yield Sample((flipped(array((3, 4))), 1, ROWS, np.array(-0.5)), smooth=True)


@register("index_reduce", "index_reduce_")
def _index_reduce(name: str) -> Iterable[Sample]:
    rows = np.array([2, 0, 2])
    for reduce in REDUCTIONS[1:]:
        for own in (True, False):
            more = {"include_self": own}
            for dtype in NUMERIC:
                a = flipped(array((3, 4), dtype))
                yield Sample((a, 0, rows, array((3, 4), dtype, 1), reduce), more)
            args = (array((2, 3)), 1, rows, array((2, 3), seed=1) + 0.03, reduce)
            yield Sample(args, more, smooth=name == "index_reduce")
        yield Sample((array(()), 0, np.array(0), array((), seed=1), reduce))


@register("gather()")
def _gather_face(name: str) -> Iterable[Sample]:
    for a in _parents("float64"):
        yield Sample((a, 0, OFTEN), {"sparse_grad": False})
    yield Sample((array((3, 4)), 0, OFTEN), smooth=True)
