"""Ops that move elements by position equal PyTorch's: values, strides, gradients, refusals."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.eager.creation.from_data import call
from aotlite.ir.errors import ArgumentError, DTypeError, IndexOutOfRangeError, ShapeError
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS
from tests.ir.helpers.op_oracle import (
    FLOATS,
    check_gradients,
    compare,
    compare_gradients,
    dims_of,
    laid_out,
    strided_arrays,
)

EXAMPLES = settings(max_examples=40)
NUMERIC = (*FLOATS, "int64")


# ------------------------------------------------------------------------------ with PyTorch
def drawn_index(data, shape, size):
    """Positions below `size`; negative ones are not allowed in these ops."""
    index = laid_out(data.draw, shape, "int64")
    index[...] = np.abs(index) % max(size, 1)
    return index


def window(data, shape, dim):
    """A shape no larger than `shape`, except along `dim`, where it is free."""
    least = [data.draw(st.integers(0 if n == 0 else 1, n)) for n in shape]
    if shape:
        least[dim] = data.draw(st.integers(0, 5)) if shape[dim] else 0
    return tuple(least)


@pytest.mark.torch
@EXAMPLES
@given(data=st.data())
def test_gather_equals_torch(torch, data):
    a = data.draw(strided_arrays())
    dim = data.draw(dims_of(a.ndim))
    index = drawn_index(data, window(data, a.shape, dim), a.shape[dim] if a.ndim else 1)
    compare(torch, "gather", torch.gather, a, dim, index)


@pytest.mark.torch
@EXAMPLES
@given(data=st.data())
def test_scatter_add_equals_torch(torch, data):
    a = data.draw(strided_arrays(dtypes=NUMERIC))
    dim = data.draw(dims_of(a.ndim))
    index = drawn_index(data, window(data, a.shape, dim), a.shape[dim] if a.ndim else 1)
    src = laid_out(data.draw, tuple(n + data.draw(st.integers(0, 1)) for n in index.shape), a.dtype)
    compare(torch, "scatter_add", torch.scatter_add, a, dim, index, src)


@pytest.mark.torch
@EXAMPLES
@given(data=st.data())
def test_index_select_equals_torch(torch, data):
    a = data.draw(strided_arrays(min_rank=1, min_size=1))
    dim = data.draw(dims_of(a.ndim))
    index = drawn_index(data, (data.draw(st.integers(0, 5)),), a.shape[dim])
    compare(torch, "index_select", torch.index_select, a, dim, index)


@pytest.mark.torch
@EXAMPLES
@given(data=st.data())
def test_index_add_equals_torch(torch, data):
    a = data.draw(strided_arrays(dtypes=NUMERIC, min_rank=1, min_size=1))
    dim = data.draw(dims_of(a.ndim))
    index = drawn_index(data, (data.draw(st.integers(0, 5)),), a.shape[dim])
    shape = list(a.shape)
    shape[dim] = len(index)
    source = laid_out(data.draw, tuple(shape), a.dtype)
    alpha = data.draw(st.sampled_from((1, 2)))
    compare(torch, "index_add", torch.index_add, a, dim, index, source, alpha=alpha)


@pytest.mark.torch
@EXAMPLES
@given(data=st.data())
def test_cat_equals_torch(torch, data):
    """Dtypes promote, (0,) joins anything, channels-last operands give a channels-last result."""
    first = data.draw(strided_arrays(min_rank=1, min_size=1))
    dim = data.draw(dims_of(first.ndim))
    tensors = [first]
    for _ in range(data.draw(st.integers(0, 2))):
        shape = list(first.shape)
        shape[dim] = data.draw(st.integers(0, 3))
        dtype = data.draw(st.sampled_from(("float32", "float64", "int64", "bool")))
        tensors.append(laid_out(data.draw, tuple(shape), dtype))
    if data.draw(st.booleans()):
        tensors.insert(data.draw(st.integers(0, len(tensors))), np.zeros(0, "f4"))
    compare(torch, "cat", torch.cat, tensors, dim)


@pytest.mark.torch
@pytest.mark.parametrize(
    "shape", [(2, 3, 4, 5), (2, 1, 4, 5), (1, 3, 1, 1), (2, 3, 1, 1), (1, 1, 1, 4)]
)
def test_cat_keeps_channels_last(torch, shape):
    a = np.zeros(shape, "f4").transpose(0, 2, 3, 1).copy().transpose(0, 3, 1, 2)
    for tensors in ([a, a], [a, np.zeros(shape, "f4")]):
        compare(torch, "cat", torch.cat, tensors, 1)


@pytest.mark.torch
def test_cat_and_stack_judge_ambiguous_layouts_as_torch(torch):
    """Sizes of 1, gaps and repeats: where it takes PyTorch's very rule to tell channels-last."""
    rng = np.random.default_rng(0)
    for _ in range(600):
        rank = rng.integers(3, 6)
        shape = tuple(rng.choice([0, 1, 1, 2, 3], rank).tolist())
        stride = tuple(rng.choice([0, 1, 1, 2, 3, 4, 6, 8, 12, 24], rank).tolist())
        meta = tensor_meta(shape, stride)
        theirs = torch.zeros(200).as_strided(shape, stride)
        for dim in range(rank):
            for name in ("cat", "stack"):
                expected = getattr(torch, name)([theirs, theirs], dim).stride()
                assert expected == OPS[name].rule((meta, meta), dim).stride, (name, meta, dim)


