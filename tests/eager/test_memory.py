"""Memory that grows, is replaced, or has a second count of writes (TEN-5, TEN-25, TEN-26)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir.errors import ArgumentError, AutogradError, DTypeError, ShapeError, UnsupportedError


def numbers(count):
    return al.arange(count).to(al.float32)


# ----------------------------------------------------------------------------------------- resize_
def test_resize_keeps_the_elements_and_the_storage():
    x = numbers(4)
    storage = x.untyped_storage()
    assert x.resize_(2, 3) is x
    assert ((2, 3), (3, 1), storage) == (x.shape, x.stride(), x.untyped_storage())
    assert ([0.0, 1.0, 2.0, 3.0], 24) == (x.view(-1)[:4].tolist(), storage.nbytes())
    assert ([0.0], 24) == (x.resize_((1,)).tolist(), storage.nbytes())  # never fewer bytes


def test_memory_that_grew_holds_zeros():
    """So that runs repeat (RNG-1); PyTorch's holds what was there."""
    for _ in range(8):
        assert [2.0] * 300 + [0.0] * 700 == al.full((300,), 2.0).resize_(1000).tolist()


def test_aliases_of_memory_that_grew_see_the_same_memory():
    """Each alias held an array on the old memory before."""
    x = numbers(4)
    view, detached = x[1:3], x.detach()
    assert ([1.0, 2.0], 4) == (view.tolist(), len(detached.tolist()))
    x.resize_(1000)
    view.fill_(7)
    assert ([0.0, 7.0, 7.0, 3.0], [7.0, 7.0]) == (detached.tolist(), x[1:3].tolist())


def test_resize_counts_as_a_write_only_if_the_size_changes():
    x = numbers(4)
    other = x[:2]
    assert [0, 1, 1, 2] == [x.resize_(size).version for size in ((4,), (2, 2), (2, 2), (4,))]
    assert 2 == other.version


def test_resize_keeps_the_offset_and_takes_a_format():
    x = numbers(6)[2:4].resize_(4)
    assert (2, [2.0, 3.0, 4.0, 5.0]) == (x.storage_offset(), x.tolist())
    x = al.ones(1).resize_(2, 3, 2, 2, memory_format=al.channels_last)
    assert (12, 1, 6, 3) == x.stride()
    template = al.ones(2, 3, 2, 2).to(memory_format=al.channels_last)
    assert (12, 4, 2, 1) == al.ones(1).resize_as_(template).stride()
    kept = al.ones(1).resize_as_(template, memory_format=al.preserve_format)
    assert (12, 1, 6, 3) == kept.stride()
    assert (1, 3) == al.ones(2, 3).t().resize_(3, 2).stride()


def test_a_view_may_be_resized_and_the_base_is_not():
    base = numbers(4)
    view = base[:2].resize_(1, 2)
    assert (base, (4,), 1) == (view.base, base.shape, base.version)
    w = al.ones(4).requires_grad_()
    base.mul_(w)  # the family has a history from now on
    view.sum().backward()
    assert [0.0, 1.0, 0.0, 0.0] == w.grad.tolist()


@pytest.mark.parametrize("size", [(3,), (4,)])
def test_what_requires_grad_is_not_resized(size):
    x = al.ones(3).requires_grad_()
    for context in (al.enable_grad, al.no_grad):
        with context(), pytest.raises(AutogradError, match="^resize_: the tensor requires grad"):
            x.resize_(size)


def test_memory_that_ndarrays_show_does_not_grow():
    x = numbers(3)
    shown = x.numpy()
    assert [0.0] == x.resize_(1).tolist()
    text = "^resize_: the storage has 12 bytes and 16 are needed, expected memory that may grow"
    with pytest.raises(UnsupportedError, match=text):
        x.resize_(4)
    assert ((1,), 1, [0.0, 1.0, 2.0]) == (x.shape, x.version, shown.tolist())
    with pytest.raises(UnsupportedError, match="needed, expected memory that may grow"):
        al.from_numpy(np.ones(3)).resize_(4)


