"""Deep copies: of tensors that share memory, of layouts, of leaves."""

import copy

import pytest

import aotlite as al


def test_copies_of_tensors_that_share_memory_share_memory():
    base = al.tensor([1.0, 2.0, 3.0])
    twin, view, apart = copy.deepcopy([base, base[1:], al.ones(3)])
    twin.fill_(9)
    assert ([9.0, 9.0], 1) == (view.tolist(), view.version)
    assert [1.0, 2.0, 3.0] == base.tolist()
    assert [1.0, 1.0, 1.0] == apart.tolist()


def test_one_tensor_is_copied_once():
    x = al.ones(2)
    first, second = copy.deepcopy((x, x))
    assert first is second is not x


@pytest.mark.parametrize(
    "make", [lambda x: x.t(), lambda x: x[:, 1:], lambda x: x[:1].expand(4, 3)]
)
def test_a_copy_lies_as_the_tensor_does(make):
    x = make(al.arange(6.0).view(2, 3))
    twin = copy.deepcopy(x)
    assert (x.tolist(), x.stride(), x.storage_offset()) == (
        twin.tolist(), twin.stride(), twin.storage_offset(),
    )  # fmt: skip


def test_a_leafs_copy_is_a_leaf_with_a_copy_of_its_gradient():
    """Parameters' copies start without, as in PyTorch."""
    x = al.ones(2, requires_grad=True)
    x.sum().backward()
    twin, grad = copy.deepcopy([x, x.grad])
    assert (True, True, [1.0, 1.0]) == (twin.requires_grad, twin.is_leaf, twin.grad.tolist())
    assert twin.grad is grad is not x.grad
    weight = al.nn.Parameter(x)
    weight.sum().backward()
    assert copy.deepcopy(weight).grad is None
    with pytest.raises(al.AutogradError, match="^deepcopy: the tensor is not a leaf"):
        copy.deepcopy(x * 2)


@pytest.mark.rules("CAP-4")
def test_deep_copies_are_made_in_compiled_functions():
    """Those of tensors from outside were once refused, as tensors that lie nowhere."""
    held = al.arange(3.0)

    def function(x):
        twin, other = copy.deepcopy(x), copy.deepcopy(held)
        return twin.grad * x.detach(), other.mul_(2), held * 1

    x = al.ones(3, requires_grad=True)
    (x * 2).sum().backward()
    expected = [[2.0] * 3, [0.0, 2.0, 4.0], [0.0, 1.0, 2.0]]
    for run in (function, al.compile(function), al.compile(function, backend="reference")):
        assert expected == [each.tolist() for each in run(x)]


@pytest.mark.filterwarnings("ignore:Using backward")
def test_gradients_of_deep_copies_are_pytorchs(torch):
    found = []
    for library in (torch, al):
        x = library.ones(2, requires_grad=True)
        (x * 3).sum().backward()
        weight = library.nn.Parameter(library.ones(2))
        (weight * 3).sum().backward()
        twin, alone = copy.deepcopy(x), copy.deepcopy(weight)
        y = library.ones(1, requires_grad=True)
        (y * y).sum().backward(create_graph=True)
        try:
            copy.deepcopy(y)
        except RuntimeError:
            found.append(None)
        found.append((twin.grad.tolist(), twin.grad is x.grad, alone.grad))
    assert found[:2] == found[2:]


def test_a_copy_of_memory_that_may_not_be_written_can_be():
    import numpy as np

    array = np.ones(3)
    array.setflags(write=False)
    assert [2.0] * 3 == copy.deepcopy(al.from_numpy(array)).mul_(2).tolist()