@pytest.mark.torch
@EXAMPLES
@given(data=st.data())
def test_stack_equals_torch(torch, data):
    first = data.draw(strided_arrays())
    more = [
        laid_out(data.draw, first.shape, first.dtype) for _ in range(data.draw(st.integers(0, 2)))
    ]
    compare(torch, "stack", torch.stack, [first, *more], data.draw(dims_of(first.ndim + 1)))


@pytest.mark.torch
@EXAMPLES
@given(data=st.data())
def test_flip_and_roll_equal_torch(torch, data):
    a = data.draw(strided_arrays())
    dims = data.draw(st.sets(st.integers(0, a.ndim - 1)).map(tuple) if a.ndim else st.just(()))
    compare(torch, "flip", torch.flip, a, dims)
    shifts = data.draw(st.tuples(*[st.integers(-9, 9) for _ in dims or (0,)]))
    compare(torch, "roll", torch.roll, a, shifts, dims)


@pytest.mark.torch
@EXAMPLES
@given(a=strided_arrays(min_rank=2), diagonal=st.integers(-5, 5))
def test_triangles_equal_torch(torch, a, diagonal):
    compare(torch, "tril", torch.tril, a, diagonal)
    compare(torch, "triu", torch.triu, a, diagonal)


# ---------------------------------------------------------------------------------- gradients
MATRIX = np.array([[0.5, -1.0, 2.0], [0.25, 3.0, -0.5]])
ROWS = np.array([1, 0, 1, 1])
PLACES = np.array([[0, 1], [1, 1]])


def index_functions(made):
    """Functions of matrices that index with what `made` makes of index arrays."""
    rows, places = made(ROWS), made(PLACES)
    return {
        "gather": lambda x: x.gather(1, places),
        "scatter_add": lambda x, y: x.scatter_add(0, places, y),
        "index_select": lambda x: x.index_select(0, rows),
        "index_add": lambda x, y: x.index_add(1, rows[:3], y, alpha=2),
        "flip": lambda x: x.flip((0, 1)),
        "roll": lambda x: x.roll((1, -2), (0, 1)),
        "tril": lambda x: x.tril(1),
        "triu": lambda x: x.triu(-1),
    }


def operands_of(name):
    # PyTorch has no gradient for a src that is larger than the index.
    more = {"scatter_add": MATRIX[:, :2] + 1, "index_add": MATRIX + 1}
    return (MATRIX, more[name]) if name in more else (MATRIX,)


NAMES = ["gather", "scatter_add", "index_select", "index_add", "flip", "roll", "tril", "triu"]


@pytest.mark.torch
@pytest.mark.parametrize("name", NAMES)
def test_gradients_equal_torch(torch, name):
    """Squared, so that there is a second gradient to compare."""
    ours, theirs = (index_functions(f)[name] for f in (al.from_numpy, torch.from_numpy))
    squared = lambda f: lambda *xs: f(*xs) * f(*xs)
    compare_gradients(torch, squared(ours), squared(theirs), *operands_of(name))


@pytest.mark.parametrize("name", NAMES)
def test_gradients_equal_differences(name):
    function = index_functions(al.from_numpy)[name]
    check_gradients(lambda *xs: function(*xs).exp(), *operands_of(name))


def test_joined_tensors_get_their_parts_of_the_gradient():
    check_gradients(lambda x, y: al.cat([x, y.exp(), x * y], 1), MATRIX, MATRIX + 1)
    check_gradients(lambda x, y: al.stack([x, y.exp(), x * y], 1), MATRIX, MATRIX + 1)


def test_cat_gives_each_operand_a_gradient_of_its_dtype():
    x, y = al.ones(2, requires_grad=True), al.ones(1, dtype=al.float64, requires_grad=True)
    empty = al.zeros(0, requires_grad=True)
    al.cat([x, empty, y]).sum().backward()
    assert [al.float32, al.float64] == [x.grad.dtype, y.grad.dtype]
    assert empty.grad.shape == (0,)


