"""PYX-11: the file of an exported graph does what the Module does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.export import aot_export_module, to_python
from tests.python_export.comparison import module_of


class Counting(al.nn.Module):
    """It draws, counts its calls in a buffer, and takes containers."""

    def __init__(self) -> None:
        self.linear = al.nn.Linear(3, 2)
        self.drop = al.nn.Dropout(0.5)
        self.calls = al.nn.Buffer(al.zeros(()))

    def forward(self, batch: dict[str, al.Tensor], *, scale: al.Tensor) -> Any:
        self.calls.add_(1)
        found = self.linear(self.drop(batch["x"])) * scale
        return found.sum(), {"scores": found.detach()}


def state_of(module: al.nn.Module) -> dict[str, al.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


@pytest.mark.rules("PYX-11", "PYX-7")
def test_a_joint_export_gives_results_gradients_and_new_values() -> None:
    al.manual_seed(5)
    module = Counting()
    x, scale = al.arange(6.0).reshape(2, 3), al.tensor(0.5)
    exported = aot_export_module(
        module, ({"x": x},), {"scale": scale}, trace_joint=True, output_loss_index=0
    )
    file = module_of(to_python(*exported, state=state_of(module)))
    generator = al.random.default_generator
    file.STATE["generator.seed"] = np.array(generator.seed, np.uint64)
    file.STATE["generator.offset"] = np.array(generator.offset, np.uint64)
    arrays = {"x": x.numpy().copy()}, scale.numpy().copy()
    (loss, scores), gradients = file.Counting(arrays[0], scale=arrays[1])
    its_loss, its_scores = module({"x": x}, scale=scale)
    its_loss.backward()
    np.testing.assert_allclose(loss, its_loss.item(), rtol=1e-6)  # sums in another order
    np.testing.assert_array_equal(scores["scores"], its_scores["scores"].numpy())
    assert set(gradients) == {"linear.weight", "linear.bias"}
    for name, parameter in module.named_parameters():
        gradient = parameter.grad
        assert gradient is not None
        np.testing.assert_allclose(gradients[name], gradient.numpy(), rtol=1e-6)
    assert file.STATE["calls"] == module.calls.item() == 1
    assert file.STATE["generator.offset"] == generator.offset


class Doubled(al.nn.Module):
    def __init__(self) -> None:
        self.weight = al.nn.Parameter(al.full((3,), 2.0))

    def forward(self, x: al.Tensor) -> tuple[al.Tensor]:
        return (self.weight * x,)


@pytest.mark.rules("PYX-11")
def test_without_values_the_caller_gives_the_state(tmp_path: Any) -> None:
    module, path = Doubled(), tmp_path / "doubled.py"
    text = to_python(*aot_export_module(module, (al.ones(3),)), str(path))
    assert text == path.read_text("utf-8")
    file = module_of(text)
    assert file.STATE == {}
    x = np.ones(3, np.float32)
    with pytest.raises(KeyError, match=r"state\['weight'\] is missing"):
        file.Doubled(x)
    state = {name: each.detach().numpy() for name, each in state_of(module).items()}
    assert file.Doubled(x, state=state)[0].tolist() == [2.0, 2.0, 2.0]


@pytest.mark.rules("PYX-9", "PYX-11")
def test_an_export_with_effects_is_refused() -> None:
    class Printing(al.nn.Module):
        def forward(self, x: al.Tensor) -> tuple[al.Tensor]:
            al.effects.print("{}", x)
            return (x * 2,)

    with pytest.raises(al.UnsupportedError, match="which is an effect, expected pure ops"):
        to_python(*aot_export_module(Printing(), (al.ones(2),)))
