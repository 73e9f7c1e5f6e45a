"""`symbolic_trace` gives the graph of what a function does (FXG-10 to FXG-13)."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aotlite as al
import aotlite.nn as nn
import aotlite.nn.functional as F
from aotlite import fx, ops
from aotlite.fx import TraceError
from aotlite.ir.errors import ArgumentError


class Net(nn.Module):
    """Parameters, buffers that are written, a layer in a layer, nested results."""

    def __init__(self) -> None:
        self.body = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
        self.head = nn.Linear(4, 2)

    def forward(self, x: Any, scale: float = 2.0) -> Any:
        return {"y": self.head(F.silu(self.body(x)) * scale), "x": (x, None)}


@pytest.mark.rules("FXG-11")
def test_a_module_is_traced_with_its_parameters_and_its_writes() -> None:
    net: Any = Net()
    twin, x = copy.deepcopy(net), al.randn(5, 3)
    module: Any = fx.symbolic_trace(net, "f32[5, 3]")
    expected, found = twin(x), module(x)
    assert expected["y"].tolist() == found["y"].tolist()
    assert found["x"] == (x, None)
    assert module.body is not net.body
    assert getattr(module.body, "1").running_mean is getattr(net.body, "1").running_mean
    assert {k: v.tolist() for k, v in twin.state_dict().items()} == {
        k: v.tolist() for k, v in module.state_dict().items()
    }
    found["y"].sum().backward()
    expected["y"].sum().backward()
    assert net.head.weight.grad.tolist() == twin.head.weight.grad.tolist()
    stacks = {str(node.meta.get("nn_module_stack")) for node in module.graph.nodes}
    assert any("body.1" in each for each in stacks)
    assert any("test_tracer.py" not in (node.stack_trace or "") for node in module.graph.nodes)


def test_writes_views_and_grad_modes_are_those_of_the_function() -> None:
    def function(x: Any) -> Any:
        row = x[0]
        row.mul_(2.0)
        with al.no_grad():
            fixed = x * 3
        return x.t(), row, fixed, fixed * x

    module = fx.symbolic_trace(function, "f32[2, 3]")
    for grad in (False, True):
        one, two = tensors = [al.ones(2, 3, requires_grad=grad) for _ in range(2)]
        mine, theirs = module(one * 1), function(two * 1)
        assert [r.tolist() for r in theirs] == [r.tolist() for r in mine]
        assert [r.requires_grad for r in theirs] == [r.requires_grad for r in mine]
        assert [r.is_contiguous() for r in theirs] == [r.is_contiguous() for r in mine]
        if grad:
            for results in (mine, theirs):
                results[3].sum().backward()
            gradients: Any = [each.grad for each in tensors]
            assert gradients[1].tolist() == gradients[0].tolist()


def test_the_grad_mode_of_the_caller_is_none_of_the_graph() -> None:
    x = al.ones(2, requires_grad=True)
    with al.no_grad():
        module = fx.symbolic_trace(lambda x: x.exp() * 2, "f32[2]")
        exp = module.graph.find_nodes(op="call_function", target=ops.exp)[0]
        with module.graph.inserting_after(exp):
            half = fx.Proxy(exp) * 0.5
        exp.replace_all_uses_with(half.node, delete_user_cb=lambda user: user is not half.node)
        module.recompile()
    assert "no_grad" not in module.code
    module(x).sum().backward()
    assert x.grad is not None
    with module.graph.inserting_after(exp):
        proxy = fx.Proxy(exp)
        with al.no_grad():
            fixed = proxy * 0.5
        free = proxy * 0.5
    assert [each.node._node.grad_mode for each in (fixed, free)] == [False, True]


def test_modules_around_a_node_are_those_of_its_op() -> None:
    class Outer(Net):
        def forward(self, x: Any, scale: float = 1.0) -> Any:
            return self.body(x).exp()

    graph = fx.symbolic_trace(Outer(), "f32[5, 3]").graph
    stacks = [node.meta.get("nn_module_stack") for node in graph.find_nodes(op="call_function")]
    assert stacks[-1] is None
    assert stacks[0] == {"body.0": ("body.0", None)}


@pytest.mark.rules("FXG-13")
def test_types_are_texts_examples_annotations_and_nested() -> None:
    def annotated(x: f32[2, 3], flag: bool = True) -> Any:  # type: ignore[name-defined]  # noqa: F821
        return x if flag else -x

    assert fx.symbolic_trace(annotated)(al.ones(2, 3)).shape == (2, 3)
    assert fx.symbolic_trace(annotated, flag=False).code.count("ops.neg") == 1
    for example in (al.ones(2, 3), np.ones((2, 3), np.float32), al.ones(2, 3).meta, "f32[2, 3]"):
        assert "f32[2, 3]" in fx.symbolic_trace(lambda x: x + 1, example).code

    def nested(batch: Any, *rest: Any, **named: Any) -> Any:
        return batch["a"] + batch["l"][0] + rest[0] * named["k"], batch["l"][1]

    given_ = {"a": "f32[2]", "l": ["f32[2]", 3]}
    module = fx.symbolic_trace(nested, given_, "f32[2]", k="f32[2]")
    one = al.ones(2)
    result = module({"a": one, "l": [one, 3]}, one, k=one)
    assert (result[0].tolist(), result[1]) == ([3.0, 3.0], 3)
    with pytest.raises(ArgumentError, match=r"batch\['l'\]\[1\] is 4, expected 3"):
        module({"a": one, "l": [one, 4]}, one, k=one)
    with pytest.raises(ArgumentError, match=r"batch\['l'\] is a list of 1"):
        module({"a": one, "l": [one]}, one, k=one)
    with pytest.raises(ArgumentError, match="argument 'k' is missing"):
        module({"a": one, "l": [one, 3]}, one)


@pytest.mark.rules("FXG-13")
def test_concrete_arguments_are_fixed() -> None:
    def function(x: Any, flag: Any, scale: Any = 2.0) -> Any:
        return x * scale if flag else x

    module = fx.symbolic_trace(function, "f32[2]", concrete_args={"flag": True})
    assert module(al.ones(2)).tolist() == [2.0, 2.0]
    assert module(al.ones(2), True, scale=2.0).tolist() == [2.0, 2.0]
    with pytest.raises(ArgumentError, match="flag is False, expected True"):
        module(al.ones(2), False)
    assert (
        "mul"
        not in fx.symbolic_trace(lambda x: function(x, False), "f32[2]", concrete_args={}).code
    )
    with pytest.raises(ArgumentError, match="'z' is surplus"):
        fx.symbolic_trace(function, "f32[2]", concrete_args={"flag": True, "z": 1})
    with pytest.raises(ArgumentError, match="argument 'x' has no type"):
        fx.symbolic_trace(function)


class Cube(al.autograd.Function):
    """Its backward is its own."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x**3

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 100