def test_scatter_add_gives_no_gradient_to_what_the_index_does_not_reach():
    src = al.ones(3, requires_grad=True)
    al.zeros(2).scatter_add(0, al.tensor([1, 1]), src).sum().backward()
    assert src.grad.tolist() == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("name", "position", "operands"),
    [
        ("gather", 0, (0, 2)),
        ("scatter_add", 0, ()),
        ("scatter_add", 3, (2,)),
        ("index_select", 0, (2,)),
        ("index_add", 3, (2, 3)),
        ("cat", 0, ()),
        ("stack", 0, ()),
        ("flip", 0, ()),
        ("tril", 0, ()),
    ],
)
def test_index_ops_save_what_pytorch_saves(name, position, operands):
    assert OPS[name].vjp.saves((position,)) == (operands, ())


# ------------------------------------------------------------------------------------ writing
def test_scatter_add_in_place_equals_the_pure_form():
    x = al.zeros(3)
    x.scatter_add_(0, al.tensor([2, 0, 2]), al.ones(3))
    assert x.tolist() == [1.0, 0.0, 2.0]


@pytest.mark.parametrize("bad", [3, -1])
def test_an_index_out_of_range_leaves_everything_as_it_was(bad):
    x = al.zeros(3)
    for write in (
        lambda: x.scatter_add_(0, al.tensor([0, bad]), al.ones(2)),
        lambda: x.index_add_(0, al.tensor([0, bad]), al.ones(2)),
    ):
        with pytest.raises(IndexOutOfRangeError):
            write()
        assert x.tolist() == [0.0, 0.0, 0.0]
        assert x.version == 0


def test_minus_zero_survives_a_scatter_elsewhere():
    found = al.tensor([-0.0, 0.0]).scatter_add(0, al.tensor([1]), al.ones(1))
    assert np.signbit(found.array[0])


# ----------------------------------------------------------------------------------- refusals
LONG = np.array([0, 1])


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (
            lambda x: x.gather(1, al.tensor([[0, 7]])),
            IndexOutOfRangeError,
            "gather: an index is 7, expected 0 <= index < 3, the size of the dimension",
        ),
        (
            lambda x: x.index_select(0, al.tensor([-1])),
            IndexOutOfRangeError,
            "index_select: an index is -1, expected 0 <= index < 2, the size of the dimension",
        ),
        (
            lambda x: x.gather(0, al.ones(1, 1)),
            DTypeError,
            "gather: the index has dtype float32, expected int64 or int32",
        ),
        (
            lambda x: x.gather(0, al.tensor([0])),
            ShapeError,
            "gather: the index has shape (1,), expected 2 dimensions like self",
        ),
        (
            lambda x: x.gather(0, al.tensor([[0, 0, 0, 0]])),
            ShapeError,
            "gather: the index has shape (1, 4), expected at most size 3 in dimension 1, as in "
            "self of shape (2, 3)",
        ),
        (
            lambda x: x.scatter_add(0, al.tensor([[0, 0]]), al.ones(1, 1)),
            ShapeError,
            "scatter_add: argument 'src' has shape (1, 1), expected at least the index's shape "
            "(1, 2) in each dimension",
        ),
        (
            lambda x: x.scatter_add(0, al.tensor([[0]]), al.ones(1, 1, dtype=al.float64)),
            DTypeError,
            "scatter_add: argument 'src' has dtype float64, expected float32",
        ),
        (
            lambda x: x.index_select(0, al.tensor([[0]])),
            ShapeError,
            "index_select: the index has shape (1, 1), expected 1 dimension",
        ),
        (
            lambda x: x.index_add(0, al.tensor([0]), al.ones(2, 3)),
            ShapeError,
            "index_add: argument 'source' has shape (2, 3), expected (1, 3)",
        ),
        (
            lambda x: al.cat([]),
            ArgumentError,
            "cat: argument 'tensors' is empty, expected at least one tensor",
        ),
        (
            lambda x: al.cat([x, al.ones(2)]),
            ShapeError,
            "cat: a tensor has shape (2,), expected that of the first, (2, 3), except in "
            "dimension 0",
        ),
        (
            lambda x: al.cat([x.sum()]),
            ShapeError,
            "cat: a tensor has shape (), expected at least 1 dimension",
        ),
        (
            lambda x: al.stack([x, al.ones(2)]),
            ShapeError,
            "stack: a tensor has shape (2,), expected (2, 3) for all",
        ),
        (
            lambda x: x.flip((0, 0)),
            ArgumentError,
            "flip: dimensions are (0, 0), expected each dimension once",
        ),
        (
            lambda x: x.roll((1, 2), (0,)),
            ShapeError,
            "roll: shifts is (1, 2), expected 1 for dims (0,)",
        ),
        (
            lambda x: x.sum(0).tril(),
            ShapeError,
            "tril: the tensor has shape (3,), expected at least 2 dimensions",
        ),
    ],
)
def test_bad_arguments_say_what_is_expected(function, error, message):
    with pytest.raises(error) as caught:
        function(al.ones(2, 3))
    assert str(caught.value) == message


def test_gather_works_on_a_0d_tensor():
    assert call("gather", al.tensor(3.0), 0, al.tensor([0, 0])).tolist() == [3.0, 3.0]
