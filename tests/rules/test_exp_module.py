"""EXP-1 to EXP-13: an exported graph, run by its signature, does what the Module does in eager."""

from __future__ import annotations

import copy
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import optree
import pytest

import aotlite as al
from aotlite import nn
from aotlite.export import GraphSignature, aot_export_module
from aotlite.ir.graph import Graph
from aotlite.ir.run.interpreter import run_graph
from aotlite.nn import functional as F
from aotlite.subclasses import QuantizedTensor, TwoTensor, unwrap_subclass_parameters


def snapshot(tensor: Any) -> Any:
    """Shape, dtype and bytes of a tensor."""
    if not isinstance(tensor, al.Tensor):
        return tensor
    array = tensor.detach().numpy()
    return array.shape, str(array.dtype), array.tobytes()


def run(
    graph: Graph, signature: GraphSignature, module: nn.Module, args: tuple[Any, ...]
) -> dict[str, Any]:
    """The graph's outputs by name, for the state of a module and the user's arguments."""
    state = dict(module.named_parameters()) | dict(module.named_buffers())
    given = iter(leaves(args))
    names = [str(node.role) for node in graph.placeholders]
    lifted = signature.lifted
    values = [state[lifted[name]] if name in lifted else next(given) for name in names]
    made = run_graph(graph, *[np.array(each.detach().numpy()) for each in values])
    return dict(zip(map(str, graph.output_roles), made, strict=True))


def is_tensor(value: object) -> bool:
    return isinstance(value, al.Tensor)


def check(module: nn.Module, args: tuple[Any, ...], loss: int | None = None) -> GraphSignature:
    """Exports, runs the graph, applies the signature; compares it with eager. The module and its
    arguments are as before."""
    eager, mine = copy.deepcopy(module), copy.deepcopy(args)
    before = [snapshot(each) for each in (*module.parameters(), *module.buffers(), *leaves(args))]
    joint: Any = {} if loss is None else {"trace_joint": True, "output_loss_index": loss}
    graph, signature = aot_export_module(module, args, **joint)
    found = run(graph, signature, module, args)
    after = [snapshot(each) for each in (*module.parameters(), *module.buffers(), *leaves(args))]
    assert before == after
    with al.enable_grad() if loss is not None else al.no_grad():
        results = flat(eager(*mine))
        if loss is not None:
            results[loss].backward()
    for name, result in zip(signature.user_outputs, results, strict=True):
        assert name is None and not is_tensor(result) or same(found[str(name)], result)
    state = dict(eager.named_parameters()) | dict(eager.named_buffers())
    users = dict(zip(signature.user_inputs, leaves(mine), strict=True))
    for name, target in signature.mutations.items():
        assert same(found[name], users[target] if target in users else state[target]), target
    backward = signature.backward_signature
    assert (backward is None) == (loss is None)
    if backward is not None and loss is not None:
        assert backward.loss_output == signature.user_outputs[loss]
        gradients = {**backward.gradients_to_parameters, **backward.gradients_to_user_inputs}
        for name, target in gradients.items():
            of = users[target] if target in users else state[target]
            assert same(found[name], of.grad), target
        reached = {*backward.gradients_to_parameters.values()}
        assert reached == {n for n, p in eager.named_parameters() if p.grad is not None}
    every = {str(role) for role in graph.output_roles}
    told = {*filter(None, signature.user_outputs), *signature.mutations, *signature.output_tokens}
    told |= {*signature.random_outputs, *(gradients if backward is not None else ())}
    constants = {f"output_{k}" for k, x in enumerate(signature.user_outputs) if x is None}
    assert every == told | constants
    inputs = {*signature.lifted, *signature.user_inputs, *signature.input_tokens}
    assert {str(n.role) for n in graph.placeholders} == inputs | {*signature.random_inputs}
    return signature


def same(array: Any, tensor: Any) -> bool:
    expected = tensor.detach().numpy()
    return array.shape == expected.shape and np.array_equal(array, expected, equal_nan=True)


def leaves(args: tuple[Any, ...]) -> list[Any]:
    return [each for each in flat(args) if is_tensor(each)]


def flat(tree: Any) -> list[Any]:
    found: list[Any] = optree.tree_leaves(tree, none_is_leaf=True)
    return found


class Step(nn.Module):
    """A Module whose forward is a function of it and its arguments."""

    def __init__(self, body: Callable[..., Any], **held: Any) -> None:
        self.first = nn.Linear(3, 2)
        self.calls = nn.Buffer(al.zeros(()))
        self.mean = nn.Buffer(al.zeros(2))
        self._body = [body]
        for name, each in held.items():
            setattr(self, name, each)

    def forward(self, *args: Any) -> Any:
        return self._body[0](self, *args)