@pytest.mark.parametrize(
    ("size", "more", "kind", "text"),
    [
        ((-1,), {}, ShapeError, r"resize_: size is \(-1,\), expected no negative number"),
        (("a",), {}, ArgumentError, "resize_: argument 'size' is"),
        (((1,), (2,)), {}, ArgumentError, "resize_: argument 'size' is"),
        ((2,), {"memory_format": al.preserve_format}, ArgumentError, "resize_: argument 'memory_f"),
        ((2,), {"memory_format": al.channels_last}, ShapeError, "resize_: the tensor has shape"),
    ],
)
def test_a_size_that_makes_no_sense_is_refused(size, more, kind, text):
    x = numbers(3)
    with pytest.raises(kind, match=f"^{text}"):
        x.resize_(*size, **more)
    assert ((3,), 0) == (x.shape, x.version)


def test_resize_and_set_while_captured():
    """What the graph cannot know is refused, and the error says what to do."""
    assert [2.0, 2.0] == al.compile(lambda x: x.resize_(2) * 2)(al.ones(2)).tolist()
    large = al.ones(4)
    for change, x in (
        (lambda x: x.resize_(3), large[:2]),
        (lambda x: x.set_(x.untyped_storage()), al.ones(2)),
    ):
        with pytest.raises(UnsupportedError, match="cannot be captured") as got:
            al.compile(change)(x)
        assert any(note.startswith("Instead: ") for note in got.value.__notes__)
    assert [1.0, 1.0, 1.0, 1.0] == large.tolist()


def test_a_saved_tensor_of_another_size_is_an_error_of_the_backward():
    w = al.ones(3).requires_grad_()
    x = numbers(3)
    y = (w * x).sum()
    x.resize_(2)
    with pytest.raises(AutogradError, match="saved tensor"):
        y.backward()


def test_a_compiled_function_sees_the_memory_that_grew():
    x = numbers(2)
    double = al.compile(lambda x: x.mul_(2))
    double(x)
    x.resize_(3)[2] = 5
    assert [0.0, 4.0, 10.0] == double(x).tolist()


def test_out_takes_the_size_of_the_result_where_it_is_empty():
    out = al.empty((0,))
    assert al.add(al.ones(2, 3), 1, out=out) is out
    assert ((2, 3), 2.0, 1) == (out.shape, out[0, 0].item(), out.version)


def test_no_result_is_stored_where_one_of_them_has_no_room():
    x, values = al.ones(2, 3), al.empty((0,))
    with pytest.raises(UnsupportedError, match="expected memory that may grow"):
        al.max(x, 0, out=(values, al.from_numpy(np.ones((0,), np.int64))))
    assert ((0,), 0) == (values.shape, values.version)
    al.max(x, 0, out=(values, al.empty((0,), dtype=al.int64)))
    assert ((3,), 1) == (values.shape, values.version)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.integers(0, 4), max_size=3), min_size=1, max_size=4), st.integers(0, 3))
def test_resized_tensors_are_those_of_torch(torch, sizes, start):
    ours, theirs = numbers(6)[start:], torch.arange(6.0)[start:]
    for size in sizes:
        ours.resize_(size)
        theirs.resize_(size)
        got = (ours.shape, ours.stride(), ours.storage_offset(), ours.version)
        assert (*map(tuple, (theirs.shape, theirs.stride())), start, theirs._version) == got
        assert theirs.untyped_storage().nbytes() == ours.untyped_storage().nbytes()
        known = max(0, 6 - start)
        assert theirs.view(-1)[:known].tolist() == ours.view(-1)[:known].tolist()


test_resized_tensors_are_those_of_torch = pytest.mark.torch(test_resized_tensors_are_those_of_torch)


# --------------------------------------------------------------------------------------------- set_
def test_set_puts_a_tensor_onto_the_memory_of_another():
    p, q = al.ones(2), numbers(6).view(2, 3)[:, 1:]
    old = p[:1]
    assert p.set_(q) is p
    assert p.is_set_to(q) and p.untyped_storage() is q.untyped_storage()
    p.fill_(8)
    assert ([[8.0, 8.0], [8.0, 8.0]], [1.0], 1) == (q.tolist(), old.tolist(), old.version)


