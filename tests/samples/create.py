"""Samples of factories, and of values like a tensor's."""

from __future__ import annotations

from collections.abc import Iterable

from aotlite.ir import dtypes
from aotlite.ir.geometry.memory_format import channels_last, contiguous_format
from aotlite.testing.laws.samples.sample import ALL, Sample, array, layouts
from aotlite.testing.laws.samples.sample import channels_last as nhwc
from tests.samples import register


@register("full")
def _full(name: str) -> Iterable[Sample]:
    for size in ((2, 3), (), (0,), (2, 0)):
        yield from (Sample((size, number)) for number in (2.5, 3, True))
    yield Sample(((2,), 3), {"dtype": dtypes.float64})
    yield Sample(((2,), 1.5), {"dtype": dtypes.int64})
    yield Sample(((2,), -1), {"dtype": dtypes.uint8})
    yield Sample(((2,), 7), {"dtype": dtypes.bool_})
    yield Sample(((2,), float("-inf")), {"dtype": dtypes.float16})
    yield Sample(((2,), 1 - 2j))
    yield Sample(((2,), 1.5), {"dtype": dtypes.complex128})


@register("to_device")
def _to_device(name: str) -> Iterable[Sample]:
    for dtype in ALL:
        yield from (Sample((a, "cpu")) for a in layouts(dtype))
    yield Sample((array((2, 3)), "cpu"), smooth=True)


@register("arange_of")
def _arange(name: str) -> Iterable[Sample]:
    for count in (0, 1, 5):
        yield Sample((count, 0, 1))
        yield Sample((count, 3, -2))
        yield Sample((count, -0.5, 0.25))
    yield Sample((4, 1, 1), {"dtype": dtypes.float64})
    yield Sample((4, 0.5, 1), {"dtype": dtypes.int64})
    yield Sample((4, 254, 1), {"dtype": dtypes.uint8})


@register("linspace", "logspace")
def _spaced(name: str) -> Iterable[Sample]:
    for steps in (0, 1, 2, 5, 6):
        yield Sample((0, 3, steps))
        yield Sample((1.5, -1, steps), {"dtype": dtypes.float64})
        if name == "linspace":
            yield Sample((3, -10, steps), {"dtype": dtypes.int64})
    yield Sample((0.1, 0.7, 7))
    if name == "linspace":
        yield Sample((0, 1 + 2j, 3))
    else:
        yield Sample((0, 3, 4, 2.0), {"dtype": dtypes.int64})
        yield Sample((0, 3, 4, -2.0))


@register("eye")
def _eye(name: str) -> Iterable[Sample]:
    yield from (Sample(size) for size in ((2,), (2, 3), (3, 1), (0,), (2, 0)))
    yield Sample((2, 3), {"dtype": dtypes.bool_})
    yield Sample((2,), {"dtype": dtypes.complex64})


@register("zeros_like", "ones_like", "empty_like", "full_like")
def _like(name: str) -> Iterable[Sample]:
    value = (3,) if name == "full_like" else ()
    for dtype in ALL:
        yield from (Sample((a, *value)) for a in layouts(dtype))
    image = array((2, 3, 2, 2))
    yield Sample((image, *value), {"memory_format": channels_last})
    yield Sample((nhwc(image), *value), {"memory_format": contiguous_format})
    yield Sample((array((2, 3)), *value), {"dtype": dtypes.int64})
    yield Sample((array((2, 3)), *value), {"requires_grad": True})


@register("new_zeros", "new_ones", "new_empty", "new_full")
def _new(name: str) -> Iterable[Sample]:
    value = (3,) if name == "new_full" else ()
    for dtype in ALL:
        yield Sample((array((2, 3), dtype), (2, 2), *value))
    yield Sample((array((2, 3)), (), *value))
    yield Sample((array((2, 3)), [0, 2], *value))
    yield Sample((array((2, 3)), (2,), *value), {"dtype": dtypes.complex64})


@register("new_empty_strided")
def _new_empty_strided(name: str) -> Iterable[Sample]:
    yield Sample((array((2, 3)), (2, 3), (1, 2)))
    yield Sample((array((2, 3)), (2, 3), (6, 2)), {"dtype": dtypes.int64})
    yield Sample((array((2, 3)), (0, 3), (3, 1)))
