"""PYX-12: sizes as symbols are variables of the file, and so are sizes that depend on values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.export import aot_export_module, to_python
from tests.python_export.comparison import module_of


def layer(x: al.Tensor, w: al.Tensor) -> tuple[al.Tensor, al.Tensor]:
    rows = al.nn.functional.linear(x, w).relu() * x.shape[0]
    return rows.mean(1) / x.shape[1], (x * 2).t()[1:]


def written() -> Any:
    args = al.ones(5, 3), al.ones(4, 3, requires_grad=True)
    return module_of(al.compile(layer).to_python(args=args, dynamic=True))


@pytest.mark.rules("PYX-12")
@pytest.mark.parametrize(("n", "m", "k"), [(5, 3, 4), (6, 2, 7), (3, 8, 2)])
def test_one_file_serves_many_sizes(n: int, m: int, k: int) -> None:
    x = np.arange(n * m, dtype=np.float32).reshape(n, m) - 4
    w = np.linspace(-1, 1, k * m, dtype=np.float32).reshape(k, m)
    (found, turned), pullback = written().layer_with_backward(x, w)
    given = al.from_numpy(x.copy()), al.from_numpy(w.copy()).requires_grad_()
    expected = layer(*given)
    np.testing.assert_allclose(found, expected[0].detach().numpy(), rtol=1e-6)
    np.testing.assert_array_equal(turned, expected[1].numpy())
    assert tuple(step // 4 for step in turned.strides) == expected[1].stride()
    expected[0].backward(al.ones(n))
    gradient = given[1].grad
    assert gradient is not None
    mine = pullback(np.ones(n, np.float32))["w"]
    np.testing.assert_allclose(mine, gradient.numpy(), rtol=1e-5)


@pytest.mark.rules("PYX-12", "PYX-2")
def test_sizes_are_checked() -> None:
    file, w = written(), np.ones((4, 3), np.float32)
    with pytest.raises(ValueError, match="sizes do not meet s1 == s3, as this file needs"):
        file.layer(np.ones((5, 2), np.float32), w)
    with pytest.raises(ValueError, match=r"x has shape \(3,\), expected more than 1 dimensions"):
        file.layer(np.ones(3, np.float32), w)
    with pytest.raises(TypeError, match="x is a float, expected an array"):
        file.layer(1.0, w)


@pytest.mark.rules("PYX-12")
def test_a_kernel_that_holds_a_size_as_a_number_is_refused() -> None:
    def convolved(x: al.Tensor, w: al.Tensor) -> al.Tensor:
        return al.nn.functional.conv2d(x, w)

    args = al.ones(1, 2, 5, 5), al.ones(3, 2, 3, 3)
    with pytest.raises(al.UnsupportedError, match="conv2d: the calls of its kernel hold a size"):
        al.compile(convolved).to_python(args=args, dynamic=True)


@pytest.mark.rules("PYX-12")
def test_a_size_that_depends_on_values_is_computed_by_the_forward() -> None:
    def found(x: al.Tensor) -> tuple[al.Tensor, ...]:
        return al.nonzero(x) * 2, x[x > 0].sum(), x.masked_select(x > 1), al.unique(x)

    file = module_of(al.compile(found).to_python(args=(al.tensor([0.0, 1.0, 2.0, 2.0]),)))
    x = np.array([3.0, -1.0, 5.0, 3.0], np.float32)
    for mine, its in zip(file.found(x), found(al.from_numpy(x)), strict=True):
        np.testing.assert_array_equal(mine, its.numpy())


@pytest.mark.rules("PYX-12", "PYX-9")
def test_a_gradient_with_a_size_that_depends_on_values_is_refused() -> None:
    x = al.ones(3, requires_grad=True)
    with pytest.raises(al.UnsupportedError, match="a gradient has a size that depends on values"):
        al.compile(lambda x: x[x > 0].sum()).to_python(args=(x,))


@pytest.mark.rules("PYX-12", "PYX-9")
def test_a_number_that_is_a_symbol_is_refused() -> None:
    compiled = al.compile(lambda x, n: x * n)
    with pytest.raises(al.UnsupportedError, match="no shape of an argument gives s"):
        compiled.to_python(args=(al.ones(3), 7), dynamic=True)
    file = module_of(compiled.to_python(args=(al.ones(3), 7)))
    assert file._lambda_(np.ones(3, np.float32), 7).tolist() == [7.0] * 3


@pytest.mark.rules("PYX-12", "PYX-11")
def test_an_exported_graph_with_symbols_is_refused() -> None:
    class Twice(al.nn.Module):
        def forward(self, x: al.Tensor) -> tuple[al.Tensor]:
            return (x * 2,)

    exported = aot_export_module(Twice(), (al.ones(3),), dynamic_shapes=({0: al.Dim("n")},))
    with pytest.raises(al.UnsupportedError, match="sizes of the exported graph are symbols, s0"):
        to_python(*exported)
