"""Making tensors: from Python data, from arrays, from nothing."""

import numpy as np
import pytest

import aotlite as al
from aotlite.ir import dtypes


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (1, "int64"),
        (1.0, "float32"),
        (True, "bool"),
        (1j, "complex64"),
        ([], "float32"),
        ([[1, 2.5]], "float32"),
        (np.float64(1), "float64"),
        (np.zeros(2, np.int8), "int8"),
    ],
)
def test_tensor_takes_the_dtype_of_python_numbers_or_of_the_array(data, dtype):
    made = al.tensor(data)
    assert (dtype, np.shape(data)) == (made.dtype.name, made.shape)


def test_tensor_copies():
    host = np.zeros(2)
    made = al.tensor(host)
    host[0] = 1
    again = al.tensor(made, requires_grad=True)
    made[1] = 1
    assert [[0, 1], [0, 0]] == [made.tolist(), again.tolist()]
    assert again.is_leaf and again.requires_grad


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([[1], [1, 2]], "differ in length, expected a full array"),
        ("abc", "argument 'data' is 'abc', expected numbers"),
        ([None], "expected numbers in nested lists"),
        ({}, "expected numbers in nested lists"),
        ([2**70], "expected numbers in nested lists"),
    ],
)
def test_tensor_refuses_what_is_no_array_of_numbers(data, message):
    with pytest.raises(al.ArgumentError, match=f"^tensor: .*{message}"):
        al.tensor(data)


def test_from_numpy_shares_memory():
    host = np.zeros((2, 3))
    for array in (host, host.T, host[:, ::2], host[1:], np.broadcast_to(host[0], (4, 3))):
        made = al.from_numpy(array)
        assert np.shares_memory(array, made.numpy())
        assert tuple(s // 8 for s in array.strides) == made.stride()
        np.testing.assert_array_equal(array, made.numpy())
    al.from_numpy(host.T)[0, 1] = 5
    assert 5 == host[1, 0]


def test_from_numpy_of_read_only_memory_is_read_and_not_written():
    host = np.arange(3.0)
    host.flags.writeable = False
    x = al.from_numpy(host)
    assert [0, 2, 4] == (x * 2).tolist()
    for write in (lambda: x.add_(1), lambda: x[:1].zero_(), lambda: x.__setitem__(0, 1)):
        with pytest.raises(al.ArgumentError, match="the destination is read-only memory") as raised:
            write()
        assert any("copy of the array" in note for note in raised.value.__notes__)
    with pytest.raises(ValueError, match="read-only"):
        x.numpy()[0] = 1
    assert [0, 1, 2] == host.tolist()


def misaligned():
    return np.frombuffer(bytearray(17), np.uint8)[1:].view(np.float64)


@pytest.mark.parametrize(
    ("array", "error", "message"),
    [
        (np.zeros(3)[::-1], al.ArgumentError, r"has strides \(-8,\), expected none negative"),
        (misaligned(), al.ArgumentError, "memory is misaligned, expected aligned elements"),
        (
            np.zeros(4, np.dtype([("a", np.int32), ("b", np.int8)]))["a"],
            al.ArgumentError,
            "memory is misaligned",
        ),
        (np.zeros(2, ">f8"), al.DTypeError, ">f8"),
        (np.array([None]), al.DTypeError, r"dtype\('O'\), expected one of"),
        (np.zeros(2, "U1"), al.DTypeError, "U1"),
        ([1.0], al.ArgumentError, r"argument 'array' is \[1.0\], expected a NumPy array"),
    ],
    ids=["negative", "misaligned", "field", "big-endian", "object", "text", "list"],
)
def test_from_numpy_refuses_what_it_cannot_share(array, error, message):
    with pytest.raises(error, match=message):
        al.from_numpy(array)


def test_factories_fill():
    assert [[0, 0]] == al.zeros(1, 2).tolist() == al.zeros((1, 2)).tolist()
    assert [1, 1] == al.ones(2).tolist()
    assert [7, 7] == al.full(2, 7).tolist()
    assert [[0, 2, 4], [3, 2]] == [al.arange(0, 6, 2).tolist(), al.arange(3, 1, -1).tolist()]
    with pytest.raises(al.ArgumentError, match="^arange: step is 0"):
        al.arange(0, 1, 0)
    with pytest.raises(al.ShapeError, match=r"^full: size is \(-1,\), expected no negative number"):
        al.zeros(-1)


def test_tensors_like_another_keep_its_dense_strides():
    """As PyTorch's preserve_format."""
    x = al.ones(2, 3, dtype=dtypes.float64).t()
    for made, value in ((al.zeros_like(x), 0), (al.ones_like(x), 1)):
        assert (x.shape, x.stride(), x.dtype) == (made.shape, made.stride(), made.dtype)
        assert [[value] * 2] * 3 == made.tolist()
    assert (2, 1) == al.zeros_like(al.ones(1).expand(3, 2)).stride()


def test_cat_and_stack_join():
    a, b = al.ones(1, 2), al.zeros(2, 2)
    assert [[1, 1], [0, 0], [0, 0]] == al.cat([a, b]).tolist()
    assert (2, 1, 2) == al.stack([a, a]).shape
    assert (1, 2, 2) == al.stack([a, a], axis=1).shape
    with pytest.raises(al.ShapeError, match="^cat: "):
        al.cat([a, b], 1)


def test_a_tensor_of_no_dimensions_stands_for_a_number():
    x, two = al.ones(2), al.tensor(2.0)
    assert x.add(x, alpha=two).tolist() == [3.0, 3.0]
    assert x.fill_(two).tolist() == [2.0, 2.0]
    with pytest.raises(al.ArgumentError, match="add: argument 'alpha' is a .*Tensor, expected Sca"):
        x.add(x, alpha=al.tensor(2.0, requires_grad=True))
    with pytest.raises(al.UnsupportedError, match="item"):
        al.compile(lambda x, n: x.add(x, alpha=n))(x, two)


def test_parts_are_asked_for_by_the_names_of_functions():
    x = al.arange(4)
    halves = [[0, 1], [2, 3]]
    assert [part.tolist() for part in al.split(tensor=x, split_size_or_sections=2)] == halves
    assert [part.tolist() for part in al.tensor_split(x, sections=2)] == halves
    assert [part.tolist() for part in al.tensor_split(x, indices=(2,))] == halves
