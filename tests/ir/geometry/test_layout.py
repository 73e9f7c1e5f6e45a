"""Strides and shapes follow from the layouts, and equal PyTorch's."""

import itertools
import random

import numpy as np
import pytest

from aotlite.ir.errors import ArgumentError, IndexOutOfRangeError, ShapeError
from aotlite.ir.geometry.layout import (
    channels_last_strides,
    clone_strides,
    contiguous_strides,
    elementwise_strides,
    is_channels_last,
    is_contiguous,
    is_dense,
    permutation_of,
    same_order,
    span,
    view_strides,
)
from aotlite.ir.geometry.sizes import (
    as_size,
    broadcast_shapes,
    infer_size,
    numel,
    wrap_dim,
    wrap_dims,
)


def addresses(shape, stride):
    """The address of each element, in row-major order of the indices."""
    indices = itertools.product(*map(range, shape))
    return [sum(i * step for i, step in zip(index, stride, strict=True)) for index in indices]


def permuted_strides(shape, order):
    """Packed strides with the dimensions in this order, outermost first."""
    packed = contiguous_strides(tuple(shape[dim] for dim in order))
    return tuple(packed[order.index(dim)] for dim in range(len(shape)))


def random_layout(rng, max_rank=5):
    """Contiguous, permuted, channels-last or arbitrary, at times with gaps or expanded."""
    shape = tuple(rng.choice((0, 1, 1, 2, 2, 2, 3, 4)) for _ in range(rng.randint(0, max_rank)))
    match rng.randint(0, 3):
        case 0:
            stride = contiguous_strides(shape)
        case 1 if len(shape) in (4, 5):
            stride = channels_last_strides(shape)
        case 2:
            stride = tuple(rng.choice((0, 1, 1, 2, 3, 4, 6, 8, 12)) for _ in shape)
        case _:
            stride = permuted_strides(shape, rng.sample(range(len(shape)), len(shape)))
    return shape, tuple(disturbed(rng, *pair) for pair in zip(shape, stride, strict=True))


def disturbed(rng, size, step):
    if size == 1 and rng.random() < 0.4:
        return rng.choice((0, 1, 5, 7))
    return step * rng.choice((0, 2)) if rng.random() < 0.12 else step


def random_layouts(count, seed=0):
    rng = random.Random(seed)
    return [random_layout(rng) for _ in range(count)]


def random_partner(rng, layout):
    """A layout that broadcasts with this one, often of the same shape or of related strides."""
    shape, stride = layout
    if rng.random() < 0.3:
        return layout
    rank = rng.randint(0, len(shape))
    sizes = tuple(rng.choice((size, size, 1)) for size in shape[len(shape) - rank :])
    if rng.random() < 0.5:
        return sizes, stride[len(shape) - rank :]
    order = rng.sample(range(rank), rank)
    return sizes, tuple(
        disturbed(rng, *pair) for pair in zip(sizes, permuted_strides(sizes, order), strict=True)
    )


def random_shape_of(rng, count):
    """A shape of this many elements, with some sizes of 1."""
    if count == 0:
        return tuple(rng.sample((0, rng.randint(0, 3), rng.randint(0, 3)), 3))
    shape = [1] * rng.randint(0, 2)
    while count > 1:
        size = rng.choice([size for size in range(1, count + 1) if count % size == 0])
        shape.append(size)
        count //= size
    return tuple(rng.sample(shape, len(shape)))


LAYOUTS = random_layouts(1500)


# --------------------------------------------------------------------- against the address sets
@pytest.mark.rules("TEN-1")
def test_contiguous_strides_enumerate_addresses_in_order():
    for shape, _ in LAYOUTS:
        assert list(range(numel(shape))) == addresses(shape, contiguous_strides(shape))


@pytest.mark.rules("META-30")
def test_is_contiguous_says_that_addresses_are_in_order_without_gaps():
    for layout in LAYOUTS:
        assert (list(range(numel(layout[0]))) == addresses(*layout)) == is_contiguous(*layout)


@pytest.mark.rules("META-30")
def test_is_dense_says_that_each_address_of_the_span_is_one_element():
    for layout in LAYOUTS:
        assert (list(range(numel(layout[0]))) == sorted(addresses(*layout))) == is_dense(*layout)


@pytest.mark.rules("META-29")
def test_span_counts_from_the_first_address_to_the_last():
    for layout in LAYOUTS:
        assert max(addresses(*layout), default=-1) + 1 == span(*layout)


@pytest.mark.rules("META-31")
def test_view_strides_show_the_same_addresses_in_the_same_order():
    rng = random.Random(1)
    shown = 0
    for shape, stride in LAYOUTS:
        new_shape = random_shape_of(rng, numel(shape))
        new_stride = view_strides(shape, stride, new_shape)
        if new_stride is not None:
            shown += 1
            assert addresses(shape, stride) == addresses(new_shape, new_stride)
    assert shown > 500


