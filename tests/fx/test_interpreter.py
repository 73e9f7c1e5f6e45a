"""`fx.Interpreter` and `fx.Transformer`: hooks, plain arrays, equal graphs (FXG-17, FXG-18)."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite import fx, ops
from aotlite.ir.errors import ArgumentError
from aotlite.ir.graph.compare import structurally_equal
from aotlite.testing import laws
from aotlite.testing.laws.graphs.corpus import STAGES
from tests.fx.test_tracer import Net


def written(x: Any) -> Any:
    row = x[0]
    row.mul_(2.0)
    return x + 1, row, x.as_strided((2,), (3,))


class Kinds(fx.Interpreter):
    """Notes the types that its hooks get."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.seen: set[type] = set()

    def run_node(self, n: fx.Node) -> Any:
        self.seen |= {type(each) for each in self.fetch_args_kwargs_from_env(n)[0]}
        return super().run_node(n)


@pytest.mark.rules("FXG-17")
def test_hooks_get_arrays_for_arrays_and_tensors_for_tensors() -> None:
    module = fx.symbolic_trace(written, "f32[2, 3]")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    on_arrays = Kinds(module)
    arrays = on_arrays.run(x)
    assert x[0].tolist() == [0.0, 1.0, 2.0]  # copied
    assert on_arrays.seen <= {np.ndarray, int, float, tuple, type(None)}
    tensor = al.tensor(x)
    on_tensors = Kinds(module)
    tensors = on_tensors.run(tensor)
    assert tensor[0].tolist() == [0.0, 2.0, 4.0]
    assert al.Tensor in on_tensors.seen
    assert [a.tolist() for a in arrays] == [t.tolist() for t in tensors]
    eager = written(al.tensor(np.arange(6, dtype=np.float32).reshape(2, 3)))
    assert [t.tolist() for t in eager] == [a.tolist() for a in arrays]


