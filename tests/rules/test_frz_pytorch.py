"""FRZ-6: a call after a write of a frozen parameter; PyTorch 2.13 gives the old result."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import aotlite as al
from aotlite import nn


@pytest.mark.rules("FRZ-6")
def test_a_write_of_a_frozen_parameter_is_seen():
    class Doubled(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.Parameter(al.ones(2, 2))

        def forward(self, x: al.Tensor) -> al.Tensor:
            return x @ (self.weight * 2)

    module = Doubled()
    frozen = al.freeze(module)
    with al.no_grad():
        assert [[4.0, 4.0]] == frozen(al.ones(1, 2)).tolist()
        module.weight.mul_(10.0)
        assert [[40.0, 40.0]] == module(al.ones(1, 2)).tolist()
        assert [[40.0, 40.0]] == frozen(al.ones(1, 2)).tolist()


@pytest.mark.slow("it imports PyTorch's tracer")
@pytest.mark.rules("FRZ-6")
def test_pytorch_gives_the_old_result_after_a_write_of_a_frozen_parameter():
    """`torch._inductor.freezing.freeze` in a backend of `torch.compile`: no C++ compiler runs."""
    torch = pytest.importorskip("torch")
    config = pytest.importorskip("torch._inductor.config")
    freezing = pytest.importorskip("torch._inductor.freezing")
    aot = pytest.importorskip("torch._functorch.aot_autograd")

    class Doubled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2, 2))

        def forward(self, x: Any) -> Any:
            return x @ (self.weight * 2)

    kept_arguments = []

    def backend(dynamo_graph: Any, inputs: Any) -> Any:
        def inference(graph: Any, examples: Any) -> Any:
            frozen, kept = freezing.freeze(dynamo_graph, graph, examples)
            kept_arguments.append(kept)
            return aot.make_boxed_func(lambda *args: frozen(*[args[i] for i in kept]))

        return aot.aot_module_simplified(
            dynamo_graph, inputs, fw_compiler=aot.make_boxed_func, inference_compiler=inference
        )

    module = Doubled().eval()
    x = torch.ones(1, 2)
    with config.patch(freezing=True), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(module, backend=backend)
        assert [[4.0, 4.0]] == compiled(x).tolist()
        module.weight.mul_(10.0)
        assert [[40.0, 40.0]] == module(x).tolist()
        assert [[4.0, 4.0]] == compiled(x).tolist()
    assert [1] == [len(kept) for kept in kept_arguments]