def counts(self: Any, x: Any) -> Any:
    self.calls.add_(1)
    self.mean.copy_(self.first(x).detach().mean(0))
    return self.first(x).sum(), self.calls + 1


def assigns(self: Any, x: Any) -> Any:
    self.mean = nn.Buffer(self.mean * 0.9 + self.first(x).detach().mean(0))
    self.calls = nn.Buffer(self.calls + 1)
    return ((self.first(x) * self.calls).sum(),)


def assigns_and_writes(self: Any, x: Any) -> Any:
    self.mean.add_(1)
    self.calls = nn.Buffer(self.calls + 2)
    self.calls = nn.Buffer(self.calls * 3)
    return (self.first(x).sum() + self.mean.sum(),)


def aliases(self: Any, x: Any) -> Any:
    hidden = self.first(x)
    detached = hidden.detach()
    return hidden.sum(), detached, detached.t(), x.detach()[0], x.detach(), None, 3, 2.5, True


def nested(self: Any, batch: Any, scale: float) -> Any:
    hidden = self.first(batch["x"][0]) * scale
    return [hidden.sin().sum(), {"rows": hidden.detach()}]


def unreached(self: Any, x: Any) -> Any:
    return (F.linear(x, self.first.weight).sum(),)


def parameter_into_buffer(self: Any, x: Any) -> Any:
    self.mean.add_(self.first.bias.exp())
    return ((self.first(x) * self.mean * self.mean).sum(),)


def parameter_into_inputs(self: Any, x: Any) -> Any:
    self.mean[0] = self.first.weight.sum()
    x[1].mul_(self.first.weight[0])
    return (x * x).sum() + self.mean.prod(), x.detach()


MODULES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "written buffers": (counts, (al.ones(4, 3),)),
    "assigned buffers": (assigns, (al.arange(12.0).reshape(4, 3),)),
    "assigned and written": (assigns_and_writes, (al.ones(4, 3),)),
    "results that alias": (aliases, (al.arange(12.0).reshape(4, 3),)),
    "containers": (nested, ({"x": [al.arange(6.0).reshape(2, 3)]}, 1.5)),
    "a parameter without gradient": (unreached, (al.ones(2, 3),)),
    "a parameter written into a buffer": (parameter_into_buffer, (al.ones(4, 3),)),
    "a parameter written into views": (parameter_into_inputs, (al.arange(6.0).reshape(2, 3),)),
}


@pytest.mark.rules("EXP-1", "EXP-2", "EXP-3", "EXP-7", "EXP-8", "EXP-9", "EXP-10", "EXP-11")
@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("name", MODULES)
def test_exported_module_is_eagers(name: str, joint: bool) -> None:
    body, args = MODULES[name]
    check(Step(body), args, 0 if joint else None)


@pytest.mark.rules("EXP-1", "EXP-10")
@pytest.mark.parametrize("seed", range(12))
def test_drawn_networks_are_eagers(seed: int) -> None:
    dice, width = Random(seed), 4
    layers: list[nn.Module] = []
    for _ in range(dice.randint(1, 4)):
        wide = dice.randint(2, 5)
        kinds: list[nn.Module] = [nn.Linear(width, wide)]
        if dice.random() < 0.5:
            kinds.append(nn.BatchNorm1d(wide))
        kinds.append(dice.choice([nn.ReLU, nn.Tanh, nn.Sigmoid])())
        layers, width = [*layers, *kinds], wide

    class Loss(nn.Module):
        def __init__(self) -> None:
            self.net = nn.Sequential(*layers)

        def forward(self, x: Any, target: Any) -> Any:
            made = self.net(x)
            return made.detach(), ((made - target) ** 2).mean()

    x = al.tensor(np.random.default_rng(seed).normal(size=(5, 4)).astype(np.float32))
    x.requires_grad_(dice.random() < 0.5)
    check(Loss(), (x, al.zeros(5, width)), dice.choice([None, 1, -1]))


@pytest.mark.rules("EXP-12", "EXP-13")
def test_assigned_buffers_are_in_the_order_of_the_buffers() -> None:
    module = Step(assigns)
    before = module.calls
    _, signature = aot_export_module(module, (al.ones(2, 3),))
    assert list(signature.buffers_to_mutate.values()) == ["calls", "mean"]
    assert module.calls is before and before.item() == 0


