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


def test_a_leafs_copy_is_a_leaf_without_gradient():
    x = al.ones(2, requires_grad=True)
    x.sum().backward()
    twin = copy.deepcopy(x)
    assert (True, True, None) == (twin.requires_grad, twin.is_leaf, twin.grad)
    with pytest.raises(al.AutogradError, match="^deepcopy: the tensor is not a leaf"):
        copy.deepcopy(x * 2)


def test_a_copy_of_memory_that_may_not_be_written_can_be():
    import numpy as np

    array = np.ones(3)
    array.setflags(write=False)
    assert [2.0] * 3 == copy.deepcopy(al.from_numpy(array)).mul_(2).tolist()
