"""A tensor by itself: its values in Python, its errors, and any array library below it."""

from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.eager.base.new_tensors import tensor_over, tensors_over
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tensor import Tensor
from tests.eager.helpers.listarrays import LISTS, ListArray

WORD: Any = "a"
NUMBER: Any = 3


def test_an_unknown_method_names_the_nearest():
    x = al.ones(2)
    with pytest.raises(AttributeError, match=r"^'Tensor' object has no attribute 'sume'$"):
        x.sume()
    with pytest.raises(AttributeError, match=r"^'Tensor' object has no attribute '_private'$"):
        x._private  # noqa: B018
    assert not hasattr(x, "__cuda_array_interface__")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: al.ones(2) + al.ones(3), al.ShapeError, r"^add: shapes are \(2,\) and \(3,\)"),
        (lambda: al.ones(2) + "a", al.ArgumentError, "^add: argument 'other' is 'a'"),
        (lambda: al.ones(2, 2).view(3), al.ShapeError, r"^view: shape is \(3,\), expected"),
        (lambda: al.ones(2).item(), al.ArgumentError, r"^item: .* \(2,\), expected one element"),
        (lambda: len(al.ones(())), al.ArgumentError, "^len: the tensor has no dimensions"),
        (lambda: al.ones(2)[2], al.IndexOutOfRangeError, "^select: index is 2, expected -2"),
        (lambda: al.ones(2)[0, 0], al.IndexOutOfRangeError, "^getitem: 2 indices are given"),
        (lambda: al.ones(2)[..., ...], al.ArgumentError, "^getitem: ... is given twice"),
        (lambda: al.ones(2)["a"], al.ArgumentError, "^getitem: an index is 'a', expected"),
        (lambda: al.ones(2)[:1.5], al.ArgumentError, "^getitem: a bound of a slice is 1.5"),
        (lambda: al.ones(()).roll(1, 0), al.IndexOutOfRangeError, "^roll: dim is 0, expected"),
        (lambda: al.ones((1,) * 65), al.ShapeError, "^shape: there are 65 dimensions"),
        (lambda: al.ones((1,) * 64)[None], al.ShapeError, "^shape: there are 65 dimensions"),
        (lambda: al.ones(2).size(WORD), al.ArgumentError, "^size: a dimension is 'a', expected"),
        (lambda: al.ones(2).tensor_split(2, 0.5), al.ArgumentError, "^tensor_split: a dimension"),
        (lambda: al.ones(2).bernoulli_(1j), al.ArgumentError, "^bernoulli: p is 1j, expected"),
        (lambda: al.ones(2).resize_as_(NUMBER), al.ArgumentError, "^resize_as_: argument 'the_"),
        (lambda: al.linalg.norm(3), al.ArgumentError, "^linalg_norm: argument 'A' is 3, exp"),
        (lambda: al.cat(NUMBER), al.ArgumentError, "^cat: argument 'tensors' is 3, expected"),
        (lambda: al.tensor(1, dtype=WORD), al.ArgumentError, "^tensor: argument 'dtype' is 'a'"),
        (lambda: al.tensor(1, device=NUMBER), al.ArgumentError, "^tensor: argument 'device' is 3"),
        (lambda: al.empty_strided((2,), NUMBER), al.ArgumentError, "^empty_strided: arg"),
        (lambda: al.promote_types(WORD, al.int8), al.ArgumentError, "^promote_types: a dtype"),
        (lambda: al.finfo(WORD), al.DTypeError, "^finfo: dtype is a, expected"),
        (lambda: al.iinfo(NUMBER), al.DTypeError, "^iinfo: dtype is 3, expected"),
        (
            lambda: al.nn.functional.embedding(al.tensor([0]), al.ones(())),
            al.ShapeError,
            r"^embedding: argument 'weight' has shape \(\), expected 2 dimensions",
        ),
        (lambda: al.ones(2)[::-1], al.ArgumentError, "^getitem: a slice has step -1"),
        (lambda: [1, 2][al.ones(())], al.DTypeError, "^index: the tensor has dtype float32"),
        (lambda: al.ones(2).copy_(1), al.ArgumentError, "^copy_: argument 'src' is 1, expected"),
        (
            lambda: al.ones(1, requires_grad=True).numpy(),
            al.AutogradError,
            "^numpy: .* requires grad",
        ),
        (lambda: al.ones(2).where(1, 2), al.DTypeError, "^where: the condition has dtype float32"),
        (
            lambda: al.ones(2) + al.full(2, 1.0, device=LISTS),
            al.DeviceError,
            "^add: operands are on",
        ),
    ],
)
def test_a_wrong_argument_is_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_values_reach_python_as_numbers():
    x = al.tensor([[1, 2], [3, 4]])
    assert [[1, 2], [3, 4]] == x.tolist()
    last = x[1, 1]
    assert (4, 4.0, True, 4) == (int(last), float(last), bool(last), last.item())
    assert "b" == "abc"[x[0, 0]]
    assert [[1, 2], [3, 4]] == [row.tolist() for row in x]
    np.testing.assert_array_equal(np.asarray(x), [[1, 2], [3, 4]])
    assert np.float32 == np.asarray(x, dtype=np.float32).dtype


def test_numpy_shares_memory_both_ways():
    x = al.zeros(3)
    x.numpy()[1] = 5
    x[2] = 7
    assert [0, 5, 7] == x.tolist() == x.numpy().tolist()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: al.tensor([1.0, 2.5]), "tensor([1. , 2.5])"),
        (lambda: al.tensor([1, 2]), "tensor([1, 2])"),
        (lambda: al.ones(1, dtype=al.float64), "tensor([1.], dtype=float64)"),
        (lambda: al.ones(1, requires_grad=True), "tensor([1.], requires_grad=True)"),
        (lambda: al.ones(1, requires_grad=True) * 2, "tensor([2.], grad_fn=<MulBackward>)"),
        (lambda: al.full(1, 2.0, device=LISTS), "tensor([2.0], device=lists)"),
    ],
)
def test_a_tensor_shows_its_values_and_its_history(make, text):
    assert text == repr(make())


