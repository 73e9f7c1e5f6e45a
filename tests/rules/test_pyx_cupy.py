"""PYX-14: the file for CuPy does on CuPy's arrays what the file for NumPy does on NumPy's."""

from __future__ import annotations

import ast
import re
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.export import aot_export_module, program, to_python
from tests.python_export.comparison import module_of
from tests.python_export.cupy_ops import (
    OTHER_VALUES,
    emulated_cupy,
    on_device,
    on_host,
    outcome,
)
from tests.python_export.single_ops import calls_of, exported_ops

ABSENT = {"mode", "cummax", "cummin", "logcumsumexp"}


@pytest.mark.rules("PYX-14", "PYX-7")
def test_a_step_with_draws_views_and_writes_does_the_same_on_cupy() -> None:
    al.manual_seed(2)
    model = al.nn.Sequential(al.nn.Linear(2, 4), al.nn.Dropout(0.5), al.nn.Linear(4, 1))
    optimizer = al.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    seen = al.zeros(2, 2)

    def step(x: al.Tensor) -> Any:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        seen[0].add_(x[1])
        return loss.detach(), seen.t()

    x = al.tensor([[1.0, 2.0], [3.0, 4.0]])
    compiled = al.compile(step)
    file = module_of(compiled.to_python(args=(x,)))
    text = compiled.to_python(args=(x,), array_module="cupy")
    with emulated_cupy():
        twin = module_of(text)
        for _ in range(3):
            mine, its = twin.step(on_device(x.numpy())), file.step(x.numpy())
            np.testing.assert_allclose(on_host(mine[0]), its[0], rtol=1e-5)
            np.testing.assert_array_equal(on_host(mine[1]), its[1])
        for name, value in file.STATE.items():
            np.testing.assert_allclose(on_host(twin.STATE[name]), value, rtol=1e-4)
    names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    assert "np" not in names and not re.search(r"^import numpy", text, re.M)


@pytest.mark.rules("PYX-14", "PYX-10")
def test_gradients_on_cupy() -> None:
    def scaled(x: al.Tensor, w: al.Tensor) -> al.Tensor:
        return (x * w.exp()).sort().values[1:]

    x, w = al.tensor([3.0, 1.0, 2.0]), al.zeros(3, requires_grad=True)
    text = program(scaled, x, w).to_python(array_module="cupy")
    with emulated_cupy() as cupy:
        found, pullback = module_of(text).scaled_with_backward(
            on_device(x.numpy()), on_device(w.detach().numpy())
        )
        assert on_host(found).tolist() == [2.0, 3.0]
        assert on_host(pullback(cupy.ones(2, np.float32))["w"]).tolist() == [3.0, 0.0, 2.0]
        with pytest.raises(TypeError, match="x is a ndarray, expected an array"):
            module_of(text).scaled(x.numpy(), w.detach().numpy())


@pytest.mark.rules("PYX-14")
def test_each_op_is_computed_by_cupy_or_refused_by_name() -> None:
    kinds: dict[str, set[str]] = {}
    with emulated_cupy():
        for op in exported_ops():
            kinds[op.name] = {outcome(made)[0] for made in calls_of(op, 1)}
    assert {name for name, found in kinds.items() if "absent" in found} == ABSENT
    assert {name for name, found in kinds.items() if "different" in found} <= OTHER_VALUES.keys()


@pytest.mark.rules("PYX-14")
@pytest.mark.parametrize(
    ("body", "what"),
    [
        (lambda x: x.cummax(0).values, "no `maximum.accumulate`"),
        (lambda x: x.logcumsumexp(0), "no `logaddexp.accumulate`"),
    ],
)
def test_what_cupy_lacks_is_named(body: Any, what: str) -> None:
    with pytest.raises(al.UnsupportedError, match=what) as caught:
        al.compile(body).to_python(args=(al.ones(3),), array_module="cupy")
    assert "leave out array_module" in caught.value.__notes__[0]


@pytest.mark.rules("PYX-14")
def test_an_unknown_library_is_refused_and_so_is_ml_dtypes() -> None:
    compiled = al.compile(lambda x: x + 1)
    with pytest.raises(al.ArgumentError, match="array_module is 'jax', expected 'numpy' or 'cupy'"):
        compiled.to_python(args=(al.ones(2),), array_module="jax")
    with pytest.raises(al.ArgumentError, match="ml_dtypes is True for CuPy, expected False"):
        compiled.to_python(args=(al.ones(2),), array_module="cupy", ml_dtypes=True)


@pytest.mark.rules("PYX-14", "PYX-11")
def test_an_exported_graph_is_written_for_cupy() -> None:
    class Twice(al.nn.Module):
        def forward(self, x: al.Tensor) -> Any:
            return (x * 2,)

    text = to_python(*aot_export_module(Twice(), (al.ones(3),)), array_module="cupy")
    with emulated_cupy():
        assert (
            on_host(module_of(text).Twice(on_device(np.ones(3, np.float32)))[0]).tolist()
            == [2.0] * 3
        )