class Assigning(nn.Module):
    """Counts its calls."""

    def __init__(self) -> None:
        self.count, self.scale = 0, al.ones(2)

    def forward(self, x: Any) -> Any:
        self.count += 1
        return x * self.scale


def _written_later(x: Any) -> Any:
    """Its index is another one at the end."""
    index = al.tensor([1])
    x.index_fill_(0, index, 3.0)
    index.fill_(0)
    return x


REFUSED: dict[str, tuple[Any, str]] = {
    "bool": (lambda x: x if x.sum() > 0 else -x, "bool: gt is a proxy"),
    "item": (lambda x: x * x.sum().item(), "item: sum is a proxy"),
    "tolist": (lambda x: x.tolist(), "tolist: x is a proxy"),
    "numpy": (lambda x: np.asarray(x), "numpy: x is a proxy"),
    "keys": (lambda x: dict(**x), "keys: x is a proxy"),
    "draw": (lambda x: x * al.rand(2), "draws random numbers"),
    "dropout": (lambda x: F.dropout(x, 0.5), "draws random numbers"),
    "write later": (_written_later, "a constant of i64\\[1\\] is written"),
    "requires grad": (lambda x: (x * 2).requires_grad_(), "requires_grad_: mul is a proxy"),
    "detach_": (lambda x: (x * 2).detach_(), "detach_: mul is a proxy"),
    "backward": (lambda x: x.sum().backward(), "backward: sum is a proxy"),
    "hook": (lambda x: (x * 2).register_hook(print), "register_hook: mul is a proxy"),
    "compiled": (lambda x: al.compile(al.exp)(x), "a compiled function gets the proxy of x"),
    "custom function": (lambda x: Cube.apply(x), r"Cube.apply gets a proxy"),
    "attribute": (Assigning(), "attribute 'count' of Assigning is set"),
    "write": (lambda x: al.zeros(2).add_(x), "writes a tensor that is no proxy"),
}


@pytest.mark.rules("FXG-10", "FXG-11", "FXG-12")
@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_elements_is_refused(name: str) -> None:
    function, text = REFUSED[name]
    state = al.get_rng_state()
    with pytest.raises(TraceError, match=text):
        fx.symbolic_trace(function, "f32[2]")
    assert state == al.get_rng_state()
    assert al.rand(2).shape == (2,)
    assert "__call__" not in vars(nn.Module)
    assert Cube.apply(al.ones(2)).tolist() == [1.0, 1.0]
    Assigning()(al.ones(2))


