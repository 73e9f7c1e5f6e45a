"""`untyped_storage().resize_`: memory that is given back while tensors lie on it."""

import copy
import pickle

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite import AutogradError
from aotlite.ir.errors import ArgumentError, UnsupportedError

GONE = "the storage of the tensor was resized to 0 bytes"


def numbers(count):
    return al.arange(float(count))


def freed(tensor):
    assert tensor.untyped_storage().resize_(0) is tensor.untyped_storage()
    return tensor


@pytest.mark.rules("STG-1")
def test_memory_is_given_back_and_taken_again():
    x = numbers(4)
    view, storage = x[1:], x.untyped_storage()
    freed(x)
    assert (0, 0, 0, (4,), 0) == (
        storage.nbytes(),
        storage.data_ptr(),
        x.version,
        x.shape,
        view.untyped_storage().nbytes(),
    )
    storage.resize_(16)
    assert ([0.0] * 4, 16, 0) == (x.tolist(), storage.nbytes(), view.version)
    view.copy_(al.ones(3))
    assert [0.0, 1.0, 1.0, 1.0] == x.tolist()


USES = {
    "op": lambda x: x + 1,
    "operand": lambda x: al.ones(4) * x,
    "reduction": lambda x: x[1:].sum(),
    "write": lambda x: x.add_(1),
    "fill": lambda x: x.fill_(1),
    "write to a view": lambda x: x[1:].copy_(al.ones(3)),
    "source": lambda x: al.zeros(4).copy_(x),
    "list": lambda x: x.tolist(),
    "number": lambda x: x[0].item(),
    "ndarray": lambda x: x.numpy(),
    "clone": lambda x: x.clone(),
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "hidden alias": lambda x: x.hidden_alias(),
    "growth": lambda x: x.resize_(9),
    "argument": al.compile(lambda x: x * 2),
    "closure": lambda x: al.compile(lambda y: y * x)(al.ones(4)),
    "set": lambda x: al.ones(1).set_(x).tolist(),
}


@pytest.mark.rules("STG-2")
@pytest.mark.parametrize("use", USES)
def test_what_uses_elements_that_are_gone_raises_and_changes_nothing(use):
    x = freed(numbers(4))
    with pytest.raises(UnsupportedError, match=GONE):
        USES[use](x)
    x.untyped_storage().resize_(16)
    assert ([0.0] * 4, 0) == (x.tolist(), x.version)


@pytest.mark.rules("STG-2")
def test_geometry_and_history_need_no_elements():
    w = al.ones(4, requires_grad=True)
    x = freed(w * 2)
    assert ((2, 2), (3,), 1) == (x.view(2, 2).shape, x[1:].shape, x[1:].storage_offset())
    assert "Tensor(f32[4], freed)" == repr(x)
    assert x.grad_fn is not None and not x.detach().requires_grad
    x.untyped_storage().resize_(16)
    x.sum().backward()
    assert [2.0] * 4 == w.grad.tolist()


@pytest.mark.rules("STG-2")
def test_a_compiled_function_refuses_what_is_gone_and_runs_again_when_it_is_back():
    f, x = al.compile(lambda x: x * 2), numbers(3)
    assert [0.0, 2.0, 4.0] == f(x).tolist() == f(x).tolist()
    freed(x)
    with pytest.raises(UnsupportedError, match=f"^compile: {GONE}"):
        f(x)
    x.untyped_storage().resize_(12)
    x.copy_(al.ones(3))
    assert [2.0] * 3 == f(x).tolist()


@pytest.mark.rules("STG-3")
def test_a_size_that_a_tensor_exceeds_is_refused():
    x = numbers(4)
    storage = x.untyped_storage()
    for before in (16, 0):
        storage.resize_(before)
        with pytest.raises(UnsupportedError, match="nbytes is 12, expected 0, or at least the 16"):
            storage.resize_(12)
        assert before == storage.nbytes()
    short = numbers(4)[:2].detach()
    assert 8 == short.untyped_storage().resize_(8).nbytes()
    assert [0.0, 1.0] == short.tolist()


@pytest.mark.rules("STG-1")
@pytest.mark.parametrize("size", [-1, 2.5, True, "4", None])
def test_what_is_no_size_is_refused(size):
    with pytest.raises(ArgumentError, match="^resize_: nbytes is .*, expected a number of bytes"):
        numbers(4).untyped_storage().resize_(size)


@pytest.mark.rules("STG-1")
def test_memory_that_others_have_is_not_given_back():
    x = numbers(4)
    array = x.numpy()
    with pytest.raises(UnsupportedError, match="^resize_: the memory is shared with an ndarray"):
        freed(x)
    assert [0.0, 1.0, 2.0, 3.0] == array.tolist() == x.tolist()
    array.flags.writeable = False
    with pytest.raises(UnsupportedError, match="^resize_: the memory is"):
        freed(al.from_numpy(array))


