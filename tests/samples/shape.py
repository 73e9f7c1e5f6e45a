"""Sample inputs of ops that pad, repeat, join and lay out: pad, repeat, hstack, diag, meshgrid."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from aotlite.ir import dtypes
from aotlite.testing.laws.samples.sample import (
    ALL,
    FLOATS,
    Sample,
    array,
    channels_last,
    expanded,
    flipped,
    gapped,
    layouts,
)
from tests.samples import register

IMAGE = (2, 2, 3, 4)


# ---------------------------------------------------------------------------------------- padding
@register("constant_pad_nd")
def _constant_pad(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        for a in layouts(dtype):
            if a.ndim:
                yield Sample((a, (1, 2)))
            yield Sample((a, ()))
        a = array((2, 3), dtype)
        for each in (a, flipped(a), gapped(a)):
            yield Sample((each, (-1, 1, 0, -1), 2.5))
            yield Sample((each, (-1, 0), 1))
        yield Sample((channels_last(array(IMAGE, dtype)), (0, 1, 1, 0)))
        yield Sample((channels_last(array(IMAGE, dtype)), (-1, 0)))
    yield Sample((array((2, 3)), (1, 0), np.nan))
    yield Sample((flipped(array((2, 3))), (1, -1, 0, 2), -0.5), smooth=True)


MODES = {"reflection_pad": "reflect", "replication_pad": "replicate", "circular_pad": "circular"}


@register(*MODES)
def _repeating_pad(name: str) -> Iterable[Sample]:
    for dtype in (*FLOATS, "int64", *(["bool"] if name == "circular_pad" else [])):
        a = array((2, 3, 4), dtype)
        for each in (a, flipped(a), gapped(a), a[0], a[:0]):
            yield Sample((each, (2, 1)))
        yield Sample((a, (1, -2, 1, 0)))
        yield Sample((expanded(array((3, 4), dtype), 2), (0, 0)))
        for image in (array(IMAGE, dtype), channels_last(array(IMAGE, dtype))):
            yield Sample((image, (3, 1, -1, 1)))
            yield Sample((image, (0, 1, 1, 0, 1, 1)))
        yield Sample((array((1, 1, 2, 2, 2), dtype), (1, 0, 1, 0, 0, 1)))
    yield Sample((np.array([[1j, 2.0, -1j]]), (1, 1)))
    yield Sample((array((2, 3, 4)), (2, 3)), smooth=True)
    yield Sample((flipped(array((2, 3, 4))), (1, 2, 2, -1)), smooth=True)


@register(*[f"{name}_backward" for name in MODES])
def _repeating_pad_backward(name: str) -> Iterable[Sample]:
    for dtype in FLOATS:
        yield Sample((flipped(array((2, 3, 7), dtype)), (2, 3, 4), (2, 1)))
        yield Sample((channels_last(array((2, 2, 3, 8), dtype)), IMAGE, (3, 1, -1, 1)))
        yield Sample((array((0, 3, 7), dtype), (0, 3, 4), (2, 1)))
    yield Sample((array((2, 3, 7)), (2, 3, 4), (2, 1)), smooth=True)


@register("pad")
def _pad(name: str) -> Iterable[Sample]:
    a = channels_last(array(IMAGE))
    yield Sample((a, (1, 1)))
    yield Sample((array((2, 3), "int64"), (1, 1)), {"value": 3})
    for mode in ("constant", *MODES.values()):
        yield Sample((a, [1, 1, 0, 2], mode))
        yield Sample((array((2, 3)), (1, 1), mode), smooth=True)


# -------------------------------------------------------------------------------------- repeating
@register("repeat")
def _repeat(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        for a in layouts(dtype):
            yield Sample((a, (2,) + (1,) * (a.ndim - 1) + (3,)))
        yield Sample((flipped(array((2, 3), dtype)), (1, 1)))
        yield Sample((array((2, 3), dtype), (0, 2)))
        yield Sample((array((), dtype), ()))
    yield Sample((flipped(array((2, 3))), (3, 1, 2)), smooth=True)
    yield Sample((array((3,)), (0,)), smooth=True)


@register("repeat()", "tile")
def _repeat_forms(name: str) -> Iterable[Sample]:
    a = flipped(array((2, 3)))
    yield Sample((a, 2, 3))
    yield Sample((a, (2, 1, 2)))
    if name == "tile":
        yield from (Sample((a, dims)) for dims in ((2,), (), 3))
    yield Sample((a, (2, 2)), smooth=True)


# ---------------------------------------------------------------------------------------- joining
STACKS = ("hstack", "vstack", "row_stack", "dstack")


@register(*STACKS, "concat", "concatenate")
def _stacks(name: str) -> Iterable[Sample]:
    a = array((2, 3))
    yield Sample(((a, flipped(a), gapped(a)),))
    yield Sample(((channels_last(array(IMAGE)),) * 2,))
    yield Sample(((array((3,), "float32"), array((3,), "int64")),))
    if name in STACKS:
        yield Sample(((array(()), array((), seed=1)),))
    else:
        yield Sample(((a, flipped(a)), -1))
    yield Sample(((a, array((2, 3), seed=1)),), smooth=True)


@register("column_stack")
def _column_stack(name: str) -> Iterable[Sample]:
    yield Sample(((array((2,)), flipped(array((2, 3))), array((2,), "int64")),))
    yield Sample(((array(()), array((), seed=1)),))
    yield Sample(((array((2,)), array((2, 3), seed=1)),), smooth=True)


@register("block_diag")
def _block_diag(name: str) -> Iterable[Sample]:
    yield Sample((flipped(array((2, 3))), array((2,), "int64"), array(())))
    yield Sample((array((0,)), array((2, 0)), array((1, 1))))
    yield Sample((array((2, 3)), array((2,), seed=1)), smooth=True)


# ------------------------------------------------------------------------------------ reordering
@register("flip()")
def _flip_forms(name: str) -> Iterable[Sample]:
    a = flipped(array((2, 3)))
    yield from (Sample((a, *dims)) for dims in ((0,), (0, 1), ((-1, 0),), ([0],)))
    yield Sample((a, 0), smooth=True)


@register("fliplr", "flipud")
def _flips(name: str) -> Iterable[Sample]:
    for a in layouts("float64"):
        if a.ndim > 1:
            yield Sample((a,))
    yield Sample((array((2, 3)),), smooth=True)


@register("rot90")
def _rot90(name: str) -> Iterable[Sample]:
    for k in (1, 2, 3, 0, -1):
        yield Sample((flipped(array((2, 3))), k))
        yield Sample((channels_last(array(IMAGE)), k, (1, -1)))
    yield Sample((array((2, 3)),), smooth=True)


@register("diff")
def _diff(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        a = array((2, 3), dtype)
        for each in (a, flipped(a), gapped(a)):
            yield from (Sample((each, n)) for n in (0, 1, 2, 5))
        yield Sample((a, 1, 0, a[:1], a[:1]))
    yield Sample((array((0,)),))
    yield Sample((array((4,)), 2, -1, array((1,), seed=1)), smooth=True)


# ------------------------------------------------------------------------------------- diagonals
@register("diag")
def _diag(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        for offset in (0, 1, -2):
            yield Sample((array((2,), dtype), offset))
            yield Sample((flipped(array((2, 3), dtype)), offset))
    yield Sample((array((0,)),))
    yield Sample((array((2,)), 1), smooth=True)
    yield Sample((array((2, 3)), -1), smooth=True)


@register("diag_embed")
def _diag_embed(name: str) -> Iterable[Sample]:
    a = flipped(array((2, 3)))
    yield from (Sample((a, *rest)) for rest in ((), (1,), (-1, 0, 2), (0, -1, 1)))
    yield Sample((array((0, 2)),))
    yield Sample((a, 1, 0, -1), smooth=True)


@register("diagflat")
def _diagflat(name: str) -> Iterable[Sample]:
    for a in (array((2,)), flipped(array((2, 2))), array(()), array((0,))):
        yield Sample((a, 1))
    yield Sample((array((2, 2)),), smooth=True)


@register("trace")
def _trace(name: str) -> Iterable[Sample]:
    for dtype in (*FLOATS, "int64", "int32"):
        yield Sample((flipped(array((2, 3), "float64")).astype(dtype),))
    yield Sample((array((0, 3)),))
    yield Sample((array((2, 3)),), smooth=True)


@register("tril_indices", "triu_indices")
def _triangle_indices(name: str) -> Iterable[Sample]:
    for offset in (-3, -1, 0, 2, 5):
        for row, col in ((3, 4), (4, 2), (1, 1), (0, 3), (3, 0)):
            yield Sample((row, col, offset))
    yield Sample((2, 3), {"dtype": dtypes.int32})


# ------------------------------------------------------------------------------------------ grids
@register("meshgrid")
def _meshgrid(name: str) -> Iterable[Sample]:
    a, b = array((3,)), gapped(array((2,)))
    for more in ({}, {"indexing": "xy"}):
        yield Sample((a, b), more)
        yield Sample((a, b, array(())), more)
        yield Sample((a,), more)
        yield Sample(([a, array((0,))],), more)
    yield Sample((a, array((2,))), {"indexing": "xy"}, smooth=True)


@register("cartesian_prod")
def _cartesian_prod(name: str) -> Iterable[Sample]:
    a, b = array((3,)), gapped(array((2,)))
    yield from (Sample(vectors) for vectors in ((a,), (a, b), (a, b, array((0,)))))
    yield Sample((a, array((2,))), smooth=True)
