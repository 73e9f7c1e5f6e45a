"""Views share memory and history: rules TEN-1 to TEN-6 and TEN-18 to TEN-23."""

import numpy as np
import pytest
from hypothesis import given, settings

import aotlite as al
from tests.helpers.program_strategy import programs
from tests.helpers.programs import Aotlite, execute


def counted(*shape):
    """Float64 numbers 0, 1, 2, ... that require grad, as a leaf."""
    count = int(np.prod(shape))
    flat = al.arange(count, dtype=al.float64)
    return flat.view(shape).clone().requires_grad_()


def seen_from_storage(tensor):
    """The tensor's values by TEN-1's formula, on a flat copy of its storage."""
    flat = np.frombuffer(bytes(tensor.storage.buffer), tensor.dtype.numpy)
    places = np.full(tensor.shape, tensor.storage_offset())
    for dim, step in enumerate(tensor.stride()):
        index = np.arange(tensor.shape[dim]) * step
        places = places + index.reshape([-1 if i == dim else 1 for i in range(tensor.ndim)])
    return flat[places] if tensor.numel() else np.empty(tensor.shape)


@settings(max_examples=150, derandomize=True, database=None)
@given(programs())
def test_values_lie_where_offset_and_strides_say(program):
    """TEN-1, for every tensor that a random program makes."""
    values = []
    try:
        execute(Aotlite(), program.setup, values)
    except al.AotliteError:
        pass
    for value in values:
        np.testing.assert_array_equal(seen_from_storage(value), value.detach().numpy())


def test_views_share_storage_and_version_with_their_base():
    """TEN-2, TEN-10."""
    b = al.zeros(2, 3)
    views = [
        b.view(3, 2), b.t(), b.transpose(0, 1), b.permute(1, 0), b.expand(4, 2, 3), b.select(0, 1),
        b.narrow(1, 0, 2), b[:, ::2], b.squeeze(), b.unsqueeze(0), b.diagonal(), b.unfold(1, 2, 1),
        b.as_strided((2,), (1,), 3), b.alias(), b.detach(), b.reshape(6), b.flatten(), b[None, 0],
        *b.split(1), *b.chunk(2), *b.unbind(1), b.contiguous(), b.T, b.mT,
    ]  # fmt: skip
    assert {id(b.storage)} == {id(view.storage) for view in views}
    b.t()[1].add_(1)
    assert [1] * len(views) == [view.version for view in views]


def test_reshape_copies_only_where_strides_do_not_merge():
    """TEN-2."""
    b = al.zeros(2, 3)
    assert b.storage is b.t().t().reshape(3, 2).storage
    assert b.storage is not b.t().reshape(6).storage


def test_view_refuses_what_strides_cannot_express():
    """TEN-2."""
    with pytest.raises(
        al.ShapeError, match=r"^view: shape \(6,\) is not expressible .* use reshape$"
    ):
        al.zeros(2, 3).t().view(6)


def test_as_strided_past_the_storage_names_the_bytes():
    """TEN-1."""
    with pytest.raises(al.ShapeError, match="needs 40 bytes, expected .* at most the storage's 24"):
        al.zeros(6).as_strided((5,), (2,), 1)
    with pytest.raises(al.ShapeError, match="at storage offset -1 "):
        al.zeros(6)[2:].as_strided((1,), (1,), -1)


def test_the_base_of_a_view_is_never_a_view():
    """TEN-3."""
    x = counted(2, 2)
    assert x is x[1].view(-1).base
    assert x.base is None and x.detach().base is None


def test_a_base_may_be_transposed_after_its_views_were_taken():
    """TEN-3, TEN-24: older views keep their own recipe, and a write through one stays right."""
    x = counted(2, 3)
    b = x * 1
    row = b[0]
    b.t_()
    row.mul_(10)
    (b * al.tensor([[1, 2], [3, 4], [5, 6]], dtype=al.float64)).sum().backward()
    assert [[10, 30, 50], [2, 4, 6]] == x.grad.tolist()


def test_a_leaf_transposed_under_no_grad_gets_its_gradients_in_its_new_shape():
    """TEN-24: from what was computed before, from views taken before, and from what comes after."""
    for use in (lambda x: x * 1, lambda x: x[:], lambda x: x.detach().clone()):
        x = counted(2, 3)
        before = use(x)
        with al.no_grad():
            x.t_()
        after = x * 1
        if before.requires_grad:
            before.backward(al.tensor([[1, 2, 3], [4, 5, 6]], dtype=al.float64))
            assert [[1, 4], [2, 5], [3, 6]] == x.grad.tolist()
            x.grad = None
        after.backward(al.tensor([[1, 2], [3, 4], [5, 6]], dtype=al.float64))
        assert [[1, 2], [3, 4], [5, 6]] == x.grad.tolist()


