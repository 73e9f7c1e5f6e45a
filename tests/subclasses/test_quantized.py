"""`QuantizedTensor`: what it stands for is the dequantized value, in NumPy's arithmetic."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import aotlite as al
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import SubclassError
from aotlite.subclasses import QuantizedTensor, TwoTensor, flatten, unflatten

RANGE = {
    "int8": (-128.0, 127.0),
    "float8_e4m3fn": (-448.0, 448.0),
    "float8_e5m2": (-57344.0, 57344.0),
}
NUMPY: dict[str, Any] = {
    "int8": np.int8,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}
X = np.array([[0.0, -1.5, 3.25, 1000.0], [0.375, -0.125, 7.0, -70000.0]], "float32")


def stored(x: Any, scale: Any, zero: Any, dtype: str) -> Any:
    """What is left of numbers that are quantized."""
    steps = x / scale
    steps = (np.rint(steps) if dtype == "int8" else steps) + zero
    return (np.clip(steps, *RANGE[dtype]).astype(NUMPY[dtype]).astype(x.dtype) - zero) * scale


@pytest.mark.parametrize("dtype", RANGE)
@pytest.mark.parametrize("scale", [np.float32(0.25), np.array([[0.5], [2.0]], "float32")])
@pytest.mark.parametrize("zero", [0, 3])
def test_it_stands_for_the_nearest_values_times_the_scale(
    dtype: str, scale: Any, zero: int
) -> None:
    """Formula of the class's docstring, per tensor and per channel."""
    if zero and dtype != "int8":
        return
    scales = al.from_numpy(np.array(scale))
    zeros = al.full(scales.shape, zero, dtype=al.int8) if zero else None
    q = QuantizedTensor.quantize(al.from_numpy(X), scales, zeros, dtype=getattr(al, dtype))
    assert q.dtype is al.float32
    assert np.array_equal(stored(X, scale, np.float32(zero), dtype), q.decode().numpy())
    assert np.array_equal(stored(X, scale, np.float32(zero), dtype) + 1, (q + 1).numpy())


@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_a_scale_that_is_found_covers_the_range(axis: int | None, affine: bool) -> None:
    x = np.random.default_rng(0).standard_normal((3, 5)).astype("float32")
    q = QuantizedTensor.from_dense(al.from_numpy(x), axis=axis, affine=affine)
    scale = q.scale.numpy()
    assert scale.shape == {None: (), 0: (3, 1), -1: (1, 5)}[axis]
    assert np.all(abs(q.decode().numpy() - x) <= scale * (1.0 if affine else 0.5001))
    assert not affine or q.decode().numpy().min() < 0 < q.decode().numpy().max()


def test_of_no_numbers_and_of_zeros_the_scale_is_one() -> None:
    assert QuantizedTensor.from_dense(al.zeros(2)).scale.item() == 1.0
    assert QuantizedTensor.from_dense(al.zeros(2, 0), axis=0).scale.tolist() == [[1.0], [1.0]]
    assert QuantizedTensor.from_dense(al.zeros(0)).decode().tolist() == []


@pytest.mark.rules("SUB-15", "SUB-17")
def test_views_are_views_of_the_values_and_writes_quantize() -> None:
    """SUB-15, SUB-17."""
    q = QuantizedTensor.quantize(al.tensor([[1.0, 2.0], [3.0, 4.0]]), al.tensor(0.5))
    turned = q.t()
    assert turned.base is q
    assert turned.values.storage is q.values.storage
    assert turned[0].mul_(1.3) is not q
    assert q.tolist() == [[1.5, 2.0], [4.0, 4.0]]  # 1.3 and 3.9 to halves
    assert (q.version, turned.version) == (1, 1)
    assert q.fill_(1e9).tolist() == [[63.5, 63.5], [63.5, 63.5]]


def test_views_per_channel_have_their_part_of_the_scales() -> None:
    scale = al.tensor([[1.0], [2.0], [4.0]])
    q = QuantizedTensor.quantize(al.arange(12.0).view(3, 4), scale)
    dense = q.decode()
    for view in (
        lambda x: x.t(),
        lambda x: x[1],
        lambda x: x[:, 2],
        lambda x: x[::2, 1:],
        lambda x: x.unsqueeze(0).expand(2, 3, 4),
        lambda x: x.diagonal(),
        lambda x: x.unfold(1, 2, 1),
        lambda x: x.split(2)[1],
        lambda x: x.unbind(1)[0],
        lambda x: x.permute(1, 0).unsqueeze(1),
        lambda x: x[1].view(2, 2),
    ):
        assert isinstance(view(q), QuantizedTensor)
        assert view(q).decode().tolist() == view(dense).tolist()
        assert view(q).values.storage is q.values.storage
    q[1].add_(2.0)
    assert q[1].decode().tolist() == (dense[1] + 2.0).tolist()
    for unseen in (lambda: q.view(-1), lambda: q.as_strided((2,), (1,)), lambda: q.view(al.int32)):
        with pytest.raises(
            SubclassError, match="of a QuantizedTensor of shape .* is no view of its"
        ):
            unseen()


