"""Sample inputs of ops that find the elements with a property."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from aotlite.testing.laws.samples.sample import (
    ALL,
    FLOATS,
    Sample,
    array,
    expanded,
    flipped,
    gapped,
    layouts,
    special,
)
from tests.samples import register

MASK = array((2, 3), "bool", 1)


@register("nonzero", "argwhere")
def _nonzero(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        yield from (Sample((np.where(a > 0, a, 0) if a.ndim > 2 else a,)) for a in layouts(dtype))
        yield Sample((special(dtype),))
    yield Sample((np.array(0.0),))
    yield Sample((flipped(MASK),))
    yield Sample((np.array([1j, 0j, -0.0 + 0j]),))


@register("nonzero()")
def _nonzero_face(name: str) -> Iterable[Sample]:
    for a in (array((2, 3)), np.array(0.0), np.array(2), np.array([0, 0]), array((0, 3))):
        yield from (Sample((a,), {"as_tuple": as_tuple}) for as_tuple in (False, True))


@register("masked_select")
def _masked_select(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        a = array((2, 3), dtype)
        for each in (a, flipped(a), gapped(a), expanded(a[0], 2), a[:1], array((2, 2, 3), dtype)):
            yield Sample((each, MASK))
        yield Sample((a, flipped(MASK)))
        yield Sample((a, array((3,), "bool")))
        yield Sample((array((), dtype), MASK))
        yield Sample((array((0, 3), dtype), array((3,), "bool")))
    yield Sample((array((), "float32"), np.array(True)))
    yield Sample((special("float32"), np.ones(12, bool)))
    yield Sample((np.array([1j, 2 - 1j]), np.array([False, True])))
    yield Sample((flipped(array((2, 3))), MASK), smooth=True)
    yield Sample((array((3,)), MASK), smooth=True)


@register("masked_scatter")
def _masked_scatter(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        a, source = array((2, 3), dtype), array((2, 4), dtype, 1)
        for each in (a, flipped(a), gapped(a)):
            yield Sample((each, MASK, flipped(source)))
        yield Sample((a, array((3,), "bool"), source))
        yield Sample((a, np.zeros((2, 3), bool), array((0,), dtype)))
        yield Sample((array((0, 3), dtype), array((3,), "bool"), source))
        yield Sample((array((), dtype), np.array(True), source))
    yield Sample((np.array([-0.0, 1.0]), np.array([False, True]), np.array([np.nan])))
    yield Sample((array((2, 3)), flipped(MASK), array((2, 3), seed=1)), smooth=True)


@register("masked_take")
def _masked_take(name: str) -> Iterable[Sample]:
    for dtype in FLOATS:
        for size in ((2, 1), (), (0, 2), (4, 2)):
            yield Sample((flipped(array((2, 3), dtype)), MASK, size))
        yield Sample((array((0, 3), dtype), array((3,), "bool"), (2,)))
    for count in (2, 7):
        yield Sample((array((2, 3)), MASK, (count,)), smooth=True)
    yield Sample((array((3,)), MASK, (1, 2)), smooth=True)


REPEATS = np.array([2, 0, 1])


@register("repeat_interleave")
def _repeat_places(name: str) -> Iterable[Sample]:
    for repeats in (REPEATS, gapped(REPEATS), np.zeros(0, "int64"), np.array([3], "int32")):
        yield Sample((repeats,))


@register("repeat_interleave_sized")
def _repeat_places_sized(name: str) -> Iterable[Sample]:
    yield from (Sample((*s.args, int(s.args[0].sum()))) for s in _repeat_places(name))


@register("repeat_interleave()")
def _repeat_interleave(name: str) -> Iterable[Sample]:
    yield Sample((REPEATS,))
    for dtype in ("float32", "bool"):
        a = array((3, 2), dtype)
        yield from (Sample((each, 2, 1)) for each in (a, flipped(a), gapped(a)))
        yield Sample((flipped(a), 2))
        yield Sample((expanded(a[0], 2), 0, -1))
        yield Sample((array((), dtype), 3))
        yield Sample((array((0, 2), dtype), 2, 1))
        yield Sample((flipped(a), REPEATS, 0))
        yield Sample((a, REPEATS, 0), {"output_size": 3})
        yield Sample((a, np.array(2)))
        yield Sample((a, np.array([3]), -1))
    yield Sample((flipped(array((3, 2))), 2, 0), smooth=True)
    yield Sample((array((3, 2)), REPEATS, 0), smooth=True)
