"""EXP-4: a pre-dispatch graph, differentiated after the export, has the Module's gradients."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite import nn
from aotlite.export import aot_export_module, with_gradients


class Drawn(nn.Module):
    """Straight-line code with no_grad blocks, detached values, views, writes and statistics."""

    def __init__(self, seed: int) -> None:
        self.weight = nn.Parameter(al.tensor([0.5, -1.0, 2.0]))
        self.bias = nn.Parameter(al.tensor([1.0, 0.25, -0.5]))
        self.mean = nn.Buffer(al.zeros(3))
        self.norm = nn.BatchNorm1d(3)
        self._seed = [seed]

    def forward(self, x: Any) -> Any:
        dice = Random(self._seed[0])
        values: list[Any] = [self.weight, self.bias, x * 1.5]
        for _ in range(dice.randint(3, 8)):
            one, two = dice.choice(values), dice.choice(values)
            with al.set_grad_enabled(dice.random() < 0.7):
                values.append(self._step(dice, one, two))
        return tuple(values[-3:])

    def _step(self, dice: Random, one: Any, two: Any) -> Any:
        match dice.randrange(8):
            case 0:
                return one * two
            case 1:
                return one.detach() + two
            case 2:
                return (one * two).sum(-1, keepdim=True) * one
            case 3:
                made = one + two
                made[..., :1].mul_(two[..., :1].detach())
                return made
            case 4:
                self.mean.add_(one.detach().reshape(-1, 3)[0])
                return one + self.mean
            case 5:
                return self.norm(one + al.arange(6.0).reshape(2, 3))
            case 6:
                made = (one + two).clone()
                made[..., 1:] = (one * two)[..., :2].sin()
                return made.view(-1, 3)
            case _:
                return al.stack([one[..., 0] * two[..., 1]] * 3, -1)


def check(make: Callable[[], nn.Module], x: Any) -> int:
    """Compares results, updated buffers and gradients; returns how many gradients there were."""
    graph, signature = aot_export_module(make(), (x,), pre_dispatch=True)
    assert all(not node.target.writes for node in graph.calls)
    eager: Any = make()
    expected = eager.forward(x)
    twin: Any = make()
    state = dict(twin.named_parameters()) | dict(twin.named_buffers())
    names = [str(node.role) for node in graph.placeholders]
    given = [state[signature.lifted[name]] if name in signature.lifted else x for name in names]
    found = dict(zip(map(str, graph.output_roles), with_gradients(graph)(*given), strict=True))
    results = [found[name] for name in signature.user_outputs if name is not None]
    for mine, its in zip(results, expected, strict=True):
        assert mine.requires_grad == its.requires_grad
        np.testing.assert_array_equal(mine.detach().numpy(), its.detach().numpy())
    for name, target in signature.mutations.items():
        buffer = dict(eager.named_buffers())[target]
        np.testing.assert_array_equal(found[name].detach().numpy(), buffer.detach().numpy())
    for each in (results, expected):
        total = sum((value.sum() for value in each if value.requires_grad), al.zeros(()))
        if total.requires_grad:
            total.backward()
    count = 0
    for mine, its in zip(twin.parameters(), eager.parameters(), strict=True):
        assert (mine.grad is None) == (its.grad is None)
        if its.grad is not None:
            count += 1
            np.testing.assert_allclose(mine.grad.numpy(), its.grad.numpy(), rtol=1e-6, atol=1e-6)
    return count


@pytest.mark.filterwarnings("ignore:export. Drawn has the answers")
@pytest.mark.rules("EXP-4")
def test_pre_dispatch_graphs_have_eagers_gradients() -> None:
    gradients = refused = 0
    for seed in range(40):
        x = al.tensor([[0.5, 1.5, -2.0], [1.0, -1.0, 0.25]])
        try:
            gradients += check(partial(Drawn, seed), x)
        except al.ExportError as error:
            assert "where gradients stop" in str(error)
            refused += 1
    assert gradients > 40
    assert refused < 20


class Body(nn.Module):
    """A Module whose forward is a function of it and its argument."""

    def __init__(self, body: Callable[..., Any]) -> None:
        self.weight = nn.Parameter(al.ones(2))
        self._body = [body]

    def forward(self, x: Any) -> Any:
        return (self._body[0](self, x),)


class Doubled(al.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 3


def hidden_write(self: Any, x: Any) -> Any:
    made = self.weight * x
    made.detach().mul_(2)
    return made


def write_seen_through_detached(self: Any, x: Any) -> Any:
    made = self.weight * x
    before = made.detach()
    made.add_(1)
    return made * before


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "a write through a detached alias": (hidden_write, "writes memory that has a gradient"),
    "a detached alias of written memory": (write_seen_through_detached, "gradients stop"),
    "a custom backward": (lambda self, x: Doubled.apply(self.weight) * x, "custom Function"),
}


@pytest.mark.rules("EXP-4")
@pytest.mark.parametrize("name", REFUSED)
def test_what_such_a_graph_cannot_say_is_refused(name: str) -> None:
    body, text = REFUSED[name]
    with pytest.raises(al.ExportError, match=text):
        aot_export_module(Body(body), (al.ones(2),), pre_dispatch=True)


@pytest.mark.rules("EXP-4")
def test_pre_dispatch_export_has_no_joint_graph() -> None:
    module: Any = Body(lambda self, x: (self.weight * x).sum())
    with pytest.raises(al.ExportError, match="pre_dispatch and trace_joint are True"):
        aot_export_module(
            module, (al.ones(2),), pre_dispatch=True, trace_joint=True, output_loss_index=0
        )


@pytest.mark.rules("EXP-3", "EXP-4")
def test_pre_dispatch_export_runs_in_the_present_grad_mode() -> None:
    module = Body(lambda self, x: self.weight * x)
    with al.no_grad():
        graph, _ = aot_export_module(module, (al.ones(2),), pre_dispatch=True)
    assert [node.grad_mode for node in graph.calls] == [False]
    graph, _ = aot_export_module(module, (al.ones(2),), pre_dispatch=True)
    assert [node.grad_mode for node in graph.calls] == [True]


@pytest.mark.rules("EXP-4")
def test_graph_takes_a_tensor_for_each_input() -> None:
    graph, _ = aot_export_module(Body(lambda self, x: self.weight * x), (al.ones(2),))
    with pytest.raises(al.ArgumentError, match="1 inputs, expected 2"):
        with_gradients(graph)(al.ones(2))


REPLACED = {
    "is_export": "aot_export_module",
    "pre_dispatch": "pre_dispatch=True",
    "no_tangents": "output_loss_index",
    "aot_id": "entry.number",
    "fullgraph": "always one graph",
}


@pytest.mark.rules("EXP-16")
@pytest.mark.parametrize("name", REPLACED)
def test_options_of_pytorch_say_what_replaces_them(name: str) -> None:
    with pytest.raises(al.ArgumentError, match=f"{name!r} is no option, expected .*"):
        al.compile(lambda x: x, **{name: True})
    with pytest.raises(al.ArgumentError, match=REPLACED[name]):
        al.compile(lambda x: x, **{name: True})