def test_gradients_are_dense_and_those_of_the_meaning() -> None:
    q = QuantizedTensor.quantize(al.tensor([1.0, 2.0]), al.tensor(0.5)).requires_grad_()
    w = al.tensor([3.0, 5.0], requires_grad=True)
    (q * w).exp().sum().backward()
    assert type(q.grad) is Tensor
    dense = q.decode().detach().requires_grad_()
    again = w.detach().requires_grad_()
    (dense * again).exp().sum().backward()
    assert q.grad.tolist() == dense.grad.tolist()
    assert w.grad.tolist() == again.grad.tolist()  # type: ignore[union-attr]


def test_an_in_place_op_passes_gradients_through_its_rounding() -> None:
    q = QuantizedTensor.quantize(al.tensor([1.0, 2.0]), al.tensor(0.5)).requires_grad_()
    y = q.clone()
    y.mul_(1.3)
    y.sum().backward()
    assert y.tolist() == [1.5, 2.5]
    assert q.grad.tolist() == [np.float32(1.3)] * 2  # type: ignore[union-attr]


def test_clones_and_pairs_and_deep_parts() -> None:
    """SUB-9: parts may be wrappers."""
    pair = TwoTensor(al.tensor([1.0, 2.0]), al.tensor([3.0, 40.0]))
    q = QuantizedTensor.from_dense(pair)
    assert isinstance(q.values, TwoTensor)
    assert isinstance(q * 2, TwoTensor)
    of_parts = TwoTensor(*[QuantizedTensor.from_dense(each) for each in (pair.a, pair.b)])
    assert (q * 2).b.tolist() == (of_parts * 2).b.tolist()
    assert type(q.clone()) is QuantizedTensor
    twos = QuantizedTensor.quantize(al.tensor([2.0, 2.0]), al.tensor(0.5))
    assert (pair * twos).b.tolist() == [6.0, 80.0]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((al.ones(2), al.ones(())), r"values is f32\[2\], expected a tensor of int8"),
        ((al.ones(2).char(), 0.5), "scale is a float, expected a tensor"),
        ((al.ones(2).char(), al.ones((), dtype=al.int64)), "scale is i64.*expected a tensor of fl"),
        ((al.ones(2, 3).char(), al.ones(2)), r"scale is f32\[2\], expected no dimensions, or"),
        ((al.ones(2, 3).char(), al.ones(3, 1)), "scale is .*each of that size or 1"),
        ((al.ones(2).char(), al.ones(()), al.ones(())), "zero_point is f32.*expected int8 of"),
        ((al.ones(2).char(), al.ones(()), al.ones(1).char()), "zero_point is i8"),
    ],
)
def test_parts_that_do_not_fit_are_named(parts: Any, message: str) -> None:
    """SUB-1."""
    with pytest.raises(SubclassError, match=f"^QuantizedTensor: {message}"):
        QuantizedTensor(*parts)


def test_dtypes_that_it_does_not_have_are_named() -> None:
    with pytest.raises(SubclassError, match="dtype is int16, expected int8, float8_e4m3fn or"):
        QuantizedTensor.quantize(al.ones(2), al.ones(()), dtype=al.int16)
    with pytest.raises(SubclassError, match="dtype is float8_e5m2, expected int8"):
        QuantizedTensor.from_dense(al.ones(2), dtype=al.float8_e5m2, affine=True)
    with pytest.raises(SubclassError, match="dense is i64.*expected a tensor of floats"):
        QuantizedTensor.from_dense(al.ones(2).long())


def test_it_is_rebuilt_of_its_parts() -> None:
    q = QuantizedTensor.from_dense(al.tensor([[1.0, 2.0]]), affine=True)
    names, spec = flatten(q)
    assert (names, spec) == (("values", "scale", "zero_point"), None)
    again = unflatten(
        QuantizedTensor, {name: getattr(q, name) for name in names}, spec, q.shape, q.stride()
    )
    assert all(getattr(again, name) is getattr(q, name) for name in names)


def test_one_number_is_a_number_of_python() -> None:
    """As that of the dense tensor that it stands for."""
    x = QuantizedTensor(al.tensor(3).to(al.int8), al.tensor(0.5))
    assert (bool(x), int(x), float(x), complex(x), x.item()) == (True, 1, 1.5, 1.5, 1.5)
    with pytest.raises(al.UnsupportedError, match="of a tensor"):
        al.compile(lambda x: x * 2 if x else x)(x)
