"""aot_module and aot_module_simplified behave like the modules that they compile."""

from typing import Any

import pytest

import aotlite as al
from aotlite import nn
from aotlite.compilers import nop


class Net(nn.Module):
    """Parameters, a buffer that is written, a tied parameter, a mode."""

    def __init__(self):
        self.first = nn.Linear(3, 3)
        self.tied = self.first.weight
        self.seen = nn.Buffer(al.zeros(()))

    def forward(self, x, *, scale=1.0):
        if self.training:
            self.seen.add_(1.0)
        return (self.first(x) @ self.tied).tanh() * scale


def twins():
    mine, its = Net(), Net()
    its.load_state_dict(mine.state_dict())
    return mine, its


def test_aot_module_behaves_like_the_module():
    mine, its = twins()
    aot = al.aot_module(mine, nop)
    x = al.arange(6.0).view(2, 3) / 6.0
    for mode in (True, False, True):
        aot.train(mode)
        its.train(mode)
        for scale in (1.0, 2.0):
            out, eager = aot(x, scale=scale), its(x, scale=scale)
            assert eager.tolist() == out.tolist()
            out.sum().backward()
            eager.sum().backward()
    for (name, p), (_, q) in zip(mine.named_parameters(), its.named_parameters(), strict=True):
        assert q.grad.tolist() == p.grad.tolist(), name
    assert 4.0 == mine.seen.item() == its.seen.item()
    assert mine is aot.orig_module
    assert {"orig_module." + name for name in mine.state_dict()} == set(aot.state_dict())


def test_aot_module_reads_parameters_anew():
    """One that was replaced counts, as in eager; PyTorch keeps those it began with."""
    net = Net().eval()
    aot = al.aot_module(net, nop)
    x = al.ones(1, 3)
    aot(x)
    net.first.bias = nn.Parameter(al.ones(3))
    assert net(x).tolist() == aot(x).tolist()


def test_parameters_and_buffers_are_the_static_inputs_of_a_module():
    seen = {}

    def compiler(graph, inputs):
        seen[graph.name] = [each.static for each in inputs]
        return graph

    aot = al.aot_module(Net().eval(), compiler)
    aot(al.ones(1, 3))
    assert [True, True, True, False] == seen["Net_forward"]


def test_a_module_is_compiled_at_once_for_arguments_like_these():
    compiled = []

    def compiler(graph, inputs):
        compiled.append(graph.name)
        return graph

    net = Net()
    x = al.ones(2, 3)
    aot = al.aot_module_simplified(net, [x], compiler)
    assert ["Net_forward"] == compiled
    assert 0.0 == net.seen.item()
    aot(x).sum().backward()
    assert (["Net_forward", "Net_backward"], 1.0) == (compiled, net.seen.item())
    aot(al.ones(5, 3))
    assert 3 == len(compiled)
    names = [name for name, _ in net.named_parameters()]
    assert names == [name for name, _ in aot.named_parameters()]
    assert ["seen"] == [name for name, _ in aot.named_buffers()]
    aot.zero_grad()
    assert net.first.weight.grad is None


ANY: Any = al
"""For calls that no type checker lets through."""


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: ANY.aot_module(3, nop), "aot_module: argument 'mod' is 3, expected a Module"),
        (
            lambda: ANY.aot_module(Net(), nop, num_params_buffers=1),
            "aot_module: num_params_buffers or static_argnums is given, expected neither",
        ),
        (
            lambda: ANY.aot_module_simplified(Net(), al.ones(2, 3), nop),
            "aot_module_simplified: args is tensor.*expected a list of the module's arguments",
        ),
        (
            lambda: ANY.aot_module_simplified(len, [], nop),
            "aot_module_simplified: argument 'mod' is <built-in function len>, expected a Module",
        ),
    ],
)
def test_wrong_modules_are_refused(call, text):
    with pytest.raises(al.ArgumentError, match=f"(?s)^{text}"):
        call()


class Assigning(nn.Module):
    """Its forward puts a new buffer in the place of one."""

    def __init__(self):
        self.seen = nn.Buffer(al.zeros(()))

    def forward(self, x):
        self.seen = nn.Buffer(self.seen + 1)
        return x + self.seen


@pytest.mark.parametrize("face", [al.aot_module, al.compile])
def test_an_assigned_buffer_is_refused_and_not_dropped(face):
    module = Assigning()
    compiled = face(module, nop) if face is al.aot_module else face(module)
    with pytest.raises(al.UnsupportedError, match="writing attribute 'seen' of a Assigning") as it:
        compiled(al.ones(2))
    assert "self.seen = nn.Buffer" in "".join(it.value.__notes__)
    assert module.seen.item() == 0


def test_in_anomaly_mode_an_assigned_buffer_stays():
    module = Assigning()
    with al.autograd.detect_anomaly():
        assert al.aot_module(module, nop)(al.ones(2)).tolist() == [2.0, 2.0]
    assert module.seen.item() == 1