@pytest.mark.rules("EXP-7", "EXP-17")
def test_tied_parameter_is_one_input_with_one_gradient() -> None:
    module = Step(lambda self, x: ((self.first(x) + F.linear(x, self.tied)).sum(),))
    module.tied = module.first.weight
    signature = check(module, (al.ones(2, 3),), 0)
    assert signature.tied == {"first.weight": "tied"}
    assert sorted(signature.parameters) == ["first.bias", "first.weight", "tied"]
    assert signature.backward_signature is not None
    assert sorted(signature.backward_signature.gradients_to_parameters.values()) == [
        "first.bias",
        "tied",
    ]


@pytest.mark.rules("EXP-2")
def test_results_that_alias_are_no_copies() -> None:
    graph, _ = aot_export_module(Step(aliases), (al.ones(4, 3),))
    assert "clone" not in [node.target.name for node in graph.calls]
    assert graph.outputs[4] is graph.placeholders[-1]


@pytest.mark.rules("EXP-2", "RNG-7")
def test_module_that_draws_has_the_generators_state() -> None:
    module = Step(lambda self, x: (self.first(x) * al.rand(2),))
    graph, signature = aot_export_module(module, (al.ones(4, 3),))
    assert signature.random_inputs == ("seed", "offset")
    assert signature.random_outputs == ("next_offset",)
    assert [str(node.role) for node in graph.placeholders][-2:] == ["seed", "offset"]
    state, x = [each.detach().numpy() for each in module.parameters()], np.ones((4, 3), np.float32)
    al.manual_seed(7)
    expected = module(al.ones(4, 3))[0]
    seed, end = al.get_rng_state()
    buffers = [each.numpy() for each in module.buffers()]
    made = run_graph(graph, *state, *buffers, x, seed, 0)
    assert np.array_equal(made[0], expected.detach().numpy()) and int(made[1]) == end


def sized(self: Any, x: Any, scale: Any = 1.0) -> Any:
    self.calls.add_(x.shape[0])
    hidden = self.first(x) * scale
    return hidden.sum() / x.shape[0], x.shape[0] * 3, hidden.detach()[1:]


@pytest.mark.rules("EXP-8", "DYN-7")
@pytest.mark.parametrize(
    "shapes", [({0: al.Dim("batch")},), {"args": ({0: al.Dim("batch")},)}, [{0: al.Dim("batch")}]]
)
def test_sizes_are_symbols_of_an_exported_graph(shapes: Any) -> None:
    """One graph for all sizes, results that are made of sizes included."""
    module = Step(sized)
    if isinstance(shapes, dict):
        module.__class__ = type("Named", (Step,), {"forward": lambda self, x: sized(self, x)})
        shapes = {"x": shapes["args"][0]}
    joint: Any = {"trace_joint": True, "output_loss_index": 0, "dynamic_shapes": shapes}
    graph, signature = aot_export_module(module, (al.ones(4, 3),), **joint)
    assert graph.placeholders[-1].meta.shape[1:] == (3,)  # type: ignore[union-attr]
    for size in (4, 1, 7):
        x = al.arange(3.0 * size).reshape(size, 3)
        found, eager = run(graph, signature, module, (x,)), copy.deepcopy(module)
        loss, number, rows = eager(x)
        loss.backward()
        assert found["output_1"] == number == size * 3
        assert same(found["output_0"], loss) and same(found["output_2"], rows)
        assert same(found["updated_primals_2"], eager.calls)
        grad: Any = eager.first.weight.grad
        assert np.allclose(found["grad_primals_0"], grad.numpy())


def test_sizes_of_unknown_arguments_are_refused() -> None:
    with pytest.raises(al.ArgumentError, match="dynamic_shapes names 'y', expected one of"):
        aot_export_module(Step(sized), (al.ones(4, 3),), dynamic_shapes={"y": {0: al.Dim("b")}})


@pytest.mark.rules("EXP-8")
def test_a_size_that_the_module_fixes_is_said_by_names() -> None:
    text = r"size 1 of args\[0\] is named 'n' in dynamic_shapes, and the function fixes it: s0 == 3"
    with pytest.raises(al.ExportError, match=text) as caught:
        aot_export_module(Step(unreached), (al.ones(2, 3),), dynamic_shapes=[{1: al.Dim("n")}])
    notes = "'first.weight' of the Module has this size, too: leave it out of dynamic_shapes."
    assert notes in caught.value.__notes__


@pytest.mark.rules("EXP-3", "EXP-11")
def test_the_index_of_the_loss_may_count_from_the_end() -> None:
    def last(self: Any, x: Any) -> Any:
        return x.detach() * 2, self.first(x).sum()

    check(Step(last), (al.ones(2, 3),), -1)


