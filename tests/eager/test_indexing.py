"""`x[...]` and `x[...] = value` are PyTorch's, compiled too, and errors write nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir.errors import (
    AliasError,
    ArgumentError,
    DTypeError,
    IndexOutOfRangeError,
    ShapeError,
    UnsupportedError,
)

SHAPE = (2, 3, 4)
MASK = np.array([[True, False, True], [False, True, False]])
COLUMNS = np.array([[0], [2]])

FORMS = {
    "an integer": 1,
    "a negative one": (slice(None), -2),
    "a NumPy integer": np.int64(1),
    "slices": (slice(1, None), slice(None, -1), slice(0, 4, 2)),
    "slices beyond the end": (slice(-9, 9), slice(2, 1)),
    "None and dots": (None, ..., None, 2),
    "nothing": (),
    "dots": ...,
    "a list": [1, 0, 1],
    "an empty list": [],
    "a range": range(2),
    "a list of lists, which is a tuple": [[0, 1], [0, 2]],
    "a list with a slice, which is a tuple": [0, slice(None)],
    "a tuple in a tuple": ((0, 1), slice(1, 2)),
    "an ndarray": np.array([[1, 0]]),
    "a tensor": np.array([-1, 0, 1]),
    "a tensor of int32": (slice(None), np.array([2, 0], "int32")),
    "a lone tensor": (np.array(1), slice(None), np.array(2)),
    "two tensors": (np.array([0, 1]), COLUMNS),
    "two tensors apart": (np.array([0, 1]), slice(None), COLUMNS),
    "tensors around dots": (COLUMNS % 2, ..., np.array([3, 0])),
    "tensors around None": (np.array([0, 1]), None, np.array([0, 1])),
    "a tensor and an integer": (np.array([0, 1]), slice(None), 2),
    "a mask": np.arange(24).reshape(SHAPE) % 3 == 0,
    "a mask of rows": np.array([False, True]),
    "a mask of columns": (slice(None), np.array([True, False, True])),
    "a mask of a matrix": MASK,
    "a mask and an integer": (MASK, 1),
    "a mask behind dots": (..., np.ones((3, 4), bool)),
    "a mask and a tensor": (MASK, np.array([0, 1, 3])),
    "a mask that nothing meets": np.zeros(2, bool),
    "a mask of bytes": np.array([0, 1], "uint8"),
    "a list of bools": [True, False],
    "True": True,
    "False": False,
    "True and an integer": (True, 1),
    "a lone mask": np.array(True),
    "a lone mask that fails": (np.array(False), 0),
}


def with_tensors(index, make):
    """The index with a tensor for each array (a form named otherwise keeps its ndarray)."""
    if isinstance(index, np.ndarray):
        return make(index)
    if isinstance(index, tuple):
        return tuple(with_tensors(item, make) for item in index)
    return index


def ours(index):
    return with_tensors(index, lambda a: al.tensor(a))


def parents():
    a = np.arange(24, dtype=np.float64).reshape(SHAPE) / 8
    turned = np.ascontiguousarray(a.T).T
    return [a, turned]


def on(array, library):
    """The array in this library, in its own layout."""
    return library.from_numpy(np.copy(array, order="K"))


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", FORMS)
def test_reading_equals_torch(torch, form):
    for array in parents():
        x, t = on(array, al).requires_grad_(), on(array, torch).requires_grad_()
        got = x[ours(FORMS[form])]
        expected = t[with_tensors(FORMS[form], torch.tensor)]
        assert tuple(expected.shape) == got.shape
        assert got.numel() == 0 or expected.stride() == got.stride()
        assert expected.tolist() == got.tolist()
        shared = expected.untyped_storage().data_ptr() == t.untyped_storage().data_ptr()
        assert shared == (got.storage is x.storage)
        (got * got).sum().backward()
        (expected * expected).sum().backward()
        assert t.grad.tolist() == x.grad.tolist()


VALUES = {
    "a number": lambda shape: 7,
    "a tensor of no dimensions": lambda shape: np.array(-2.0),
    "a tensor of one element": lambda shape: np.array([[[[-2.0]]]]),
    "a tensor of the shape": lambda shape: np.arange(int(np.prod(shape)), dtype=float) + 50,
}


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("form", FORMS)
def test_writing_equals_torch(torch, form, kind):
    for array in parents():
        x, t = on(array, al), on(array, torch)
        shape = x[ours(FORMS[form])].shape
        value = VALUES[kind](shape)
        if isinstance(value, np.ndarray) and kind.endswith("the shape"):
            value = value.reshape(shape)
        leaf = al.tensor(value).requires_grad_() if isinstance(value, np.ndarray) else None
        their_leaf = torch.tensor(value).requires_grad_() if leaf is not None else None
        x[ours(FORMS[form])] = value if leaf is None else leaf
        place = with_tensors(FORMS[form], torch.tensor)
        if form == "a mask of bytes" and "shape" not in kind:
            with pytest.raises(RuntimeError, match="only supports boolean masks"):
                t[place] = value if leaf is None else their_leaf
            continue
        t[place] = value if leaf is None else their_leaf
        assert t.tolist() == x.tolist()
        if leaf is None or not t.requires_grad:
            continue
        (x * x).sum().backward()
        (t * t).sum().backward()
        assert (their_leaf.grad is None) == (leaf.grad is None)
        if leaf.grad is not None:
            assert their_leaf.grad.tolist() == leaf.grad.tolist()


READS_A_VALUE = [name for name in FORMS if name.startswith("a lone")]


@pytest.mark.parametrize("form", [name for name in FORMS if name not in READS_A_VALUE])
def test_compiled_code_indexes_as_eager_does(form):
    index = ours(FORMS[form])

    def function(x, y):
        part = x[index].clone()
        y = y * 1
        y[index] = part * 2
        return part, y

    for array in parents():
        expected = function(on(array, al), on(array, al))
        got = al.compile(function)(on(array, al), on(array, al))
        for a, b in zip(expected, got, strict=True):
            assert a.meta is b.meta
            assert a.tolist() == b.tolist()


@pytest.mark.parametrize("form", READS_A_VALUE)
def test_a_capture_refuses_an_index_that_is_a_value(form):
    with pytest.raises(UnsupportedError) as caught:
        al.compile(lambda x: x[ours(FORMS[form])])(on(parents()[0], al))
    assert any("test_indexing.py" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("value", [7, np.array(7.0), np.array([[7.0]])])
def test_a_capture_takes_one_value_for_all_that_a_mask_shows(value):
    def function(x, mask):
        x[mask] = al.tensor(value) if isinstance(value, np.ndarray) else value
        return x

    for mask in (MASK, MASK[:, 0], parents()[0] > 1):
        expected = function(on(parents()[0], al), al.tensor(mask))
        got = al.compile(function)(on(parents()[0], al), al.tensor(mask))
        assert expected.tolist() == got.tolist()


REFUSED = {
    "too many": ((0, 0, 0, 0), IndexOutOfRangeError, "4 indices are given for shape (2, 3, 4)"),
    "too many tensors": (([0], [0], [0], [0]), IndexOutOfRangeError, "4 indices are given"),
    "beyond the end": ((0, 3), IndexOutOfRangeError, "3"),
    "a tensor beyond the end": (
        (slice(None), np.array([0, -4])),
        IndexOutOfRangeError,
        "an index is -4, expected -3 <= index < 3, the size of the dimension",
    ),
    "a float": (1.0, ArgumentError, "an index is 1.0, expected an integer, slice, None, ..."),
    "a word": ("x", ArgumentError, "an index is 'x', expected an integer"),
    "a tensor of floats": (np.array([0.5]), DTypeError, "an index has dtype"),
    "a tensor of int16": (np.array([0], "int16"), DTypeError, "an index has dtype"),
    "shapes that do not fit": (
        (np.array([0, 1]), np.array([0, 1, 2])),
        ShapeError,
        "shapes are (2,) and (3,)",
    ),
    "a mask of another size": (
        np.array([True, True, False]),
        ShapeError,
        "the mask has shape (3,), expected (2,), that of what it masks",
    ),
    "dots twice": ((..., ...), ArgumentError, "... is given twice, expected once"),
    "a step back": (slice(None, None, -1), ArgumentError, "a slice has step -1, expected at least"),
    "a step of 0": (slice(None, None, 0), ArgumentError, "a slice has step 0, expected at least 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_index_is_refused_and_nothing_is_written(case):
    index, error, text = REFUSED[case]
    x = on(parents()[0], al)
    before, version = x.tolist(), x.version
    for what in (lambda: x[ours(index)], lambda: x.__setitem__(ours(index), 5.0)):
        with pytest.raises(error) as caught:
            what()
        assert text in str(caught.value)
        assert (x.tolist(), x.version) == (before, version)


WRONG_VALUES = {
    "a shape": ((0,), np.ones(3), ShapeError, "copy_"),
    "a shape for tensors": (
        [0, 1],
        np.ones(3),
        ShapeError,
        "argument 'values' has shape (3,), expected",
    ),
    "a dtype for tensors": (
        [0, 1],
        np.ones(4, "int64"),
        DTypeError,
        "argument 'values' has dtype int64, expected float64",
    ),
    "a count for a mask": (MASK, np.ones(2), ShapeError, "index_put"),
    "a list": (0, [1, 2], ArgumentError, "setitem: the value is [1, 2], expected a number or"),
    "a complex number": (0, 1j, DTypeError, "setitem: the value is 1j, expected a real number"),
}


@pytest.mark.parametrize("case", WRONG_VALUES)
def test_a_wrong_value_is_refused_and_nothing_is_written(case):
    index, value, error, text = WRONG_VALUES[case]
    x = on(parents()[0], al)
    before, version = x.tolist(), x.version
    value = al.tensor(value) if isinstance(value, np.ndarray) else value
    with pytest.raises(error) as caught:
        x[ours(index)] = value
    assert text in str(caught.value)
    assert (x.tolist(), x.version) == (before, version)


def test_a_number_is_cast_to_the_dtype():
    x = al.tensor([1, 2, 3])
    x[0] = 1.7
    x[[1]] = 2.7
    x[x == 3] = 9.7
    assert x.tolist() == [1, 2, 9]


def test_of_values_that_meet_in_one_place_the_last_one_stays():
    x = al.zeros(3)
    x[[1, 1, 1]] = al.tensor([1.0, 2.0, 3.0])
    assert x.tolist() == [0.0, 3.0, 0.0]


def test_one_value_goes_through_repeated_dimensions():
    """TEN-7: the exception for `index_put_`, which PyTorch has too."""
    for index in (al.tensor([0, 2]), al.tensor([True, False, True])):
        base = al.ones(3, 1)
        base.expand(3, 2)[index] = 5.0
        assert base.tolist() == [[5.0], [1.0], [5.0]]
    with pytest.raises(AliasError, match="index_put_: the destination"):
        al.ones(3, 1).expand(3, 2)[[0, 1]] = al.tensor([5.0, 6.0])


def test_values_that_overlap_the_destination_are_refused():
    x = al.tensor([0, 1, 2, 3])
    with pytest.raises(AliasError, match="index_put_: argument 'values'"):
        x[[0, 1]] = x[1:3]
    with pytest.raises(AliasError, match="index_put_: argument 'indices'"):
        x[x[:2]] = 7


# -------------------------------------------------------------------------------- random layouts
@st.composite
def random_indices(draw):
    """Sizes, a permutation of them in memory, and index tensors for some dimensions."""
    shape = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    order = draw(st.permutations(range(len(shape))))
    common = draw(st.lists(st.integers(0, 3), max_size=2))
    items = []
    for size in shape:
        if draw(st.booleans()):
            items.append(slice(None))
            continue
        own = [draw(st.sampled_from([n, 1])) for n in common]
        own = own[draw(st.integers(0, len(own))) :]
        values = draw(st.lists(st.integers(-size, size - 1), min_size=9, max_size=9))
        index = np.resize(np.array(values), own)
        items.append(np.ascontiguousarray(index.T).T if draw(st.booleans()) else index)
    return shape, order, items


@pytest.mark.torch
@settings(max_examples=200)
@given(case=random_indices())
def test_strides_of_what_tensors_pick_equal_torch(torch, case):
    shape, order, items = case
    array = np.arange(float(np.prod(shape))).reshape([shape[i] for i in order])
    array = array.transpose(np.argsort(order))
    got = on(array, al)[tuple(al.from_numpy(i) if isinstance(i, np.ndarray) else i for i in items)]
    their = on(array, torch)
    picked = tuple(torch.from_numpy(i) if isinstance(i, np.ndarray) else i for i in items)
    lone = [i for i in items if isinstance(i, np.ndarray) and not i.shape]
    if not lone:
        assert (tuple(their[picked].shape), their[picked].stride()) == (got.shape, got.stride())
    assert their[picked].tolist() == got.tolist()