def test_a_part_whose_base_was_written_can_be_shown():
    """TEN-19: its history is invalid, its values are not."""
    b = al.ones(2, requires_grad=True) * 1
    part, _ = b.split(1)
    b.mul_(2)
    assert "tensor([2.], grad_fn=<invalid>)" == repr(part)


def test_assignment_of_items_writes_in_place():
    x = al.zeros(2, 3)
    x[0] = al.tensor([[1.0, 2.0, 3.0]])  # leading dimensions of size 1 are dropped, as in PyTorch
    x[1, ::2] = 4
    x[x == 4] = 5
    assert [[1, 2, 3], [5, 0, 5]] == x.tolist()
    assert 3 == x.version


def program(device):
    """Views, writes, broadcasting, sums, a product, and what they give forward and backward."""
    x = al.tensor([[1.0, 2, 3], [4, 5, 6], [7, 8, 9]], dtype=al.float64, device=device)
    w = al.tensor([[1.0, 0, 3], [2, 1, 1]], dtype=al.float64, device=device)
    x.requires_grad_()
    w.requires_grad_()
    b = x * 1
    part = b[1:]
    part.mul_(w)
    b.t()[0].copy_(w.sum(0)[0] + b[:, 0])
    product = b.clone().matmul(w.t())
    repeated = b.clone().expand(2, 3, 3)
    squares = (repeated * repeated).sum((0, 1))
    b.t_()
    part[0].fill_(3)
    b.unfold(0, 2, 2)[0].neg_()
    total = product.sum() * 2 + (squares * squares).sum() - (b * b).sum()
    total.backward()
    return [t.tolist() for t in (total.detach(), b.detach(), x.grad, w.grad)], b


@pytest.mark.parametrize("dtype", [al.float16, al.float32, al.float64])
def test_draws_on_an_array_library_of_lists_are_those_of_numpy(dtype):
    found = []
    for device in (al.tensor(0).device, LISTS):
        al.manual_seed(7)
        sizes = ((), (0,), (2, 3), (9,))
        found.append([al.rand(*size, dtype=dtype, device=device).tolist() for size in sizes])
    assert found[0] == found[1]


def test_the_engine_runs_on_an_array_library_of_lists():
    """Nothing above `ArrayBackend` takes arrays for NumPy's."""
    expected, _ = program(al.tensor(0).device)
    found, b = program(LISTS)
    assert expected == found
    assert isinstance(b.array, ListArray)
    with pytest.raises(al.DeviceError, match="^numpy: the tensor is on lists, expected the CPU"):
        b.detach().numpy()
    with pytest.raises(al.ShapeError, match="needs 800 bytes, expected .* the storage's 72 bytes"):
        b.as_strided((100,), (1,), 0)


# ------------------------------------------------------------------- constructors written out
def slots_of(thing):
    names = {n for kind in type(thing).__mro__ for n in getattr(kind, "__slots__", ())}
    return {n: getattr(thing, n) for n in names - {"__weakref__"} if hasattr(thing, n)}


def assert_set_alike(expected, found):
    """All slots but the storage hold the same; so do those of the storage."""
    mine, its = slots_of(expected), slots_of(found)
    assert slots_of(mine.pop("storage")) == slots_of(its.pop("storage"))
    assert mine == its


def test_tensor_over_sets_every_slot_as_the_constructors_do():
    buffer, meta = np.zeros(64, np.uint8), al.ones(2, 3).meta
    expected = Tensor(Storage(buffer), meta, 4)
    assert {*Tensor.__slots__} - {"__weakref__", "_dynamic_dims"} <= {*slots_of(expected)}
    assert_set_alike(expected, tensor_over(buffer, meta, 4))


def test_tensors_over_sets_every_slot_and_gives_a_buffer_one_storage():
    first, second = np.zeros(64, np.uint8), np.zeros(64, np.uint8)
    meta = al.ones(2, 3).meta
    windows = [(first, 0), None, (second, 0), (first, 4), (second, 8), (first, 0)]
    metas = [meta, meta, meta.with_stride((1, 2)), meta, None, meta]
    a, nothing, b, c, unwanted, d = tensors_over(windows, metas)
    assert (None, None) == (nothing, unwanted)
    assert a.storage is c.storage is d.storage is not b.storage
    assert_set_alike(Tensor(Storage(second), metas[2], 0), b)
    assert_set_alike(Tensor(Storage(first), meta, 4), c)


# ------------------------------------------------------------------------------- Python's protocols
def test_none_and_strings_equal_no_tensor():
    x = al.ones(2)
    assert (x == None) is False  # noqa: E711  (the operator is what is tested)
    assert (x != None) is True  # noqa: E711
    assert (x == "a") is False
    assert x in [None, x]
    with pytest.raises(al.ArgumentError, match="eq: argument 'other' is a numpy"):
        assert x == np.ones(2)


def test_in_asks_the_elements():
    x = al.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert 2.0 in x and 5.0 not in x and x[0, 0] in x and 1.0 in x[0, 0]


def test_complex_numbers_are_asked_for_as_such():
    assert complex(al.tensor(1 + 2j)) == 1 + 2j
    assert float(al.tensor(3 + 0j)) == 3.0
    for kind in (int, float):
        with pytest.raises(al.ArgumentError, match=f"{kind.__name__}: the element is"):
            kind(al.tensor(1 + 2j))