def test_set_takes_a_storage_and_a_window_on_it():
    q = numbers(6)
    storage = q.untyped_storage()
    assert [0.0, 1.0, 2.0, 3.0, 4.0, 5.0] == al.ones(1).set_(storage).tolist()
    assert [2.0, 4.0] == al.ones(1).set_(storage, 2, (2,), (2,)).tolist()
    assert [[1.0, 2.0], [3.0, 4.0]] == al.ones(1).set_(q, 1, (2, 2)).tolist()
    assert (0,) == al.ones(3).set_().shape


def test_a_parameter_is_put_onto_other_memory_under_no_grad():
    p, q = al.ones(2).requires_grad_(), al.ones(2) * 3
    with pytest.raises(AutogradError, match="^set_: the tensor requires grad, expected a call"):
        p.set_(q)
    with al.no_grad():
        p.set_(q)
    (p * p).sum().backward()
    assert (True, [6.0, 6.0]) == (p.is_leaf, p.grad.tolist())


def test_what_was_saved_before_it_was_put_elsewhere_is_an_error_of_the_backward():
    p = al.ones(2).requires_grad_()
    y = (p * p).sum()
    with al.no_grad():
        p.set_(al.zeros(2))
    with pytest.raises(AutogradError, match="saved tensor"):
        y.backward()


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        (lambda x: x.set_(al.ones(2, dtype=al.float64)), DTypeError, "set_: the source has dtype"),
        (lambda x: x.set_(3), ArgumentError, "set_: argument 'source' is 3, expected Tensor"),
        (lambda x: x.set_(x, 0, (9,), (1,)), ShapeError, "as_strided: size .* needs 36 bytes"),
        (lambda x: x.set_(al.ones(2).requires_grad_()), AutogradError, "set_: the source requires"),
        (lambda x: (x * al.ones(2).requires_grad_()).set_(x), AutogradError, "set_: the tensor"),
    ],
)
def test_memory_that_does_not_fit_is_refused(change, kind, text):
    x = al.ones(2)
    storage = x.untyped_storage()
    with pytest.raises(kind, match=f"^{text}"):
        change(x)
    assert (storage, [1.0, 1.0], 0) == (x.untyped_storage(), x.tolist(), x.version)


# ------------------------------------------------------------------------------------------ aliases
def test_writes_to_a_hidden_alias_are_not_counted():
    """TEN-5: what an optimizer writes so is no error of a backward that is still to come."""
    w, x = al.ones(2).requires_grad_(), numbers(2)
    y = (w * x).sum()
    alias = w.hidden_alias()
    alias.mul_(5)
    assert ([5.0, 5.0], 0, 1) == (w.tolist(), w.version, alias.version)
    assert (False, True, None) == (alias.requires_grad, alias.is_leaf, alias.base)
    y.backward()
    assert [0.0, 1.0] == w.grad.tolist()


def test_a_hidden_alias_is_known_to_share_memory():
    def f(a, b):
        a.add_(1)
        return b * 2

    x = al.ones(2)
    hidden = x.hidden_alias()
    assert [4.0, 4.0] == al.compile(f)(x, hidden).tolist()
    assert (1, 0) == (x.version, hidden.version)


def test_questions_about_memory():
    x = numbers(6)
    assert (4, 4, 24) == (x.element_size(), x.itemsize, x.nbytes)
    assert x.numpy().ctypes.data + 8 == x[2:].data_ptr()
    assert x.untyped_storage() is x[2:].untyped_storage()
    assert x.untyped_storage().data_ptr() == x.data_ptr()
    assert x.is_set_to(x.detach()) and not x.is_set_to(x[1:])
    with pytest.raises(UnsupportedError, match=r"data_ptr\(\) of a tensor"):
        al.compile(lambda x: x * x.data_ptr())(x)
    asking = al.compile(lambda x: x * (2 if x.is_set_to(x.view(1)) else 3))
    assert [2.0] == asking(al.ones(1)).tolist()
