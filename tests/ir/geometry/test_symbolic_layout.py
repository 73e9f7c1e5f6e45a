"""Layouts of symbolic sizes are those of every size that keeps what was assumed (DYN-4)."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotlite.ir.errors import AotliteError
from aotlite.ir.geometry import layout, sizes
from aotlite.ir.geometry.overlap import has_internal_overlap, overlaps
from aotlite.ir.meta import tensor_meta
from aotlite.ir.ops.shape.memory_format import suggests_channels_last
from aotlite.ir.symbols.assumption import concrete
from aotlite.ir.symbols.table import SymbolTable

RANKS = st.integers(0, 4)


def values_of(table):
    """Every way to give the symbols values from 2 to 5."""
    names = list(table.symbols)
    for chosen in itertools.product(range(2, 6), repeat=len(names)):
        yield dict(zip(names, chosen, strict=True))


def outcome(function, *args):
    """What the function gives, or the class of its error."""
    try:
        return function(*args)
    except AotliteError as error:
        return type(error)


def check(function, table, *args):
    """Compares with ints, at the hints and wherever the log holds; returns how often it held."""
    result = outcome(function, *args)
    assert outcome(function, *concrete(args, table.hints)) == concrete(result, table.hints)
    assert all(assumption.holds(table.hints) for assumption in table.log)
    held = 0
    for values in values_of(table):
        if all(assumption.holds(values) for assumption in table.log):
            expected = outcome(function, *concrete(args, values))
            assert expected == concrete(result, values), (values, args, result, table.log)
            held += 1
    return held


@st.composite
def shapes(draw, ranks=RANKS):
    """A table, and a shape of ints, symbols, and symbols less 2, which may be 0 and 1."""
    table = SymbolTable()
    symbols = [table.size(draw(st.integers(2, 5))) for _ in range(2)]
    choices = [0, 1, 2, 3, *symbols, *(symbol - 2 for symbol in symbols), symbols[0] * symbols[1]]
    rank = draw(ranks)
    return table, tuple(draw(st.lists(st.sampled_from(choices), min_size=rank, max_size=rank)))


@st.composite
def strides(draw, shape):
    """Strides in some order of the dimensions, with gaps, repetitions, and numbers among them."""
    found = [0] * len(shape)
    step = 1
    for dim in draw(st.permutations(range(len(shape)))):
        kind = draw(st.sampled_from(("packed", "packed", "packed", "gap", "repeated", "number")))
        if kind == "gap":
            step = step * 2
        found[dim] = {"repeated": 0, "number": 3}.get(kind, step)
        step = step * sizes.at_least_one(shape[dim])
    return tuple(found)


FUNCTIONS = {
    "is_contiguous": layout.is_contiguous,
    "is_channels_last": layout.is_channels_last,
    "is_dense": layout.is_dense,
    "span": layout.span,
    "clone_strides": layout.clone_strides,
    "permutation_of": layout.permutation_of,
    "has_internal_overlap": has_internal_overlap,
    "suggests_channels_last": lambda shape, stride: suggests_channels_last(
        tensor_meta(shape, stride)
    ),
    "contiguous": lambda shape, stride: tensor_meta(shape, stride).contiguous,
    "dense": lambda shape, stride: tensor_meta(shape, stride).dense,
    "nbytes": lambda shape, stride: tensor_meta(shape, stride).nbytes,
    "contiguous_strides": lambda shape, stride: layout.contiguous_strides(shape),
}


@pytest.mark.thinned(7)
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
@given(st.data())
def test_layout_is_that_of_every_size(function, data):
    table, shape = data.draw(shapes())
    check(function, table, shape, data.draw(strides(shape)))


@given(st.data())
def test_orders_are_compared_for_every_size(data):
    table, shape = data.draw(shapes())
    check(layout.same_order, table, shape, data.draw(strides(shape)), data.draw(strides(shape)))


@given(st.data())
def test_results_of_pointwise_ops_lie_as_for_every_size(data):
    table, shape = data.draw(shapes())
    stride, other = data.draw(strides(shape)), data.draw(strides(shape[1:]))

    def result(shape, stride, other):
        both = sizes.broadcast_shapes(shape, shape[1:])
        return layout.elementwise_strides([(shape, stride), (shape[1:], other)], both)

    check(result, table, shape, stride, other)


@given(st.data())
def test_views_lie_as_for_every_size(data):
    """Of a shape whose dimensions are merged and cut anew, with ones between them."""
    table, shape = data.draw(shapes())
    stride = data.draw(strides(shape))
    new = list(shape)
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(new)))
        if data.draw(st.booleans()) or at + 1 >= len(new):
            new.insert(at, 1)
        else:
            new[at : at + 2] = [new[at] * new[at + 1]]
    check(layout.view_strides, table, shape, stride, tuple(new))


@given(st.data())
def test_sizes_are_inferred_for_every_size(data):
    table, shape = data.draw(shapes())
    size = data.draw(st.lists(st.sampled_from((-1, 1, 2, 3, *shape)), max_size=4))
    check(sizes.infer_size, table, tuple(size), sizes.numel(shape))


@given(st.data())
def test_shapes_broadcast_as_for_every_size(data):
    table, shape = data.draw(shapes())
    other = data.draw(st.lists(st.sampled_from((1, 2, 3, *shape)), max_size=4))
    check(sizes.broadcast_shapes, table, shape, tuple(other))
    check(sizes.same_shape, table, shape, tuple(other))


BOUND = st.none() | st.integers(-4, 4)


@given(st.data(), BOUND, BOUND)
def test_slices_are_pythons_for_every_size(data, start, end):
    table, shape = data.draw(shapes(st.just(1)))
    check(lambda size: sizes.slice_bounds(start, end, size), table, *shape)
    first, last = sizes.slice_bounds(start, end, shape[0])
    size = concrete(shape[0], table.hints)
    assert range(size)[start:end] == range(*concrete((first, last), table.hints))
    assert not any(assumption.specializes for assumption in table.log)


@pytest.mark.rules("ALI-7")
@given(st.data())
def test_overlap_of_windows_is_assumed_as_a_whole(data):
    table, shape = data.draw(shapes())
    stride = data.draw(strides(shape))
    offset = data.draw(st.sampled_from((0, 1, 5, *shape)))
    check(overlaps, table, (shape, stride, 0), (shape, stride, offset))


def test_contiguous_shapes_of_any_size_need_no_assumption():
    table = SymbolTable()
    a, b = table.size(4), table.size(5)
    for shape in ((a, b), (a - 2, b), (a, b - 2, 3), (a * b, 1, a)):
        meta = tensor_meta(shape)
        assert meta.contiguous and meta.dense
        assert layout.clone_strides(meta.shape, meta.stride) == meta.stride
        assert layout.view_strides(meta.shape, meta.stride, (meta.numel,)) is not None
    assert [] == table.log


def test_strides_that_divide_by_a_difference_are_ordered():
    """Where the larger sizes that tell an order would divide by 0."""
    table = SymbolTable()
    rows, columns = table.size(2, lower=0), table.size(1, lower=0)
    count = 6 // abs(rows - columns)
    assert not has_internal_overlap((rows, count), (count, 1))
    assert all(assumption.holds(table.hints) for assumption in table.log)
