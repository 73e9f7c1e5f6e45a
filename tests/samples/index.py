"""Sample inputs of indexing by tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from aotlite.testing.laws.samples.sample import (
    ALL,
    NUMERIC,
    Sample,
    array,
    expanded,
    flipped,
    gapped,
)
from tests.samples import register

I = np.array([0, -1, 1])
J = np.array([[1], [0]])
UNLIKE = np.array([[2, 0], [1, -1]])
"""No two in one place of a dimension of size 4."""
EMPTY = np.zeros((0,), "int64")

PICKS: tuple[tuple[tuple[Any, ...], tuple[int, ...]], ...] = (
    ((I,), (0,)),
    ((I,), (1,)),
    ((flipped(UNLIKE),), (2,)),
    ((I, J), (0, 1)),
    ((I, J), (0, 2)),
    ((J, np.array(1)), (1, 2)),
    ((I, gapped(I), I), (0, 1, 2)),
    ((I.astype("int32"), J), (1, 2)),
    ((EMPTY,), (1,)),
)


def _parents(dtype: str) -> list[np.ndarray]:
    a = array((2, 3, 4), dtype)
    return [a, flipped(a), gapped(a), expanded(a[0], 2), a.transpose(2, 0, 1)[:3, :, :2]]


@register("index")
def _index(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        for indices, dims in PICKS:
            yield Sample((array((2, 3, 4), dtype), indices, dims))
        for a in _parents(dtype):
            yield Sample((a, (J,), (1,)))
            yield Sample((a, (np.array([0, 1]), J), (0, 2)))
    yield Sample((array((0, 3)), (EMPTY,), (0,)))
    yield Sample((array((3, 0)), (np.array([2, 0]),), (0,)))
    yield Sample((np.array([1j, 2 - 1j]), (np.array([1, 1]),), (0,)))
    yield Sample((array((2, 3, 4)), (I, J), (0, 2)), smooth=True)
    yield Sample((flipped(array((3, 2))), (I,), (0,)), smooth=True)


@register("index_put")
def _index_put(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        for a in _parents(dtype)[:3]:
            for add in (False, True):
                yield Sample((a, (UNLIKE,), (2,), array((2, 3, 2, 2), dtype, 1), add))
                pair = np.array([0, 1]), np.array([1, 0])
                yield Sample((a, pair, (0, 2), array((3,), dtype), add))
        a = array((2, 3), dtype)
        yield Sample((a, (np.array([1, 1, 0]),), (0,), array((), dtype, 1), True))
        yield Sample((a, (EMPTY,), (1,), array((), dtype, 1)))
        yield Sample((array((0, 3), dtype), (np.array([2]),), (1,), array((1,), dtype, 1)))
    yield Sample((np.array([-0.0, 1.0]), (np.array([1]),), (0,), np.array(np.nan)))
    for add in (False, True):
        where = (np.array([1, 0]), np.array([[2], [0]]))
        args = (array((2, 3, 4)), where, (0, 2), array((2, 1, 3), seed=1), add)
        yield Sample(args, smooth=True)
    repeated = np.array([1, 1, 0])
    last = (flipped(array((2, 3))), (repeated,), (0,), array((3, 3), seed=1), True)
    yield Sample(last, smooth=True)


@register("index_put()", "index_put_()")
def _index_put_list(name: str) -> Iterable[Sample]:
    mask = array((2, 3), "bool", 1)
    for add in (False, True):
        yield Sample((array((2, 3, 2)), (mask,), array((), seed=1), add))
        yield Sample((array((2, 3, 2)), (None, I), array((2, 3, 2), seed=1), add))
        pair = np.array([0, 1]), np.array([1, 1])
        yield Sample((flipped(array((2, 3))), pair, array((1,)), add))
    args = (array((2, 3)), (None, np.array([0, 2])), array((1, 2), seed=1))
    yield Sample(args, smooth=name == "index_put()")


@register("take")
def _take(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        a = array((2, 3), dtype)
        for each in (a, flipped(a), gapped(a), expanded(a[0], 2)):
            yield Sample((each, np.array([[5, 0], [-1, 0]])))
        yield Sample((a, flipped(np.array([[5, 0, 1], [-1, 0, 2]]))))
        yield Sample((a, np.array(3)))
        yield Sample((array((0, 3), dtype), np.zeros((0, 2), "int64")))
        yield Sample((array((), dtype), np.array([0, -1])))
    yield Sample((flipped(array((2, 3))), np.array([[5, 0], [-1, 0]])), smooth=True)


@register("put")
def _put(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        a = array((2, 3), dtype)
        for each in (a, flipped(a), gapped(a)):
            yield Sample((each, np.array([[5, 0], [-2, 1]]), array((4,), dtype, 1)))
        yield Sample((a, np.array([1, 1, -5]), array((3,), dtype, 1), True))
        yield Sample((a, np.zeros((0,), "int64"), array((0, 2), dtype)))
    for add in (False, True):
        args = (flipped(array((2, 3))), np.array([[5, 0], [-2, 1]]), array((4,), seed=1), add)
        yield Sample(args, smooth=True)


@register("take_along_dim")
def _take_along_dim(name: str) -> Iterable[Sample]:
    a = array((2, 3))
    for dtype in NUMERIC:
        yield Sample((flipped(array((2, 3), dtype)), np.array([[1], [0]]), 1))
        yield Sample((array((2, 3), dtype), np.array([[1, 0, 1, 0]]).T[:2], -1))
        yield Sample((array((2, 3), dtype), np.array([[5, 0]])))
    yield Sample((a, np.array([[1], [1]]), 0), smooth=True)
    yield Sample((array((1, 3)), np.array([[1], [1]]), 1), smooth=True)