def test_contiguous_layout_is_viewable_in_every_shape():
    rng = random.Random(2)
    for shape, _ in LAYOUTS:
        new_shape = random_shape_of(rng, numel(shape))
        assert view_strides(shape, contiguous_strides(shape), new_shape) is not None


@pytest.mark.rules("META-31")
def test_view_strides_refuses_what_memory_order_forbids():
    assert view_strides((2, 3), (1, 2), (6,)) is None
    assert view_strides((2, 3), (4, 1), (6,)) is None
    assert view_strides((2, 3), (0, 1), (6,)) is None


@pytest.mark.rules("META-32")
def test_clone_strides_are_dense_keep_dense_ones_and_keep_the_order():
    for shape, stride in LAYOUTS:
        cloned = clone_strides(shape, stride)
        assert is_dense(shape, cloned)
        assert not is_dense(shape, stride) or stride == cloned
        if 0 not in stride and len(set(stride)) == len(stride):
            assert same_order(shape, stride, cloned)


@pytest.mark.rules("META-32")
def test_elementwise_strides_of_one_order_keep_that_order():
    for shape, stride in LAYOUTS:
        if 0 not in shape and is_dense(shape, stride):
            result = elementwise_strides([(shape, stride), (shape, stride)], shape)
            assert addresses(shape, stride) == addresses(shape, result)


def test_permutation_sorts_the_dimensions_by_stride():
    for shape, stride in LAYOUTS:
        order = permutation_of(shape, stride)
        assert list(range(len(shape))) == sorted(order)
        if 0 not in stride:
            sorted_strides = [stride[dim] for dim in order]
            assert sorted(sorted_strides, reverse=True) == sorted_strides


def test_same_order_is_equality_of_the_rank_of_addresses_for_dense_layouts():
    rng = random.Random(3)
    outcomes = set()
    for _ in range(300):
        shape = tuple(rng.randint(1, 3) for _ in range(3))
        a, b = (permuted_strides(shape, rng.sample(range(3), 3)) for _ in range(2))
        expected = addresses(shape, a) == addresses(shape, b)
        outcomes.add(expected)
        assert expected == same_order(shape, a, b) == same_order(shape, b, a)
        assert expected == same_order(shape, a, tuple(3 * step for step in b))
    assert {True, False} == outcomes


def test_same_order_of_an_empty_tensor_is_true():
    assert same_order((0, 2, 2), (4, 2, 1), (4, 1, 2))


def test_channels_last_strides_are_recognized():
    for shape in ((2, 3, 4, 5), (2, 3, 2, 2, 2)):
        assert is_channels_last(shape, channels_last_strides(shape))
        assert not is_channels_last(shape, contiguous_strides(shape))
    assert not is_channels_last((2, 3), (1, 2))


# --------------------------------------------------------------------------------------- sizes
def test_broadcast_shapes_equals_numpys():
    rng = random.Random(4)
    refused = 0
    for _ in range(500):
        shapes = [
            tuple(rng.choice((0, 1, 1, 2, 3)) for _ in range(rng.randint(0, 3)))
            for _ in range(rng.randint(0, 3))
        ]
        try:
            expected = np.broadcast_shapes(*shapes)
        except ValueError:
            refused += 1
            with pytest.raises(ShapeError):
                broadcast_shapes(*shapes)
        else:
            assert expected == broadcast_shapes(*shapes)
    assert refused > 50


def test_broadcast_shapes_names_both_shapes_the_op_and_the_dimension():
    rule = r"^add: shapes are \(2, 3\) and \(4, 1\), expected equal sizes, or 1, in dimension -2$"
    with pytest.raises(ShapeError, match=rule):
        broadcast_shapes((2, 3), (4, 1), op="add")


@pytest.mark.parametrize("ndim", range(4))
def test_wrap_dim_takes_both_ways_of_counting_and_nothing_else(ndim):
    room = max(ndim, 1)
    assert [*range(room), *range(room)] == [wrap_dim(dim, ndim) for dim in range(-room, room)]
    for dim in (-room - 1, room):
        rule = f"^sum: dimension is {dim}, expected {-room} to {room - 1}$"
        with pytest.raises(IndexOutOfRangeError, match=rule):
            wrap_dim(dim, ndim, op="sum")


def test_wrap_dims_keeps_the_order_and_refuses_a_repeat():
    assert (2, 0) == wrap_dims([-1, 0], 3)
    rule = r"^permute: dimensions are \(0, -3\), expected each dimension once$"
    with pytest.raises(ArgumentError, match=rule):
        wrap_dims((0, -3), 3, op="permute")


