"""Samples of the composites in `ir/ops/views/forms.py`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from aotlite.testing.laws.samples.sample import Sample, array, flipped, gapped, layouts
from tests.samples import register

GRID = (4, 6)


def _each(calls: list[tuple[Any, ...]], shape: tuple[int, ...] = GRID) -> Iterable[Sample]:
    for rest in calls:
        yield from (Sample((laid(array(shape)), *rest)) for laid in (np.asarray, flipped, gapped))
    yield Sample((flipped(array(shape)), *calls[0]), smooth=True)


@register("narrow")
def _narrow(name: str) -> Iterable[Sample]:
    yield from _each([(1, 2, 3), (0, -2, 2), (-1, 6, 0), (0, 0, 4)])
    yield Sample((array((0, 3)), 0, 0, 0))


@register("narrow_copy")
def _narrow_copy(name: str) -> Iterable[Sample]:
    for a in layouts("float32"):
        if a.ndim:
            yield Sample((a, 0, 0, min(1, a.shape[0])))
    for start in (-2, 1):
        yield Sample((flipped(array((2, 3))), -1, start, 2), smooth=True)
    yield Sample((gapped(array((2, 3))), 1, 1, 0))


@register("split()")
def _split(name: str) -> Iterable[Sample]:
    yield from _each([(2, 1), (4,), ([1, 3],), ((2, 0, 4), -1)])
    yield Sample((array(GRID),), {"split_size": 3, "dim": 1})


@register("chunk")
def _chunk(name: str) -> Iterable[Sample]:
    yield from _each([(3,), (4, 1), (9, -1), (1, 0)])
    yield Sample((array((0, 3)), 3))
    yield Sample((array((0, 3)), 2, 1))


@register("tensor_split")
def _tensor_split(name: str) -> Iterable[Sample]:
    yield from _each([(4, 1), (3,), (9, -1), ((1, 3), 1), ([-2, 9, 1],), ((),)])
    yield Sample((array((0, 3)), 2))


@register("hsplit", "vsplit", "dsplit")
def _along(name: str) -> Iterable[Sample]:
    yield from _each([(2,), ((1, 3),), ([],)], (2, 2, 4))
    if name == "hsplit":
        yield Sample((array((4,)), 2), smooth=True)