@pytest.mark.rules("STG-4")
def test_a_backward_that_reads_what_is_gone_raises_in_eager():
    w = al.ones(3, requires_grad=True)
    loss = (w * w).sum()
    freed(w)
    with pytest.raises(UnsupportedError, match=GONE):
        loss.backward()
    w.untyped_storage().resize_(12)
    w.hidden_alias().fill_(5)
    (w * w).sum().backward()
    assert [10.0] * 3 == w.grad.tolist()


@pytest.mark.rules("STG-4")
def test_a_compiled_backward_has_what_it_saved():
    w = al.ones(3, requires_grad=True)
    loss = al.compile(lambda w: (w * w).sum())(w)
    freed(w)
    loss.backward()
    assert [2.0] * 3 == w.grad.tolist()


@pytest.mark.rules("STG-5")
@pytest.mark.parametrize("make", [al.compile, al.func.functionalize])
def test_a_resize_that_is_captured_is_refused_before_anything_happens(make):
    def f(x):
        x.add_(1)
        x.untyped_storage().resize_(0)

    x = numbers(3)
    with pytest.raises(UnsupportedError, match=r"resize_\(\) of a storage"):
        make(f)(x)
    assert ([0.0, 1.0, 2.0], 0) == (x.tolist(), x.version)


STEPS = st.lists(
    st.one_of(
        st.sampled_from([0, 16, 20, 40]),
        st.tuples(st.sampled_from(["fill_", "mul_"]), st.integers(0, 2), st.integers(-2, 2)),
    ),
    max_size=8,
)


@pytest.mark.torch
@pytest.mark.rules("STG-1")
@settings(max_examples=15, deadline=None)
@given(STEPS)
@example([20, ("fill_", 0, 2), 0, 16, ("fill_", 1, 1)])
def test_resized_storages_are_those_of_torch(torch, steps):
    """But for new bytes, which are undefined in PyTorch: they are filled after each growth."""
    ours, theirs = numbers(4), torch.arange(4.0)
    mine, yours = [(x, x[1:], x[::2]) for x in (ours, theirs)]
    for step in steps:
        if isinstance(step, int):
            before = ours.untyped_storage().nbytes()
            ours.untyped_storage().resize_(step)
            theirs.untyped_storage().resize_(step)
            if before == 0:
                ours.fill_(7) if step else None
                theirs.fill_(7) if step else None
        elif ours.untyped_storage().nbytes():
            name, which, value = step
            getattr(mine[which], name)(value)
            getattr(yours[which], name)(value)
        found = theirs.untyped_storage().nbytes()
        assert (found, theirs._version) == (ours.untyped_storage().nbytes(), ours.version)
        if found:
            assert theirs.tolist() == ours.tolist()
            assert yours[2].tolist() == mine[2].tolist()


def test_versions_of_what_is_given_back_still_guard_what_is_saved():
    w = al.ones(3, requires_grad=True)
    loss = (w * w).sum()
    freed(w.detach())
    w.untyped_storage().resize_(12)
    w.detach().fill_(1)
    with pytest.raises(AutogradError, match="was changed in place|version"):
        loss.backward()


@pytest.mark.parametrize("size", [3, 4096])
def test_compiled_autograd_never_computes_of_freed_memory(size):
    """Its windows on no memory became new memory, and gradients of it were given."""
    for gone in ("saved", "gradient", None, "saved", "gradient"):
        x, grad = al.full((size,), 3.0).requires_grad_(), al.ones(size)
        y = (x * x * x).sin()
        if gone is not None:
            {"saved": x, "gradient": grad}[gone].untyped_storage().resize_(0)
        with al.compiled_autograd.enable():
            if gone is None:
                y.backward(grad)
                continue
            with pytest.raises(UnsupportedError, match="freed|resized to 0 bytes"):
                y.backward(grad)
        assert x.grad is None


@pytest.mark.rules("STG-5")
@pytest.mark.parametrize("ask", ["nbytes", "data_ptr"])
@pytest.mark.parametrize("make", [al.compile, al.func.functionalize])
def test_the_size_and_address_of_a_storage_are_no_constants_of_a_graph(make, ask):
    """Of a tensor of the closure: the number would be that of the first call."""
    w = numbers(4)
    with pytest.raises(UnsupportedError, match=f"^{ask}: the tensor belongs to a capture"):
        make(lambda x: x + getattr(w.untyped_storage(), ask)())(al.ones(4))