def test_infer_size_replaces_the_one_unknown():
    assert (2, 3, 4) == infer_size([2, -1, 4], 24)
    assert (2, 12) == infer_size((2, 12), 24)
    assert (0, 3) == infer_size((-1, 3), 0)


@pytest.mark.parametrize(
    ("shape", "count", "rule"),
    [
        ((-1, -1), 6, r"\(-1, -1\), expected at most one -1"),
        ((-2, 3), 6, r"\(-2, 3\), expected sizes of at least 0, or one -1"),
        ((4, -1), 6, r"\(4, -1\), expected a shape of 6 elements"),
        ((4, 2), 6, r"\(4, 2\), expected a shape of 6 elements"),
        ((0, -1), 0, r"\(0, -1\), expected no 0 beside a -1: the -1 could be any size"),
        ((0, -1), 6, r"\(0, -1\), expected a shape of 6 elements"),
    ],
)
def test_infer_size_refuses_shapes_of_another_number_of_elements(shape, count, rule):
    with pytest.raises(ShapeError, match=f"^view: shape is {rule}$"):
        infer_size(shape, count)


def test_as_size_takes_integers_of_any_make_and_no_bool():
    assert [3, 3] == [as_size(3), as_size(np.int8(3))]
    for value in (True, np.True_, 3.0, "3", None, np.ones(2, int)):
        assert as_size(value) is None


# ------------------------------------------------------------------------------------- PyTorch
def empty(torch, layout, dtype=None):
    return torch.empty_strided(*layout, dtype=dtype)


@pytest.mark.rules("META-30")
@pytest.mark.torch
def test_layout_predicates_equal_pytorchs(torch):
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    for layout in LAYOUTS:
        tensor = empty(torch, layout)
        assert tensor.is_contiguous() == is_contiguous(*layout), layout
        assert torch.ops.aten.is_non_overlapping_and_dense(tensor) == is_dense(*layout), layout
        if len(layout[0]) in formats:
            expected = tensor.is_contiguous(memory_format=formats[len(layout[0])])
            assert expected == is_channels_last(*layout), layout


@pytest.mark.rules("META-31")
@pytest.mark.torch
def test_view_strides_equal_pytorchs(torch):
    rng = random.Random(5)
    for layout in LAYOUTS:
        tensor = empty(torch, layout)
        for shape in (layout[0], random_shape_of(rng, numel(layout[0]))):
            try:
                expected = tensor.view(shape).stride()
            except RuntimeError:
                expected = None
            assert expected == view_strides(*layout, shape), (layout, shape)


@pytest.mark.rules("META-32")
@pytest.mark.torch
def test_clone_strides_equal_pytorchs(torch):
    for layout in LAYOUTS:
        tensor = empty(torch, layout)
        assert tensor.clone().stride() == clone_strides(*layout), layout
        assert torch.empty_like(tensor).stride() == clone_strides(*layout), layout


@pytest.mark.rules("META-32")
@pytest.mark.torch
def test_elementwise_strides_of_one_operand_equal_pytorchs(torch):
    """`a + 1` differs from `a.neg()` where a layout is ambiguous: its number is a 0-d operand."""
    differ = 0
    for layout in LAYOUTS:
        tensor, shape = empty(torch, layout), layout[0]
        alone = elementwise_strides([layout], shape)
        with_number = elementwise_strides([layout, ((), ())], shape)
        differ += alone != with_number
        assert tensor.neg().stride() == alone, layout
        assert (tensor + 1).stride() == with_number, layout
    assert differ > 0


@pytest.mark.rules("META-32")
@pytest.mark.torch
def test_elementwise_strides_of_several_operands_equal_pytorchs(torch):
    rng = random.Random(6)
    for a in LAYOUTS:
        b, c = random_partner(rng, a), random_partner(rng, a)
        for first, second in ((a, b), (b, a), (b, c)):
            total = empty(torch, first) + empty(torch, second)
            ours = elementwise_strides([first, second], tuple(total.shape))
            assert total.stride() == ours, (first, second)
        chosen = torch.where(empty(torch, b, torch.bool), empty(torch, a), empty(torch, c))
        assert chosen.stride() == elementwise_strides([b, a, c], a[0]), (b, a, c)


def test_strides_do_not_depend_on_which_objects_sizes_are():
    """Python has one object for each small number, and many for a large one."""
    sizes, found = (1, 300, 301), set()
    for shape in itertools.product(sizes, repeat=3):
        for order in itertools.permutations(range(3)):
            layout = shape, permuted_strides(shape, order)
            other = shape[1:], contiguous_strides(shape[1:])
            anew = tuple(int(str(size)) for size in shape)
            same = elementwise_strides([layout, other], shape)
            assert same == elementwise_strides([layout, other], anew), (layout, other)
            found.add(same == contiguous_strides(shape))
    assert found == {True, False}
