"""`make_fx(f)` gives the graph of a call, and `FakeTensorMode` tensors without data (FNT-15 to
FNT-20)."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import aotlite as al
from aotlite.export import FakeMode
from aotlite.func import FakeTensorMode, functionalize, make_fx

MODES = pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])


def names(graph: Any) -> list[str]:
    return [node.target.name for node in graph.ir_graph().calls]


def written(x: Any, y: Any) -> Any:
    x[0].mul_(2)
    return x.t() + y


@MODES
def test_a_trace_runs_as_the_function(mode: str) -> None:
    x, y = al.ones(2, 3), al.ones(3, 2)
    traced = make_fx(written, tracing_mode=mode)(x, y)
    assert ["select", "mul_", "t", "add"] == names(traced.graph)
    assert (2.0 if mode == "real" else 1.0) == x[0, 0].item()
    expected, found = al.ones(2, 3), al.ones(2, 3)
    assert written(expected, y).tolist() == traced(found, y).tolist()
    assert expected.tolist() == found.tolist()


def test_symbolic_traces_have_symbols() -> None:
    traced = make_fx(written, tracing_mode="symbolic")(al.ones(2, 3), al.ones(3, 2))
    metas = [str(node.meta["val"]) for node in traced.graph.find_nodes(op="placeholder")]
    assert ["f32[s0, s1]", "f32[s2, s3]"] == metas


def test_inputs_are_named_by_parameters_and_constants_numbered() -> None:
    c = al.ones(2)

    def f(x: Any, pair: Any, n: int) -> Any:
        return x * pair["a"] * pair["b"] * n + c + al.tensor([1.0, 2.0])

    traced = make_fx(f)(al.ones(2), {"a": al.ones(2), "b": al.ones(2)}, 3)
    assert 'self, x_1: "f32[2]", pair_1: "f32[2]", pair_2: "f32[2]")' in traced.code
    constant: Any = vars(traced)["_tensor_constant0"]
    assert constant is c
    again = pickle.loads(pickle.dumps(traced))
    call = al.ones(2), {"a": al.ones(2), "b": al.ones(2)}, 3
    assert f(*call).tolist() == traced(*call).tolist() == again(*call).tolist()
    assert "arg0_1" in make_fx(lambda *x: x[0] * 2)(al.ones(1), al.ones(1)).code


def test_results_are_nested_as_the_functions_are() -> None:
    traced = make_fx(lambda x: {"sum": (x.sum(), [x]), "n": 3})(al.ones(2))
    found = traced(al.full((2,), 2.0))
    assert (4.0, 3) == (found["sum"][0].item(), found["n"])
    assert "return add" in make_fx(lambda x: x + 1)(al.ones(2)).code


def test_a_tensor_may_be_passed_twice() -> None:
    x = al.ones(2)
    traced = make_fx(lambda a, b: a * b)(x, x)
    assert [4.0, 4.0] == traced(al.full((2,), 2.0), al.zeros(2)).tolist()


@MODES
def test_values_are_refused(mode: str) -> None:
    with pytest.raises(al.UnsupportedError, match=r"make_fx: item\(\) of a tensor"):
        make_fx(lambda x: x * x.sum().item(), tracing_mode=mode)(al.ones(2))
    with pytest.raises(al.UnsupportedError, match="make_fx"):
        make_fx(lambda x: x.int().sum().item() + x, tracing_mode=mode)(al.ones(2))


def test_real_traces_have_the_sizes_of_this_call() -> None:
    traced = make_fx(lambda x: x[x > 0] * 2)(al.tensor([1.0, -1.0, 3.0]))
    assert [2.0, 6.0] == traced(al.tensor([1.0, -1.0, 3.0])).tolist()


def test_decompositions_take_the_place_of_ops() -> None:
    table = al.decompositions.core_table()
    traced = make_fx(lambda x: x.softmax(-1), decomposition_table=table)(al.ones(2, 3))
    assert ["amax", "sub", "exp", "sum", "div"] == names(traced.graph)
    with pytest.raises(al.ArgumentError, match=r"decomposition of relu returns f32\[\]"):
        make_fx(lambda x: x.relu(), {"relu": lambda x: x.sum()})(al.ones(2))


def test_pre_dispatch_keeps_grad_modes() -> None:
    def f(x: Any) -> Any:
        with al.no_grad():
            y = x * 2
        return y * x

    for pre_dispatch, expected in ((True, [2.0, 4.0]), (False, [4.0, 8.0])):
        x: Any = al.tensor([1.0, 2.0], requires_grad=True)
        make_fx(f, pre_dispatch=pre_dispatch)(x)(x).sum().backward()
        assert expected == x.grad.tolist()


def test_gradients_inside_are_part_of_the_graph() -> None:
    def f(x: Any, w: Any) -> Any:
        return al.autograd.grad((x @ w).relu().sum(), w)[0]

    x, w = al.ones(2, 3), al.ones(3, 2).requires_grad_()
    traced = make_fx(f, tracing_mode="fake")(x, w)
    assert "relu_backward" in names(traced.graph)
    assert f(x, w).tolist() == traced(x, w).tolist()


def test_a_traced_function_takes_the_arguments_that_were_traced() -> None:
    traced = make_fx(lambda x, y: x + y)(al.ones(2), al.ones(2))
    with pytest.raises(al.ArgumentError, match="missing"):
        traced(al.ones(2))


@pytest.mark.parametrize("arguments", [(3,), (abs, None, "eager")])
def test_wrong_arguments_are_named(arguments: Any) -> None:
    with pytest.raises(al.ArgumentError, match="make_fx: "):
        make_fx(*arguments)


# ------------------------------------------------------------------------------------ fake mode
def test_a_fake_mode_is_one_thing() -> None:
    assert FakeMode is FakeTensorMode
    mode = FakeTensorMode()
    x = al.ones(2, 3)
    row, fake = mode.from_tensor(x[0]), mode.from_tensor(x)
    assert (True, True) == (mode.from_tensor(x) is fake, row.storage is fake.storage)
    with mode:
        assert (3, 2) == functionalize(lambda x: x.t().mul_(2))(fake).shape
    assert ["mul"] == names(make_fx(lambda x: x * 2, tracing_mode="fake")(fake).graph)


def test_tensors_with_data_are_operands_where_that_is_asked_for() -> None:
    x = al.ones(2)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert (2,) == (x * 2).shape
    with FakeTensorMode(), pytest.raises(al.UnsupportedError, match="among tensors of a fake mode"):
        x * 2