def test_draws_from_proxies_are_nodes() -> None:
    module = fx.symbolic_trace(lambda x: x.bernoulli(0.5) + al.rand_like(x), "f32[20]")
    al.manual_seed(3)
    first = module(al.zeros(20)).tolist()
    assert first != module(al.zeros(20)).tolist()
    al.manual_seed(3)
    assert first == module(al.zeros(20)).tolist()


def test_tensors_from_outside_are_constants_once() -> None:
    weight = al.ones(2)
    module: Any = fx.symbolic_trace(lambda x: x * weight + weight, "f32[2]")
    assert [node.target for node in module.graph.find_nodes(op="get_attr")] == ["_tensor_constant0"]
    assert module._tensor_constant0 is weight

    class Scaled(Assigning):
        def forward(self, x: Any) -> Any:
            return x * self.scale

    scaled = fx.symbolic_trace(Scaled(), "f32[2]")
    assert [node.target for node in scaled.graph.find_nodes(op="get_attr")] == ["scale"]


def test_a_parameter_under_two_names_is_one_node() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            self.one = self.two = nn.Parameter(al.ones(2))

        def forward(self, x: Any) -> Any:
            return x * self.one + self.two

    module = fx.symbolic_trace(Tied(), "f32[2]")
    assert [node.target for node in module.graph.find_nodes(op="get_attr")] == ["one"]


def test_hooks_of_a_tracer_see_each_step() -> None:
    seen: list[object] = []

    class Seeing(fx.Tracer):
        def call_module(self, m: Any, forward: Any, args: Any, kwargs: Any) -> Any:
            seen.append(self.path_of_module(m))
            return super().call_module(m, forward, args, kwargs)

        def create_arg(self, a: Any) -> Any:
            seen.append("arg")
            return super().create_arg(a)

        def to_bool(self, obj: Any) -> bool:
            return True

    class Leaf(fx.Tracer):
        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            return module_qualified_name == "head"

    Seeing().trace(Net(), inputs=("f32[5, 3]",))
    assert [each for each in seen if each != "arg"] == ["body", "body.0", "body.1", "head"]
    assert "neg" not in str(Seeing().trace(lambda x: x if x.sum() > 0 else -x, inputs=("f32[2]",)))
    with pytest.raises(fx.ReplacedNameError, match="call_module"):
        Leaf().trace(Net(), inputs=("f32[5, 3]",))


OPERATIONS = (
    lambda x, y: x + y,
    lambda x, y: x * 2.0 - y,
    lambda x, y: x.t().contiguous().t(),
    lambda x, y: x[:, 1:].sum(1, keepdim=True) + y,
    lambda x, y: al.where(x > y, x, 0.5),
    lambda x, y: al.cat([x, y])[1:4],
    lambda x, y: x.split(2)[0] + y[0],
    lambda x, y: F.softmax(x @ y.t(), dim=-1) @ y,
    lambda x, y: x.mul_(2.0).add_(y),
    lambda x, y: x.max(0).values.expand(3, 3) - y,
)


@pytest.mark.draws(long=2000)
@settings(max_examples=30)
@given(st.lists(st.sampled_from(OPERATIONS), min_size=1, max_size=6), st.randoms())
def test_a_traced_program_does_what_it_does(steps: Any, rng: Any) -> None:
    def program(x: Any, y: Any) -> Any:
        values = [x, y]
        for step in steps:
            chosen = rng_.choice(values), rng_.choice(values)
            found = step(*chosen)
            values.append(found if tuple(found.shape) == (3, 3) else found.sum() + y)
        return values[-1], values[len(values) // 2]

    seed = rng.random()
    results = []
    for kind in ("eager", "traced"):
        rng_ = random.Random(seed)
        run = program if kind == "eager" else fx.symbolic_trace(program, "f32[3, 3]", "f32[3, 3]")
        rng_ = random.Random(seed)
        x, y = al.arange(9.0).reshape(3, 3), al.ones(3, 3)
        out = run(x, y)
        results.append([t.tolist() for t in (*out, x, y)] + [t.stride() for t in out])
    assert results[0] == results[1]
    assert ops.mul is fx.ops.mul


@pytest.mark.rules("FXG-29")
def test_a_geometry_op_moves_the_proxy() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        row = y[0]
        y.t_().unsqueeze_(0)
        row.add_(1)
        assert (1, 2, 3) == y.shape and "unsqueeze_" == y.node.name
        return y * 1, y.requires_grad, row

    x = al.ones(3, 2).requires_grad_()
    found, expected = fx.symbolic_trace(f, x)(x), f_of_plain(x)
    assert [expected.tolist(), True] == [found[0].tolist(), found[1]]
    found[0].sum().backward()
    assert x.grad is not None and 2.0 == x.grad[0, 0].item()


def f_of_plain(x: Any) -> Any:
    y = x * 2
    y[0].add_(1)
    return y.t().unsqueeze(0) * 1
