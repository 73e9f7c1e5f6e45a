"""Sample inputs of ops that move elements by position, of products, and of ops on images."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from aotlite.testing.laws.samples.sample import (
    ALL,
    FLOATS,
    NUMERIC,
    Sample,
    array,
    channels_last,
    expanded,
    flipped,
    gapped,
    layouts,
    special,
)
from tests.samples import register

ROWS = np.array([2, 0, 0, 1])
PLACES = np.array([[0, 2, 1, 0], [1, 1, 0, 2]])


@register("gather")
def _gather(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        for a in (
            array((3, 4), dtype),
            flipped(array((3, 4), dtype)),
            gapped(array((3, 4), dtype)),
        ):
            yield Sample((a, 0, PLACES))
            yield Sample((a, -1, PLACES[:, :2].copy()))
        yield Sample((array((3, 4), dtype), 0, flipped(PLACES)))
        yield Sample((array((3, 4), dtype), 0, np.zeros((0, 4), "int64")))
        yield Sample((array((), dtype), 0, np.array(0)))
    yield Sample((array((3, 4)), 0, PLACES), smooth=True)
    yield Sample((flipped(array((3, 4))), 1, PLACES), smooth=True)


@register("scatter_add")
def _scatter_add(name: str) -> Iterable[Sample]:
    for dtype in NUMERIC:
        for a in (
            array((3, 4), dtype),
            flipped(array((3, 4), dtype)),
            gapped(array((3, 4), dtype)),
        ):
            yield Sample((a, 0, PLACES, array((2, 4), dtype, 1)))
            yield Sample((a, 1, PLACES[:, :2].copy(), array((3, 4), dtype, 1)))
        yield Sample((array((), dtype), 0, np.array(0), array((), dtype, 1)))
        yield Sample((array((3,), dtype), 0, np.zeros((0,), "int64"), array((2,), dtype)))
    yield Sample((np.array([-0.0, 0.0, 1.0]), 0, np.array([2]), np.array([1.0])))
    for shapes in (((), (), (1,)), ((), (1,), ()), ((1,), (), (2,)), ((1,), (1,), ())):
        self, index, src = shapes  # one without dimensions counts as one of size 1
        yield Sample((array(self), 0, np.zeros(index, "int64"), array(src, seed=1)), smooth=True)
    yield Sample((array((3, 4)), 0, PLACES, array((2, 4), seed=1)), smooth=True)
    yield Sample((array((3, 4)), 1, PLACES[:, :2].copy(), array((3, 3), seed=1)), smooth=True)


@register("index_select")
def _index_select(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        yield from (
            Sample((a, 0, ROWS)) for a in (array((3, 2), dtype), flipped(array((3, 2), dtype)))
        )
        yield Sample((gapped(array((2, 3), dtype)), -1, ROWS))
        yield Sample((array((3, 2), dtype), 0, np.zeros((0,), "int64")))
        yield Sample((array((3, 2), dtype), 0, np.array(2)))
        yield Sample((array((), dtype), 0, np.array([0])))
    yield Sample((array((3, 2)), 0, ROWS), smooth=True)


@register("embedding")
def _embedding(name: str) -> Iterable[Sample]:
    for dtype in FLOATS:
        first = array((3, 2), dtype)
        for a in (first, flipped(first), gapped(first)):
            yield Sample((a, ROWS))
            yield Sample((a, PLACES, 1))
        yield Sample((array((3, 2), dtype), np.array(2)))
        yield Sample((array((3, 2), dtype), np.zeros((0, 2), "int64")))
        yield Sample((array((3, 0), dtype), flipped(PLACES)))
    yield Sample((array((3, 2), "int64"), PLACES.astype("int32")))
    # Gradients of the padding row and of rows taken twice may be no derivatives: nn/test_embedding.
    yield Sample((array((3, 2)), PLACES), smooth=True)
    yield Sample((flipped(array((3, 2))), np.array([[2, 0]]), 1, True), smooth=True)


@register("index_add")
def _index_add(name: str) -> Iterable[Sample]:
    for dtype in NUMERIC:
        for a in (
            array((3, 2), dtype),
            flipped(array((3, 2), dtype)),
            gapped(array((3, 2), dtype)),
        ):
            yield Sample((a, 0, ROWS, array((4, 2), dtype, 1)))
        yield Sample((array((2, 3), dtype), 1, ROWS, array((2, 4), dtype, 1)), {"alpha": 2})
        yield Sample((array((3, 2), dtype), 0, np.zeros((0,), "int64"), array((0, 2), dtype)))
        yield Sample((array((), dtype), 0, np.array([0]), array((), dtype, 1)))
    yield Sample((array((3, 2)), 0, ROWS, array((4, 2), seed=1)), smooth=True)
    yield Sample((array((2, 3)), 1, ROWS, array((2, 4), seed=1)), {"alpha": -0.5}, smooth=True)


@register("cat")
def _cat(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        a, b = array((2, 3), dtype), array((1, 3), dtype, 1)
        yield Sample(((a, b),))
        yield Sample(((flipped(a), gapped(a)), -1))
        yield Sample(((a, np.zeros((0,), dtype), a), 1))
        yield Sample(((a, array((0, 3), dtype)),))
        yield Sample(((channels_last(array((2, 2, 2, 2), dtype)),) * 2, 1))
    yield Sample(((array((2,), "float32"), array((3,), "int64")),))
    yield Sample(((array((2,), "bool"), array((3,), "float64")),))
    yield Sample(((array((2, 3)), array((1, 3), seed=1), array((2, 3), seed=2)),), smooth=True)
    yield Sample(((flipped(array((2, 3))), array((2, 1), seed=1)), -1), smooth=True)


@register("stack")
def _stack(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        a, b = array((2, 3), dtype), array((2, 3), dtype, 1)
        yield from (Sample(((a, flipped(b), gapped(a)), dim)) for dim in (0, 1, -1))
        yield Sample(((array((), dtype), array((), dtype, 1)),))
        yield Sample(((array((0, 3), dtype),) * 2, 1))
    yield Sample(((array((2,), "float32"), array((2,), "int64")),))
    yield Sample(((array((2, 3)), array((2, 3), seed=1)), 1), smooth=True)


@register("flip")
def _flip(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        yield from (
            Sample((a, dims)) for a in layouts(dtype) if a.ndim for dims in ((0,), (-1,), ())
        )
        yield Sample((array((), dtype), ()))
    yield Sample((array((2, 3)), (0, 1)), smooth=True)


@register("roll")
def _roll(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        for a in layouts(dtype):
            yield Sample((a, (1,)))
            if a.ndim:
                yield Sample((a, (-2, 1), (0, -1)))
    yield Sample((flipped(array((2, 3))), (1, 1), (0, 0)))
    yield Sample((array((2, 3)), (2,), (1,)), smooth=True)


@register("tril", "triu")
def _triangles(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        for diagonal in (0, 1, -1):
            for a in (
                array((3, 2), dtype),
                flipped(array((3, 2), dtype)),
                gapped(array((2, 3), dtype)),
            ):
                yield Sample((a, diagonal))
        yield Sample((array((2, 2, 2), dtype),))
        yield Sample((array((0, 3), dtype),))
    yield Sample((np.full((2, 2), np.nan),))
    yield Sample((array((3, 2)), 1), smooth=True)


# --------------------------------------------------------------------------------------- products
@register("matmul")
def _matmul(name: str) -> Iterable[Sample]:
    for dtype in NUMERIC:
        a, b = array((2, 3), dtype), array((3, 2), dtype, 1)
        yield Sample((a, b))
        yield Sample((flipped(a), gapped(b)))
        yield Sample((array((2, 2, 3), dtype), b))
        yield Sample((array((2, 1, 2, 3), dtype), array((3, 3, 1), dtype, 1)))
        yield Sample((expanded(a, 2), expanded(b, 2)))
        yield Sample((array((2, 0), dtype), array((0, 3), dtype)))
        yield Sample((array((0, 2, 3), dtype), b))
        yield Sample((array((1, 1), dtype), array((1, 1), dtype, 1)))
    yield Sample((np.array([[np.inf, 1.0]]), np.array([[0.0], [np.nan]])))
    yield Sample((array((2, 3)), array((3, 2), seed=1)), smooth=True)
    yield Sample((flipped(array((2, 3))), array((2, 3, 1), seed=1)), smooth=True)


# ----------------------------------------------------------------------------------------- images
IMAGE, WEIGHT, BIAS = (2, 2, 4, 3), (4, 2, 2, 2), (4,)
WINDOWS = (
    ((1,), (0,), (1,), 1),
    ((2, 1), (1, 0), (1, 2), 1),
    ((1,), (1,), (1,), 2),
)


def _convolved(window: tuple) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The weight's and the result's shape."""
    stride, padding, dilation, groups = window
    weight = (WEIGHT[0], WEIGHT[1] // groups, *WEIGHT[2:])
    pair = lambda value, i: value[i % len(value)]
    sides = [
        (IMAGE[2 + i] + 2 * pair(padding, i) - pair(dilation, i) * (WEIGHT[2 + i] - 1) - 1)
        // pair(stride, i)
        + 1
        for i in range(2)
    ]
    return weight, (IMAGE[0], WEIGHT[0], *sides)


@register("conv2d")
def _conv2d(name: str) -> Iterable[Sample]:
    for window in WINDOWS:
        weight, _ = _convolved(window)
        for dtype in FLOATS:
            yield Sample(
                (array(IMAGE, dtype), array(weight, dtype, 1), array(BIAS, dtype), *window)
            )
            yield Sample(
                (channels_last(array(IMAGE, dtype)), array(weight, dtype, 1), None, *window)
            )
        yield Sample(
            (array(IMAGE), array(weight, seed=1), array(BIAS, seed=2), *window), smooth=True
        )
    yield Sample((flipped(array(IMAGE)), gapped(array(WEIGHT))))
    yield Sample((array((0, *IMAGE[1:])), array(WEIGHT)))
    yield Sample((array((1, 1, 1, 1)), array((1, 1, 1, 1), seed=1), array((1,), seed=2)))


@register("conv2d_input")
def _conv2d_input(name: str) -> Iterable[Sample]:
    for window in WINDOWS:
        weight, out = _convolved(window)
        for dtype in FLOATS:
            yield Sample((array(out, dtype), array(weight, dtype, 1), IMAGE, *window))
        yield Sample((channels_last(array(out)), array(weight, seed=1), IMAGE, *window))
    weight, out = _convolved(WINDOWS[1])
    yield Sample((array(out), array(weight, seed=1), IMAGE, *WINDOWS[1]), smooth=True)


@register("conv2d_weight")
def _conv2d_weight(name: str) -> Iterable[Sample]:
    for window in WINDOWS:
        weight, out = _convolved(window)
        for dtype in FLOATS:
            yield Sample((array(out, dtype), array(IMAGE, dtype, 1), weight, *window))
        yield Sample((array(out), channels_last(array(IMAGE, seed=1)), weight, *window))
    weight, out = _convolved(WINDOWS[1])
    yield Sample((array(out), array(IMAGE, seed=1), weight, *WINDOWS[1]), smooth=True)


@register("max_pool2d_with_indices")
def _max_pool(name: str) -> Iterable[Sample]:
    for dtype in NUMERIC:
        a = array((2, 2, 4, 5), dtype)
        for image in (a, channels_last(a), flipped(a), gapped(a), a[0]):
            yield Sample((image, (2,)))
        yield Sample((a, (3, 2), (2, 1), (1,), (1, 2), True))
    yield Sample((np.zeros((0, 1, 2, 2)), (2,)))
    yield Sample((special("float64").reshape(1, 3, 4), (2,), (1,)))
    yield Sample((array((1, 2, 4, 3)), (2,), (1,)), smooth=True)
    yield Sample((array((2, 4, 4)), (2,)), smooth=True)
