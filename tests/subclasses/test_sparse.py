"""`SemiStructuredSparseTensor`: what it stands for is the dense tensor, pruned by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import aotlite as al
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import SubclassError
from aotlite.subclasses import (
    QuantizedTensor,
    SemiStructuredSparseTensor,
    TwoTensor,
    flatten,
    unflatten,
)


def pruned(x: Any, dim: int = -1) -> Any:
    """The two largest of each four along a dimension, of equal ones the first."""
    rows = np.moveaxis(np.array(x), dim, -1)
    groups = rows.reshape(*rows.shape[:-1], -1, 4)
    order = np.argsort(-abs(groups), -1, kind="stable")[..., :2]
    kept = np.zeros(groups.shape, bool)
    np.put_along_axis(kept, order, True, -1)
    return np.moveaxis(np.where(kept, groups, 0).reshape(rows.shape), -1, dim)


def sparse(shape: tuple[int, ...] = (3, 8), dim: int = -1) -> Any:
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    return SemiStructuredSparseTensor.from_dense(al.from_numpy(x), dim, prune=True)


@given(
    st.lists(st.integers(-3, 3), min_size=8, max_size=8),
    st.sampled_from([0, 1, -1]),
)
@example([1, 1, 1, 1, 0, 0, 0, 0], 0)
def test_the_two_largest_of_four_are_kept(numbers: list[int], dim: int) -> None:
    x = np.array([numbers] * 4, "float64").reshape(4, 8)
    found = SemiStructuredSparseTensor.from_dense(al.from_numpy(x), dim, prune=True)
    assert np.array_equal(pruned(x, dim), found.decode().numpy())
    again = SemiStructuredSparseTensor.from_dense(found.decode(), dim)
    assert np.array_equal(pruned(x, dim), again.decode().numpy())


def test_metadata_has_two_bits_a_value() -> None:
    x = SemiStructuredSparseTensor.from_dense(al.tensor([0.0, 5.0, 0.0, 6.0, 0.0, 0.0, 7.0, 8.0]))
    assert x.values.tolist() == [5.0, 6.0, 7.0, 8.0]
    assert x.metadata.tolist() == [1 | 3 << 2, 2 | 3 << 2]
    assert x.metadata.dtype is al.uint8
    assert (x.shape, x.stride(), x.dtype) == ((8,), (1,), al.float32)


def test_a_tensor_that_is_not_sparse_is_refused() -> None:
    with pytest.raises(SubclassError, match="dense is a tensor that has more than 2 numbers in a"):
        SemiStructuredSparseTensor.from_dense(al.ones(4))
    with pytest.raises(SubclassError, match="dense is .*a multiple of 4 along dim -1"):
        SemiStructuredSparseTensor.from_dense(al.ones(6))


@pytest.mark.parametrize("dim", [0, 1])
def test_products_with_dense_ones_on_both_sides(dim: int) -> None:
    x = sparse((4, 8), dim)
    dense = x.decode()
    right, left = al.arange(24.0).view(8, 3), al.arange(8.0).view(2, 4)
    assert (x @ right).tolist() == (dense @ right).tolist()
    assert (left @ x).tolist() == (left @ dense).tolist()
    assert (x.t() @ left.t()).tolist() == (dense.t() @ left.t()).tolist()
    assert al.nn.functional.linear(right.t(), x).tolist() == (right.t() @ dense.t()).tolist()
    assert x.mv(right[:, 0]).tolist() == dense.mv(right[:, 0]).tolist()


def test_gradients_are_dense_and_those_of_the_meaning() -> None:
    x = sparse((4, 8)).requires_grad_()
    w = al.arange(24.0).view(8, 3).requires_grad_()
    (x @ w).square().sum().backward()
    dense, again = x.detach().decode().requires_grad_(), w.detach().requires_grad_()
    (dense @ again).square().sum().backward()
    assert type(x.grad) is Tensor
    assert x.grad.tolist() == dense.grad.tolist()
    assert w.grad.tolist() == again.grad.tolist()


SEEN = {
    "t": lambda x: x.t(),
    "row": lambda x: x[1],
    "rows": lambda x: x[::2],
    "groups": lambda x: x[:, 4:],
    "whole": lambda x: x[:, :],
    "column groups of t": lambda x: x.t()[4:8],
    "expand": lambda x: x.unsqueeze(1).expand(3, 2, 8),
    "more": lambda x: x.expand(2, 3, 8),
    "squeeze": lambda x: x[:1].squeeze(),
    "squeeze 0": lambda x: x[:1, :4].squeeze(0),
    "permute": lambda x: x.unsqueeze(0).permute(2, 0, 1),
    "transpose": lambda x: x.unsqueeze(2).transpose(-1, 1),
    "view": lambda x: x.view(6, 4),
    "flat": lambda x: x.view(-1),
    "split": lambda x: x.split(2)[1],
    "chunk": lambda x: x.chunk(2, 1)[1],
    "unbind": lambda x: x.unbind()[2],
    "alias": lambda x: x.alias(),
    "detach": lambda x: x.detach(),
}


@pytest.mark.parametrize("name", SEEN)
@pytest.mark.rules("SUB-15", "SUB-17")
def test_views_that_keep_groups_whole_are_views_of_both_parts(name: str) -> None:
    """SUB-15, SUB-17."""
    x, view = sparse(), SEEN[name]
    seen, dense = view(x), x.decode()
    assert isinstance(seen, SemiStructuredSparseTensor)
    assert seen.decode().tolist() == view(dense).tolist()
    assert seen.values.storage is x.values.storage
    assert seen.metadata.storage is x.metadata.storage
    if "expand" in name or name == "more":
        return
    axis = seen.sparse_dim
    other = al.arange(float(seen.numel())).view(seen.shape) - 3.0
    assert seen.copy_(other) is seen
    view(dense).copy_(al.from_numpy(pruned(other.numpy(), axis)))
    assert x.decode().tolist() == dense.tolist()
    assert x.version == 1
    rebuilt = unflatten(
        type(seen), {"values": seen.values, "metadata": seen.metadata}, flatten(seen)[1],
        seen.shape, seen.stride(),
    )  # fmt: skip
    assert rebuilt.decode().tolist() == seen.decode().tolist()


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[:, 1],
        lambda x: x[:, 2:6],
        lambda x: x[:, ::2],
        lambda x: x.view(12, 2),
        lambda x: x.t().diagonal(),
        lambda x: x.as_strided((2,), (1,)),
        lambda x: x.split(2, 1),
        lambda x: x.view(al.int32),
    ],
)
def test_views_that_part_groups_are_refused(view: Any) -> None:
    with pytest.raises(SubclassError, match="is no view of its parts"):
        view(sparse())


def test_parts_may_be_wrappers() -> None:
    """SUB-9: sparse values that are quantized, and pairs."""
    x = sparse((2, 4))
    small = SemiStructuredSparseTensor(QuantizedTensor.from_dense(x.values), x.metadata)
    assert np.allclose(x.decode().numpy(), small.decode().numpy(), atol=0.02)
    assert type(small[0].values) is QuantizedTensor
    pair = TwoTensor(x.decode(), -x.decode())
    of_pair = SemiStructuredSparseTensor.from_dense(pair, prune=True)
    assert (of_pair @ al.ones(4, 1)).b.tolist() == (-x @ al.ones(4, 1)).tolist()


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((3, al.ones(2)), "values is a int, expected a tensor"),
        ((al.ones(2).long(), al.ones(1).byte()), r"values is i64\[2\], expected floats"),
        ((al.ones(3), al.ones(1).byte()), "dim is -1, expected one of 1 dimensions, of even size"),
        ((al.ones(2), al.ones(1).byte(), 1), "dim is 1, expected one of 1"),
        ((al.ones(2), al.ones(1)), r"metadata is f32\[1\], expected uint8 of shape \(1,\)"),
        ((al.ones(2), al.ones(2).byte()), r"metadata is u8\[2\], expected uint8 of shape \(1,\)"),
        ((al.ones(2), al.full((1,), 5).byte()), r"metadata is 5 \(0b0101\) .*, places 1 and 1,"),
        ((al.ones(2), al.full((1,), 1).byte()), r"metadata is 1 \(0b0001\) .*, places 1 and 0,"),
        ((al.ones(2), al.full((1,), 20).byte()), "metadata is 20 .* expected two places"),
    ],
)
def test_parts_that_do_not_fit_are_named(parts: Any, message: str) -> None:
    """SUB-1."""
    with pytest.raises(SubclassError, match=f"^SemiStructuredSparseTensor: {message}"):
        SemiStructuredSparseTensor(*parts)
