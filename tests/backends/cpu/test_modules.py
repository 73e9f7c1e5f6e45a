"""Modules in C: outputs, gradients and buffers are eager's up to rounding, over training steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite import nn
from aotlite.backends.native.compiler.toolchain import find_compiler

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C compiler works here")
CASES: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "batch norm": (lambda: nn.Sequential(nn.BatchNorm2d(3), nn.ReLU()), (4, 3, 5, 5)),
    "instance norm": (lambda: nn.InstanceNorm2d(3, affine=True), (2, 3, 6, 5)),
    "group and rms norm": (lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.RMSNorm(6)), (3, 4, 6)),
    "dropout": (lambda: nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.4), nn.Linear(8, 2)), (5, 6)),
    "pooled convolutions": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.GELU(), nn.MaxPool2d(2)),
        (2, 2, 6, 6),
    ),
    "transposed convolution": (lambda: nn.ConvTranspose2d(2, 3, 3, stride=2), (2, 2, 4, 4)),
    "lstm": (lambda: First(nn.LSTM(4, 5)), (3, 2, 4)),
    "gru": (lambda: First(nn.GRU(4, 5, bidirectional=True)), (2, 2, 4)),
    "transformer": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), 1),
        (5, 2, 8),
    ),
    "transformer with dropout": (lambda: nn.TransformerEncoderLayer(8, 2, 16), (5, 2, 8)),
}


class First(nn.Module):
    """The first of a module's results."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return self.inner(x)[0]


def made(make: Callable[[], Any]) -> Any:
    al.manual_seed(5)
    return make()


def trained(module: Any, run: Any, shape: tuple[int, ...], steps: int = 3) -> dict[str, Any]:
    """Outputs of some steps of gradient descent, and the state after them."""
    al.manual_seed(11)
    found: dict[str, Any] = {}
    for step in range(steps):
        x = al.randn(*shape).requires_grad_()
        y = run(x)
        (y * y).mean().backward()
        found |= {f"output {step}": y, f"gradient {step}": x.grad}
        with al.no_grad():
            for parameter in module.parameters():
                parameter.sub_(parameter.grad, alpha=0.1)
                parameter.grad = None
    return found | module.state_dict()


@pytest.mark.thinned(4)
@pytest.mark.parametrize("partition", [pytest.param("default", marks=pytest.mark.long), "min_cut"])
@pytest.mark.parametrize("name", CASES)
def test_training_a_module_in_c_is_eagers_up_to_rounding(name: str, partition: str) -> None:
    """Random numbers are drawn as in eager, running statistics are written as in eager."""
    make, shape = CASES[name]
    mine, its = (made(make) for _ in range(2))
    options: Any = {"backend": "cpu", "partition": partition}
    got = trained(mine, al.compile(mine, **options), shape)
    expected = trained(its, its, shape)
    assert [*got] == [*expected]
    for key, value in expected.items():
        a, b = (each.detach().numpy() for each in (got[key], value))
        assert (a.dtype, a.strides, got[key].version) == (b.dtype, b.strides, value.version), key
        np.testing.assert_allclose(a, b, 2e-4, 2e-5, err_msg=key)


@pytest.mark.parametrize("keep", [False, True])
def test_writes_of_inputs_in_c_are_eagers(keep: bool) -> None:
    """Written by the graph itself, or by the runtime behind it."""

    def step(state: Any, decay: Any, x: Any) -> Any:
        state.mul_(decay).add_(x * x)
        decay[0] = 0.5
        return state.sqrt() + decay

    def given() -> list[Any]:
        return [al.arange(6.0).view(2, 3).t() + 1, al.ones(2), al.ones(3, 2) * 2]

    options = {"backend": "cpu", "keep_inference_input_mutations": keep}
    compiled = al.compile(step, **options)
    for _ in range(3):
        mine, its = given(), given()
        got, expected = compiled(*mine), step(*its)
        for a, b in zip([got, *mine], [expected, *its], strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), 1e-6)
            assert (a.version, a.stride()) == (b.version, b.stride())


@pytest.mark.parametrize("shape", [(0,), (), (3, 0, 2), (0, 0)])
def test_functions_of_empty_tensors_and_of_numbers(shape: tuple[int, ...]) -> None:
    def body(x: Any, w: Any) -> Any:
        y = (x * w).tanh() + x.sum()
        z = y.exp().mean()
        return y.reshape(-1).cumsum(0), z, (y > 0).any(), y.sum(tuple(range(y.dim())))

    def run(function: Any) -> list[Any]:
        x, w = (al.ones(*shape).requires_grad_() for _ in range(2))
        results = function(x, w)
        total = results[0].sum() + results[3]
        total.backward()
        return [each.detach().numpy() for each in (*results, x.grad, w.grad)]

    for got, expected in zip(run(al.compile(body, backend="cpu")), run(body), strict=True):
        assert got.shape == expected.shape
        np.testing.assert_allclose(got, expected, 1e-6)
