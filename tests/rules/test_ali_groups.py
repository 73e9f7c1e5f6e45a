"""Which inputs become one memory: connected by overlaps, and written, against brute force."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir.graph.role import Hidden, Primal

ROOM = 16
SHAPES = [(0,), (1,), (2,), (3,), (2, 2)]
STRIDES = [1, 2, 3, 5]
DTYPES = {al.int64: 1, al.int32: 2}
"""How many elements of each dtype lie in one of the buffer's."""


@st.composite
def windows(draw):
    """(dtype, shape, strides, start) in the buffer, whose elements have addresses of their own."""
    dtype = draw(st.sampled_from([al.int64, al.int64, al.int32]))
    shape = draw(st.sampled_from(SHAPES))
    strides = (5, 1) if len(shape) == 2 else (draw(st.sampled_from(STRIDES)),)
    reach = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    highest = ROOM * DTYPES[dtype] - 1 - max(reach, 0)
    return dtype, shape, strides, draw(st.integers(0, highest))


def addresses(window):
    """The bytes of a window."""
    dtype, shape, strides, start = window
    found = {start} if 0 not in shape else set()
    for size, stride in zip(shape, strides, strict=True):
        found = {each + k * stride for each in found for k in range(size)}
    size = dtype.itemsize
    return {each * size + byte for each in found for byte in range(size)}


def components(given):
    """Connected by overlaps, by brute force; lists of places."""
    groups = []
    for place, window in enumerate(given):
        mine = addresses(window)
        met = [group for group in groups if any(addresses(given[i]) & mine for i in group)]
        groups = [group for group in groups if group not in met]
        groups.append(sorted(i for group in [*met, [place]] for i in group))
    return sorted(groups)


def body(written):
    outside = al.tensor([2])

    def function(*arguments):
        for i in written:
            arguments[i].mul_(3).add_(1)
        return [argument * outside for argument in arguments]

    return function


def parts_of(buffer, given):
    return [buffer.view(dtype).as_strided(*window) for dtype, *window in given]


def call(function, given):
    buffer = al.arange(ROOM)
    results = [each.tolist() for each in function(*parts_of(buffer, given))]
    return results, buffer.tolist(), buffer.version


ROW = (al.int64, (3,), (1,))
THREE = [(*ROW, 0), (*ROW, 2), (*ROW, 10)]
ONE = [(al.int64, (1,), (2,), 0), (al.int64, (2, 2), (5, 1), 0)]


@pytest.mark.draws(long=320)
@pytest.mark.rules("ALI-1", "ALI-6", "ALI-8", "SYN-1")
@settings(max_examples=53)
@given(st.lists(windows(), min_size=2, max_size=4), st.sets(st.integers(0, 3), max_size=2))
@example(THREE, {0})
@example(THREE, {2})
@example([(al.int64, (2, 2), (5, 1), 0), (al.int64, (2, 2), (5, 1), 2)], {0, 1})
@example([(*ROW, 0), (al.int32, (3,), (2,), 5)], {1})
@example(ONE, {0})
def test_inputs_that_a_write_connects_are_one_memory_and_no_others(given, written):
    written = sorted(i for i in written if i < len(given))
    function = body(written)
    compiled = al.compile(function)
    assert call(function, given) == call(compiled, given)
    parts = parts_of(al.zeros(ROOM, dtype=al.int64), given)
    convention = al.inspect.stages_of(function, *parts)["convention"]
    bases = convention.bases
    groups = [group for group in components(given) if len(group) > 1]
    expected = [group for group in groups if not set(written).isdisjoint(group)]
    found = [[member.role for member in base.members] for base in bases]
    assert [[Primal(i) for i in group] for group in expected] == sorted(found, key=str)
    alone = [i for i in range(len(given)) if not any(i in group for group in expected)]
    assert tuple(Primal(i) for i in alone) == convention.arguments
    assert (Hidden(0),) == convention.hidden


@pytest.mark.rules("ALI-8", "ALI-1")
def test_a_change_of_geometry_alone_connects_nothing():
    def function(x, y):
        x.t_()
        return x + y

    buffer = al.arange(6.0)
    x, y = buffer.as_strided((2, 2), (2, 1), 0), buffer.as_strided((2, 2), (2, 1), 1)
    assert () == al.inspect.stages_of(function, x, y)["convention"].bases
    expected = (x.t() + y).tolist()
    assert expected == al.compile(function)(x, y).tolist()
    assert (1, 2) == x.stride()
