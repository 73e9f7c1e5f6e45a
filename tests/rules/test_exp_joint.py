"""EXP-14, EXP-15: joint graphs with the function's signature, and with descriptors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite import nn
from aotlite.descriptors import parameters_with_gradients, results_with_tangents
from aotlite.export import (
    aot_compile_joint_with_descriptors,
    aot_export_joint_simple,
    aot_export_joint_with_descriptors,
)
from aotlite.ir.graph.role import Gradient, Output, Primal, Tangent
from aotlite.ir.op import OPS
from aotlite.ir.run.interpreter import run_graph

SIMPLE: dict[str, Callable[..., Any]] = {
    "product": lambda x, y, n: (x * y * n,),
    "two results": lambda x, y, n: [x.sin() * n, (x @ y.t()).relu()],
    "one without gradient": lambda x, y, n: ((x * y).sum(), (x > 0).float() + n),
    "a number": lambda x, y, n: (x.pow(n),),
}


@pytest.mark.rules("EXP-14")
@pytest.mark.parametrize("grads", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("name", SIMPLE)
def test_simple_joint_graph_is_the_function_and_its_backward(name: str, grads: Any) -> None:
    function = SIMPLE[name]
    x, y = (al.arange(6.0).reshape(2, 3) / k for k in (3, 7))
    x, y = (each.clone().requires_grad_(grad) for each, grad in zip((x, y), grads, strict=True))
    graph = aot_export_joint_simple(function, (x, y, 2), trace_joint=True)
    results = function(x, y, 2)
    wanted = [Gradient(Primal(0)), Gradient(Primal(1))]
    plain = [Output(k) for k in range(len(results))]
    if not any(each.requires_grad for each in results):
        assert list(graph.output_roles) == plain
        return
    assert list(graph.output_roles) == [*plain, *wanted]
    of: list[Any] = [n.role.of for n in graph.placeholders if isinstance(n.role, Tangent)]
    tangents = [each.index for each in of]
    assert tangents == [k for k, each in enumerate(results) if each.requires_grad]
    seeds = [al.ones_like(results[k].detach()) for k in tangents]
    found = run_graph(graph, *[each.detach().numpy() for each in (x, y, *seeds)])
    expected: Any = (
        al.autograd.grad([results[k] for k in tangents], [x, y], seeds, allow_unused=True)
        if all(grads)
        else None
    )
    for mine, its in zip(found, results, strict=False):
        assert np.array_equal(mine, its.detach().numpy())
    for k, given in enumerate((x, y)):
        slot = found[len(results) + k]
        assert (slot is None) == (not given.requires_grad) or name == "a number"
        if expected is not None and slot is not None:
            assert np.array_equal(slot, expected[k].numpy())


@pytest.mark.rules("EXP-14")
def test_simple_graph_without_gradients_has_the_functions_signature() -> None:
    x, w = al.ones(2), al.ones(2, requires_grad=True)
    graphs = (
        aot_export_joint_simple(lambda x, w: (x * w,), (x, w), trace_joint=False),
        aot_export_joint_simple(lambda x, w: (x * w,), (x, w.detach()), trace_joint=True),
    )
    for graph in graphs:
        assert [str(node.role) for node in graph.placeholders] == ["primals_0", "primals_1"]
        assert [str(role) for role in graph.output_roles] == ["output_0"]


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "a write": (lambda x: (x.mul_(2) + 1,), "the function writes argument x, expected one that d"),
    "an argument": (lambda x: (x,), "result 0 is an argument itself, expected a tensor of its own"),
    "a view of an argument": (lambda x: (x * 2, x.t()), "result 1 is a view of an argument, exp"),
    "views": (lambda x: ((y := x * 2)[0], y[1]), "result 0 is a view of an intermediate value"),
    "a tensor": (lambda x: x * 2, "the results are no flat tuple or list, expected one"),
    "nested": (lambda x: (x * 2, (x + 1,)), "the results are no flat tuple or list, expected one"),
    "random numbers": (lambda x: (x * al.rand(2),), "the function draws random numbers, expected"),
    "a number": (lambda x: (x * 2, 3), "result 1 is no tensor, expected a tensor of its own"),
}


@pytest.mark.rules("EXP-15", "RNG-7")
@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("name", REFUSED)
def test_what_a_simple_signature_cannot_say_is_refused(name: str, joint: bool) -> None:
    function, text = REFUSED[name]
    x = al.ones(2, 2, requires_grad=joint) * 1
    with pytest.raises(al.ExportError, match=text):
        aot_export_joint_simple(function, (x,), trace_joint=joint)


@pytest.mark.rules("EXP-15")
def test_containers_among_the_arguments_are_refused() -> None:
    with pytest.raises(al.ExportError, match="an argument is a container, expected a flat list"):
        aot_export_joint_simple(lambda x: (x[0] * 2,), ([al.ones(2)],), trace_joint=False)


# -------------------------------------------------------------------------- with descriptors
class Net(nn.Module):
    def __init__(self) -> None:
        self.layers = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        self.calls = nn.Buffer(al.zeros(()))

    def forward(self, batch: Any) -> Any:
        self.calls.add_(1)
        return {"logits": self.layers(batch["x"])}


def gradients_of(results: Any, of: Any) -> list[Any]:
    found: Any = al.autograd.grad(results["logits"].sum(), of)
    return [each.tolist() for each in found]


@pytest.mark.rules("EXP-14", "TRC-8")
@pytest.mark.parametrize("partition", ["default", "min_cut"])
def test_joint_graph_is_compiled_into_a_function_of_state_and_arguments(partition: str) -> None:
    net, batch = Net(), {"x": al.arange(6.0).reshape(2, 3) / 5}
    joint = aot_export_joint_with_descriptors(net, (batch,))
    assert [str(each) for each in joint.described.inputs[:6]] == [
        "parameter layers.0.weight",
        "parameter layers.0.bias",
        "parameter layers.2.weight",
        "parameter layers.2.bias",
        "buffer calls",
        "argument batch['x']",
    ]
    pairs = parameters_with_gradients(joint.names, joint.graph)
    assert list(pairs) == [name for name, _ in net.named_parameters()]
    assert all(gradient is not None for _, gradient in pairs.values())
    assert "result['logits']" in [str(x) for x in results_with_tangents(joint.names, joint.graph)]
    run = aot_compile_joint_with_descriptors(joint, backend="reference", partition=partition)
    state = [*net.parameters(), *net.buffers()]
    mine = run(*state, batch)
    assert net.calls.item() == 1
    its = net(batch)
    assert mine["logits"].tolist() == its["logits"].tolist()
    assert gradients_of(mine, state[:4]) == gradients_of(its, state[:4])


@pytest.mark.rules("EXP-14")
def test_rewritten_joint_graph_is_what_runs() -> None:
    """A tool doubles each gradient of a parameter: the forward is as it was."""
    net, batch = Net(), {"x": al.ones(2, 3)}
    joint = aot_export_joint_with_descriptors(net, (batch,))
    edit = joint.graph.edit()
    outputs = list(joint.graph.outputs)
    for place, role in enumerate(joint.graph.output_roles):
        if isinstance(role, Gradient):
            outputs[place] = edit.call(OPS["mul"], (outputs[place], 2.0))
    edit.set_outputs(outputs, joint.graph.output_roles)
    run = aot_compile_joint_with_descriptors(joint, edit.graph(), backend="reference")
    state = [*net.parameters(), *net.buffers()]
    found = gradients_of(run(*state, batch), state[:4])
    once = gradients_of(net(batch), state[:4])
    assert [np.array(each).tolist() for each in found] == [(2 * np.array(x)).tolist() for x in once]


@pytest.mark.rules("EXP-14")
def test_other_arguments_than_the_exported_ones_are_refused() -> None:
    net = Net()
    joint = aot_export_joint_with_descriptors(net, ({"x": al.ones(2, 3)},))
    run = aot_compile_joint_with_descriptors(joint, backend="reference")
    state = [*net.parameters(), *net.buffers()]
    with pytest.raises(al.ExportError, match="the arguments are others than those of the exported"):
        run(*state, {"x": al.ones(5, 3)})
    with pytest.raises(al.ArgumentError, match="2 arguments are given, expected the 5 parameters"):
        run(*state[:2])
    with pytest.raises(al.ExportError, match="no result is differentiable, expected a Module"):
        aot_export_joint_with_descriptors(nn.ReLU(), (al.ones(2),))