def test_a_view_of_a_transposed_leaf_stays_right_after_a_write():
    """TEN-18: the view is rebuilt from the root, whose gradients pass through t_ to the leaf."""
    x = counted(2, 2)
    with al.no_grad():
        x.t_()
        row = x.detach()
        row.add_(1)
    x[0].backward(al.tensor([5.0, 7.0], dtype=al.float64))
    assert [[5, 7], [0, 0]] == x.grad.tolist()


def test_views_follow_their_base_when_it_becomes_a_leaf():
    """TEN-3, TEN-15: they share its memory, so writing them writes the leaf."""
    b = al.zeros(4)
    v = b[:2]
    b.requires_grad_()
    assert v.requires_grad
    (v * 3).sum().backward()
    assert [3, 3, 0, 0] == b.grad.tolist()
    with pytest.raises(al.AutogradError, match="view of a leaf"):
        v.add_(1)


def test_a_base_that_requires_grad_no_longer_may_be_written():
    """TEN-14."""
    b = al.zeros(4, requires_grad=True)
    b[:2]
    b.requires_grad_(False)
    assert not b.requires_grad
    assert [1, 1, 1, 1] == b.add_(1).tolist()


def test_a_view_made_a_leaf_collects_for_itself():
    """TEN-23."""
    b = al.zeros(4)
    v = b[:2].requires_grad_()
    assert not b.requires_grad and v.is_leaf
    b.add_(1)
    (v * v).sum().backward()
    assert [2, 2] == v.grad.tolist()
    with pytest.raises(al.AutogradError, match="^add_: the tensor is a view of a leaf"):
        v[0].add_(1)


def test_detach_shares_memory_and_versions_and_no_history():
    """TEN-4."""
    x = counted(3)
    y = x * x
    d = y.detach()
    assert (False, True, None) == (d.requires_grad, d.is_leaf, d.base)
    assert y.storage is d.storage
    kept = y.exp()
    d.mul_(2)
    assert 1 == y.version
    kept.sum().backward()  # exp saves its result, not y
    squares = (x * 1).pow(2)
    x.detach().mul_(2)
    squares.sum().backward()  # what was saved is a product of its own


@pytest.mark.parametrize("write", [lambda v: v.mul_(2), lambda v: v.t_()], ids=["data", "geometry"])
def test_one_of_several_views_is_not_written_with_grad_on(write):
    """TEN-19."""
    b = counted(2, 2) * 1
    part = b.split(1)[0]
    with pytest.raises(al.AutogradError, match="is an output of an op that returns several views"):
        write(part)
    with pytest.raises(al.AutogradError, match="several views"):
        write(part.view(1, 2))
    assert (0, [[0, 1], [2, 3]]) == (b.version, b.tolist())


def test_one_of_several_views_may_be_written_where_no_history_is_made():
    """TEN-19."""
    b = al.zeros(4)
    a, c = b.split(2)
    a.add_(1)
    with pytest.raises(al.AutogradError, match="several views"):
        c.add_(al.ones(2, requires_grad=True))
    assert [1, 1, 0, 0] == b.tolist()


@pytest.mark.parametrize("of", ["base", "detached", "part"])
def test_a_part_whose_family_was_written_has_no_history_to_ask_for(of):
    """TEN-19, TEN-20."""
    b = counted(4) * 1
    a, _ = b.split(2)
    with al.no_grad():
        {"base": b, "detached": b.detach(), "part": a}[of].mul_(2)
    for ask in (lambda: a.grad_fn, lambda: a * 2, lambda: a.is_leaf):
        with pytest.raises(al.AutogradError, match="^view: the tensor is an output of an op that"):
            ask()
    assert a.requires_grad and 1 == a.version


def test_a_view_under_no_grad_requires_grad_and_leads_nowhere():
    """TEN-19, TEN-21."""
    b = counted(4) * 1
    with al.no_grad():
        v = b[:2]
        w = b * 1
    assert (True, None, b, True) == (v.requires_grad, v.grad_fn, v.base, v.is_leaf)
    assert not w.requires_grad
    with pytest.raises(al.AutogradError, match="made under no_grad or in inference_mode, expected"):
        v.mul_(2)
    with al.no_grad():
        v.mul_(2)
    with pytest.raises(al.AutogradError, match="made under no_grad or in inference_mode, and its"):
        v.grad_fn  # noqa: B018


def test_a_stale_view_is_rebuilt_when_its_node_is_next_asked_for():
    """TEN-18."""
    x = counted(4)
    b = x * 1
    v = b[:2]
    before = v.grad_fn
    b.mul_(3)
    assert v.grad_fn is not before
    v.sum().backward()
    assert [3, 3, 0, 0] == x.grad.tolist()