@pytest.mark.rules("FXG-17")
def test_arrays_that_hooks_pass_on_are_views_and_those_they_make_are_values() -> None:
    class Fresh(fx.Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            found = super().call_function(target, args, kwargs)
            if target is ops.exp:
                return np.array([5, 6], np.float32)
            assert target is not ops.select or found.base is not None
            return found

    def function(x: Any) -> Any:
        y = x.exp()
        row = y[:1]
        row.add_(1.0)
        return y, row

    module = fx.symbolic_trace(function, "f32[2]")
    y, row = Fresh(module).run(np.zeros(2, np.float32))
    assert (y.tolist(), row.tolist()) == ([6.0, 6.0], [6.0])


def test_a_view_that_a_hook_gets_reaches_beyond_itself() -> None:
    module = fx.symbolic_trace(lambda x: x[:1].as_strided((4,), (1,)), "f32[4]")
    assert fx.Interpreter(module).run(np.arange(4, dtype=np.float32)).tolist() == [0, 1, 2, 3]


def test_ops_of_no_grad_have_no_history() -> None:
    def function(x: Any) -> Any:
        with al.no_grad():
            fixed = x * 2
        return fixed, x * fixed

    module = fx.symbolic_trace(function, "f32[2]")
    found = fx.Interpreter(module).run(al.ones(2, requires_grad=True))
    assert [each.requires_grad for each in found] == [False, True]


def test_values_are_dropped_after_their_last_use() -> None:
    alive: list[Any] = []

    class Watching(fx.Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            found = super().call_function(target, args, kwargs)
            alive.append(weakref.ref(found))
            gc.collect()
            counts.append(sum(each() is not None for each in alive))
            return found

    counts: list[int] = []
    module = fx.symbolic_trace(lambda x: x.exp().sin().cos().neg(), "f32[64]")
    Watching(module).run(np.zeros(64, np.float32))
    assert counts == [1, 2, 2, 2]
    given = [al.zeros(64)]
    assert Watching(module).boxed_run(given).shape == (64,)
    assert given == []
    kept = Watching(module, garbage_collect_values=False)
    kept.run(np.zeros(64, np.float32))
    assert len(kept.env) == len(module.graph.nodes)


def test_every_hook_can_be_replaced() -> None:
    class All(fx.Interpreter):
        def placeholder(self, target: str, args: Any, kwargs: Any) -> Any:
            return super().placeholder(target, args, kwargs) * 0 + 1

        def get_attr(self, target: str, args: Any, kwargs: Any) -> Any:
            return self.fetch_attr(target).detach().numpy() * 0 + 2

        def output(self, target: str, args: Any, kwargs: Any) -> Any:
            return "result", args[0]

    weight = al.ones(2)
    module = fx.symbolic_trace(lambda x: x * weight, "f32[2]")
    text, value = All(module).run(np.zeros(2, np.float32))
    assert (text, value.tolist()) == ("result", [2.0, 2.0])


def test_a_run_may_begin_with_values() -> None:
    module = fx.symbolic_trace(lambda x: x.exp() + 1, "f32[2]")
    exp = module.graph.find_nodes(op="call_function", target=ops.exp)[0]
    found = fx.Interpreter(module).run(al.zeros(2), initial_env={exp: al.zeros(2)})
    assert found.tolist() == [1.0, 1.0]


def test_errors_name_the_node_and_the_line() -> None:
    class Failing(fx.Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            raise ValueError("mine")

    module = fx.symbolic_trace(lambda x: x.exp(), "f32[2]")
    with pytest.raises(ValueError, match="mine") as got:
        Failing(module).run(al.zeros(2))
    notes = "\n".join(got.value.__notes__)
    assert "while running: %exp : f32[2]" in notes
    assert "test_interpreter.py" in notes


def test_what_does_not_fit_is_refused() -> None:
    module = fx.symbolic_trace(lambda x, y: x + y, "f32[2]", "f32[2]")
    with pytest.raises(ArgumentError, match="argument 'y' is missing"):
        fx.Interpreter(module).run(al.zeros(2))
    with pytest.raises(ArgumentError, match=r"an input is float32\[3\], expected f32\[2\]"):
        fx.Interpreter(module).run(np.zeros(2, np.float32), np.zeros(3, np.float32))
    with pytest.raises(ArgumentError, match="expected a GraphModule or a graph"):
        fx.Interpreter(3)


def test_nested_results_and_module_attributes_are_those_of_a_call() -> None:
    module = fx.symbolic_trace(Net(), "f32[5, 3]").eval()
    x = al.randn(5, 3)
    expected, found = module(x), fx.Interpreter(module).run(x)
    assert expected["y"].tolist() == found["y"].tolist()
    assert found["x"] == (x, None)
    arrays = fx.Interpreter(module).run(x.numpy())
    np.testing.assert_allclose(arrays["y"], expected["y"].detach().numpy(), rtol=1e-6)


@pytest.mark.rules("FXG-18")
@pytest.mark.parametrize("case", laws.graphs(*STAGES), ids=lambda case: case.name)
def test_a_transformer_without_hooks_gives_an_equal_graph(case: laws.GraphCase) -> None:
    given = fx.GraphModule(case.graph)
    made = fx.Transformer(given).transform()
    assert structurally_equal(given.graph.ir_graph(), made.graph.ir_graph()) is None or (
        case.graph.constants
    )
    assert made.code == given.code


def test_a_transformer_writes_in_proxies() -> None:
    class Silu(fx.Transformer):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if target is ops.silu:
                return args[0] * args[0].sigmoid()
            return super().call_function(target, args, kwargs)

    net: Any = fx.symbolic_trace(Net(), "f32[5, 3]").eval()
    made: Any = Silu(net).transform()
    assert "silu" not in made.code
    x = al.randn(5, 3)
    np.testing.assert_allclose(
        made(x)["y"].detach().numpy(), net(x)["y"].detach().numpy(), rtol=1e-5
    )
    assert made.head.weight is net.head.weight
    sigmoid = made.graph.find_nodes(op="call_function", target=ops.sigmoid)[0]
    silu = net.graph.find_nodes(op="call_function", target=ops.silu)[0]
    assert sigmoid.stack_trace == silu.stack_trace
