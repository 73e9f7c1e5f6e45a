"""Passes written for torch.fx run after their import is changed, and do the same."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite import ops
from tests.fx.helpers.torch_passes import HEAD, PASSES

ARRAYS = [np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4) + k for k in range(2)]


def ran(text: str, functions: Any, lib: ModuleType, inputs: list[Any]) -> tuple[Any, ...]:
    """(op names of the graph, arrays of the result, the rest) of a pass."""
    scope: dict[str, Any] = {"OPS": functions, "lib": lib}
    exec(compile(text, "<pass>", "exec", dont_inherit=True), scope)
    module, result, rest = scope["run"](inputs)
    calls = [node for node in module.graph.nodes if node.op == "call_function"]
    results = result if isinstance(result, tuple) else (result,)
    arrays = [each.detach().numpy() for each in results]
    return [node.target.__name__ for node in calls], arrays, rest


def here(name: str) -> tuple[Any, ...]:
    text = (HEAD + PASSES[name]).replace("torch.fx", "aotlite.fx")
    return ran(text, ops, al, [al.tensor(each) for each in ARRAYS])


EXPECTED = {
    "common subexpressions": (["sin", "mul", "exp", "add"], 7),
    "decomposition": (["sub", "gt", "mul", "add"], False),
    "flops": (["mul", "transpose", "matmul"], {"mul": 12, "transpose": 0, "matmul": 72}),
    "constant folding": (["mul", "add"], ["_folded0"]),
    "fusion": (["silu", "add", "silu", "sigmoid", "mul"], 2),
    "splitting": (
        ["add", "sin", "mul", "exp", "sub"],
        (["submod_0", "submod_1", "submod_2"], [5, 5, 4]),
    ),
    "swapping": (
        ["mul", "neg", "mul", "neg"],
        ["placeholder", "placeholder", *["call_function"] * 4, "output"],
    ),
    "transformer": (
        ["neg", "neg", "sub"],
        ["output", *["call_function"] * 3, "placeholder", "placeholder"],
    ),
    "managed": (["add"], 4),
}


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_for_torch_fx_runs_here(name: str) -> None:
    calls, arrays, rest = here(name)
    assert EXPECTED[name] == (calls, rest)
    x, y = ARRAYS
    sigmoid = lambda v: 1 / (1 + np.exp(-v))
    a = x * sigmoid(x)
    expected = {
        "common subexpressions": [
            np.sin(x) * y + np.exp(np.sin(x) * y),
            np.exp(np.sin(x) * y),
        ],
        "decomposition": [np.maximum(x - y, 0) + y],
        "flops": [(x * y) @ y.T],
        "constant folding": [x * np.exp(2 * x) + y],
        "fusion": [(a + y) * sigmoid(a + y), (a + y) * sigmoid(a)],
        "splitting": [np.sin(x + y) - np.exp(np.sin(x + y) * y)],
        "swapping": [(x * y) * 2],
        "transformer": [-x + y],
        "managed": [x + y],
    }
    for mine, theirs in zip(arrays, expected[name], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.torch
@pytest.mark.parametrize("name", PASSES)
def test_it_does_what_it_does_in_torch_fx(name: str) -> None:
    torch = pytest.importorskip("torch")
    names = ("add", "mul", "sub", "sin", "exp", "neg", "sigmoid", "relu", "gt", "matmul")
    functions = SimpleNamespace(**{each: getattr(torch, each) for each in (*names, "transpose")})
    functions.silu = torch.nn.functional.silu
    theirs = ran(HEAD + PASSES[name], functions, torch, [torch.tensor(each) for each in ARRAYS])
    mine = here(name)
    assert sorted(theirs[0]) == sorted(mine[0])  # torch.fx puts a replacement before its user
    assert theirs[2] == mine[2]
    for one, other in zip(theirs[1], mine[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