# ------------------------------------------------------------------------------------- refusals
def loss_and(more: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, x: (self.first(x).sum(), more(self, x))


KEPT = al.ones(3)
JOINT: dict[str, tuple[Callable[..., Any], int | None, str]] = {
    "no index": (counts, None, "output_loss_index is None, expected the index of the loss"),
    "an index beyond": (counts, 2, "output_loss_index is 2, expected the index of a tensor am"),
    "no gradient": (counts, 1, "result 1, the loss, needs no gradient, expected one that depends"),
    "more than one number": (
        lambda self, x: (self.first(x)[0],),
        0,
        r"result 0, the loss, has shape \(2,\), expected one number",
    ),
    "another result": (
        loss_and(lambda self, x: self.first(x)),
        0,
        r"result 1, of shape \(4, 2\), requires grad besides the loss, expected one that is det",
    ),
    "a text": (loss_and(lambda self, x: "text"), 0, "result 1 is 'text', expected a tensor, a num"),
    "a tensor": (lambda self, x: self.first(x).sum(), 0, "returns a Tensor, expected a tuple or a"),
    "a dict": (lambda self, x: {"loss": self.first(x).sum()}, 0, "returns a dict, expected a tup"),
    "a written parameter": (
        lambda self, x: (written(self.first.weight, self.first(x).sum()),),
        0,
        "writes parameter 'first.weight'.*which requires grad, expected writes of buffers",
    ),
}


def written(tensor: Any, result: Any) -> Any:
    with al.no_grad():
        tensor.mul_(2)
    return result


@pytest.mark.rules("EXP-4", "EXP-6")
@pytest.mark.parametrize("name", JOINT)
def test_joint_export_is_refused(name: str) -> None:
    body, index, text = JOINT[name]
    with pytest.raises(al.ExportError, match=text):
        aot_export_module(Step(body), (al.ones(4, 3),), trace_joint=True, output_loss_index=index)


def transposes(self: Any, x: Any) -> Any:
    x.t_()
    return (x + 1,)


BOTH: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]], str]] = {
    "metadata": (
        transposes,
        lambda: (al.ones(4, 3),),
        r"changes the metadata of argument args\[0\] from f32\[4, 3\] to f32\[3, 4\]\[1, 3\], ",
    ),
    "overlap": (
        lambda self, x, y: (x.add_(1), y + 1),
        lambda: (lambda base: (base[1:], base[:-1]))(al.ones(4, 3)),
        r"argument args\[0\] and argument args\[1\] share the memory .*, and one of them is w",
    ),
    "a wrapper": (
        lambda self, x: (x * 2,),
        lambda: (TwoTensor(al.ones(2), al.ones(2)),),
        "an input is a TwoTensor, expected plain tensors",
    ),
    "a tensor of a closure": (
        lambda self, x: (x * KEPT,),
        lambda: (al.ones(4, 3),),
        "reads .*KEPT.*, expected a Module that holds it",
    ),
}


@pytest.mark.rules("EXP-5", "EXP-1")
@pytest.mark.parametrize("name", BOTH)
def test_what_the_convention_cannot_say_is_refused(name: str) -> None:
    body, arguments, text = BOTH[name]
    with pytest.raises(al.ExportError, match=text):
        aot_export_module(Step(body), arguments())


@pytest.mark.rules("EXP-13")
def test_assigned_attribute_that_is_no_buffer_is_refused() -> None:
    def assigns_number(self: Any, x: Any) -> Any:
        self.last = x
        return (x + 1,)

    with pytest.raises(al.UnsupportedError, match="writing attribute 'last' of a Step"):
        aot_export_module(Step(assigns_number), (al.ones(2),))


@pytest.mark.rules("EXP-13")
def test_assigned_parameter_is_refused() -> None:
    def assigns_weight(self: Any, x: Any) -> Any:
        self.scale = nn.Parameter(self.scale * 2)
        return (x + 1,)

    module = Step(assigns_weight, scale=nn.Parameter(al.ones(1)))
    with pytest.raises(al.ExportError, match="forward assigns parameter 'scale', expected one"):
        aot_export_module(module, (al.ones(2),))


@pytest.mark.rules("EXP-5", "SUB-22")
def test_module_with_wrappers_is_exported_by_their_parts() -> None:
    def body(self: Any, x: Any) -> Any:
        return (F.linear(x, self.by, self.first.bias).sum(),)

    held = nn.Parameter(QuantizedTensor.from_dense(al.ones(2, 3)), requires_grad=False)
    module = Step(body, by=held)
    with pytest.raises(al.ExportError, match="an input is a QuantizedTensor") as caught:
        aot_export_module(module, (al.ones(4, 3),))
    assert "unwrap_subclass_parameters(module)" in caught.value.__notes__[0]
    signature = check(unwrap_subclass_parameters(module), (al.ones(4, 3),), 0)
    assert {"by__values", "by__scale"} <= {*signature.inputs_to_buffers.values()}
