"""`fx.Graph` and `fx.Node`: FX's words, and mistakes refused where they are made."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite import fx, ops
from aotlite.fx import node as node_module
from aotlite.ir.errors import AbsentError, ArgumentError, GraphError, ShapeError
from aotlite.ir.graph.role import Argument
from aotlite.ir.meta import tensor_meta


def small() -> tuple[fx.Graph, fx.Node, fx.Node]:
    """(graph, input, call) of `x * 2`."""
    graph = fx.Graph()
    x = graph.placeholder("x", "f32[2]")
    call = graph.call_function(ops.mul, (x, 2.0))
    graph.output(call)
    return graph, x, call


def shown(graph: fx.Graph) -> list[str]:
    return [node.name for node in graph.nodes]


# ------------------------------------------------------------------------------------- mistakes
def foreign() -> fx.Node:
    return small()[1]


def erased(graph: fx.Graph, x: fx.Node) -> fx.Node:
    node = graph.call_function(ops.neg, (x,))
    graph.erase_node(node)
    return node


MISTAKES: dict[str, tuple[Callable[[Any, Any, Any], object], str]] = {
    "foreign argument": (
        lambda g, x, y: g.call_function(ops.neg, (foreign(),)),
        "x is of another graph",
    ),
    "foreign in a list": (
        lambda g, x, y: g.call_function(ops.cat, ([x, foreign()],)),
        "x is of another graph",
    ),
    "foreign replacement": (lambda g, x, y: y.replace_all_uses_with(foreign()), "another graph"),
    "foreign move": (lambda g, x, y: y.append(foreign()), "another graph"),
    "foreign insertion point": (lambda g, x, y: g.inserting_after(foreign()), "another graph"),
    "foreign erased": (lambda g, x, y: g.erase_node(foreign()), "another graph"),
    "erased argument": (
        lambda g, x, y: setattr(y, "args", (erased(g, x), 2.0)),
        "neg was erased",
    ),
    "erased twice": (lambda g, x, y: g.erase_node(erased(g, x)), "neg was erased"),
    "proxy for a node": (
        lambda g, x, y: g.call_function(ops.neg, (fx.Proxy(x),)),
        "the proxy of x, expected a node",
    ),
    "proxy in an output": (
        lambda g, x, y: setattr(g.output_node(), "args", (fx.Proxy(x),)),
        "the proxy of x, expected a node",
    ),
    "node for a proxy": (lambda g, x, y: fx.Proxy(x) + y, "the node mul, expected a proxy"),
    "node first": (lambda g, x, y: y + fx.Proxy(x), "the node mul, expected a proxy"),
    "method of a node": (lambda g, x, y: y.relu(), "the node mul, expected a proxy"),
    "nodes alone": (lambda g, x, y: al.add(x, y), "the node x, expected a proxy"),
    "node of the IR": (
        lambda g, x, y: g.call_function(ops.neg, (g.ir_graph().nodes[0],)),
        "a node of an aotlite.ir graph",
    ),
    "tensor": (lambda g, x, y: g.call_function(ops.add, (x, al.ones(2))), "a Tensor"),
    "array": (lambda g, x, y: y.update_arg(1, np.ones(2)), "a ndarray"),
    "cycle": (lambda g, x, y: setattr(y, "args", (y, 2.0)), "needs mul itself"),
    "used": (lambda g, x, y: g.erase_node(x), "x has users mul"),
    "second output": (lambda g, x, y: g.output(x), "the graph has an output"),
    "no type": (lambda g, x, y: g.placeholder("y"), "its type is None"),
    "no value": (lambda g, x, y: g.get_attr("weight"), "'weight' has no value"),
    "another value": (
        lambda g, x, y: (g.get_attr("w", al.ones(2)), g.get_attr("w", al.ones(2))),
        "'w' has another value",
    ),
    "no op": (lambda g, x, y: g.call_function(lambda a: a.exp() + 1, (x,)), "ops.exp, ops.add"),
    "unknown argument": (lambda g, x, y: y.update_kwarg("dim", 0), "argument 'dim' is unexpected"),
    "of an input": (lambda g, x, y: setattr(x, "args", (y,)), "the node is a placeholder"),
    "kind": (lambda g, x, y: g.create_node("call", ops.neg, (x,)), "the kind is 'call'"),
}


@pytest.mark.rules("FXG-4")
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_refused_where_it_is_made_and_changes_nothing(name: str) -> None:
    mistake, text = MISTAKES[name]
    graph, x, call = small()
    before = graph.python_code().src
    with pytest.raises((ArgumentError, AbsentError), match=text):
        mistake(graph, x, call)
    graph.lint()
    graph.eliminate_dead_code()
    assert before == graph.python_code().src


@pytest.mark.rules("FXG-4")
def test_a_cycle_of_two_nodes_is_refused() -> None:
    graph, _x, call = small()
    after = graph.call_function(ops.exp, (call,))
    with pytest.raises(ArgumentError, match="mul needs mul itself"):
        call.args = (after, 2.0)
    assert after.args == (call,)


def test_what_is_out_of_order_may_be_moved_before_it_is_checked() -> None:
    graph, x, call = small()
    late = graph.call_function(ops.neg, (x,))
    call.args = (late, 2.0)
    with pytest.raises(ArgumentError, match="mul takes neg, which stands behind it"):
        graph.lint()
    call.prepend(late)
    graph.lint()
    assert shown(graph) == ["x", "neg", "mul", "output"]


def test_shapes_that_do_not_fit_are_refused_by_lint() -> None:
    graph, x, call = small()
    wide = graph.placeholder("wide", "f32[3]")
    total = graph.call_function(ops.add, (call, x))
    total.update_arg(1, wide)
    assert total.meta["val"] is tensor_meta((2,))
    with pytest.raises((GraphError, ShapeError), match="add"):
        graph.lint()
    total.update_arg(0, wide)
    graph.lint()
    assert total.meta["val"] is tensor_meta((3,))


def test_metas_that_an_op_refuses_are_refused_when_the_node_is_made() -> None:
    graph, x, _call = small()
    wide = graph.placeholder("wide", "f32[3]")
    with pytest.raises(ShapeError):
        graph.call_function(ops.add, (x, wide))
    assert shown(graph) == ["x", "wide", "mul", "output"]


# ---------------------------------------------------------------------------------------- calls
@pytest.mark.rules("FXG-2")
def test_any_function_that_is_one_op_makes_its_node() -> None:
    graph, x, call = small()
    made = [
        graph.call_function(operator.add, (x, 1)),
        graph.call_function(al.relu, (x,)),
        graph.call_method("sigmoid", (x,)),
        graph.call_function(operator.getitem, (x, 0)),
        graph.create_node("call_function", ops.sum, (x,), {"dim": 0}),
        graph.call_function(al.add, (x, call), {"alpha": 2}),
    ]
    targets = [ops.add, ops.relu, ops.sigmoid, ops.select, ops.sum, ops.add_scaled]
    assert targets == [node.target for node in made]
    assert made[4].args[:2] == (x, (0,))
    graph.lint()


@pytest.mark.rules("FXG-2")
def test_results_of_several_are_taken_by_getitem() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x", "f32[4]")
    parts = graph.call_function(ops.split, (x, 2))
    first, last = (graph.call_function(operator.getitem, (parts, k)) for k in (0, -1))
    graph.output([first, {"last": last}])
    assert first.target is operator.getitem
    assert last.args == (parts, 1)
    assert parts.meta["val"] == (tensor_meta((2,)), tensor_meta((2,)))
    with pytest.raises(ArgumentError, match="the index is 2"):
        graph.call_function(operator.getitem, (parts, 2))
    assert fx.GraphModule(graph)(al.arange(4.0))[1]["last"].tolist() == [2.0, 3.0]


@pytest.mark.rules("FXG-2")
def test_arguments_are_bound_anew_however_they_are_set() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x", "f32[2, 3]")
    total = graph.call_function(ops.sum, (x,))
    total.insert_arg(1, 0)
    assert total.args[:2] == (x, (0,))
    total.update_kwarg("keepdim", True)
    assert (total.args[2], total.kwargs) == (True, {})
    total.kwargs = {"dtype": al.float64, "dim": 1}
    assert total.kwargs == {"dtype": al.float64}
    assert total.meta["val"] is tensor_meta((2, 1), None, al.float64)
    both = total.normalized_arguments(None, normalize_to_only_use_kwargs=True)
    assert both is not None
    assert both.args == ()
    assert both.kwargs["dim"] == (1,)
    total.target = ops.mean
    total.args = (x,)
    assert total.meta["val"] is tensor_meta((), None, al.float64)


# -------------------------------------------------------------------------------------- in order
@pytest.mark.rules("FXG-3")
def test_nodes_made_after_another_come_in_reversed_order_as_in_fx() -> None:
    graph, x, call = small()
    with graph.inserting_after(x):
        graph.call_function(ops.exp, (x,))
        graph.call_function(ops.neg, (x,))
    with graph.inserting_before(call):
        graph.call_function(ops.sin, (x,))
        graph.call_function(ops.cos, (x,))
    assert shown(graph) == ["x", "neg", "exp", "sin", "cos", "mul", "output"]
    assert x < call
    assert not call <= x


@pytest.mark.rules("FXG-3")
def test_a_point_stays_where_it_is_set_and_ends_with_its_block() -> None:
    graph, x, call = small()
    graph.inserting_before(call)
    graph.call_function(ops.exp, (x,))
    with graph.inserting_after(call):
        graph.call_function(ops.neg, (x,))
    graph.call_function(ops.sin, (x,))
    assert shown(graph) == ["x", "exp", "sin", "mul", "neg", "output"]


@pytest.mark.rules("FXG-3")
def test_inputs_stay_in_front() -> None:
    graph, x, call = small()
    with graph.inserting_before(x):
        graph.placeholder("first", "f32[3]")
        graph.get_attr("weight", al.ones(2))
    with graph.inserting_after(call):
        graph.placeholder("last", "f32[3]")
    assert shown(graph) == ["first", "x", "last", "weight", "mul", "output"]
    graph.nodes.find_nodes(op="placeholder")[0].prepend(call)
    assert shown(graph) == ["first", "x", "last", "mul", "weight", "output"]
    graph.lint()
    assert {node._node.role for node in graph.find_nodes(op="placeholder")} == {
        Argument(0),
        Argument(1),
        Argument(2),
    }


@pytest.mark.rules("FXG-3")
def test_a_loop_over_the_nodes_may_erase_and_insert() -> None:
    graph = fx.Graph()
    value = graph.placeholder("x", "f32[2]")
    for _ in range(4):
        value = graph.call_function(ops.exp, (value,))
    graph.output(value)
    for node in graph.nodes:
        if node.target is ops.exp:
            with graph.inserting_after(node):
                new = graph.call_function(ops.neg, node.args)
            node.replace_all_uses_with(new)
            graph.erase_node(node)
    assert [node.target for node in graph.find_nodes(op="call_function")] == [ops.neg] * 4
    for node in reversed(graph.nodes):
        if node.target is ops.neg:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
    graph.lint()
    assert shown(graph) == ["x", "output"]


@pytest.mark.rules("FXG-3")
def test_a_loop_passes_over_what_is_erased_ahead_of_it() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x", "f32[2]")
    calls = [graph.call_function(ops.exp, (x,)) for _ in range(4)]
    graph.output(x)
    for walk, first in ((graph.nodes, 0), (reversed(graph.nodes), 3)):
        seen = []
        for node in walk:
            seen.append(node.name)
            if node is calls[first]:
                graph.erase_node(calls[first])
                graph.erase_node(calls[1 if first == 0 else 2])
        assert len(seen) == len(set(seen))
    assert seen == ["output", "exp_3", "x"]


def test_a_node_between_a_value_and_its_users_keeps_the_value() -> None:
    graph, _x, call = small()
    with graph.inserting_after(call):
        after = graph.call_function(ops.neg, (call,))
    assert call.replace_all_uses_with(after) == [graph.output_node()]
    assert (after.args, graph.output_node().args) == ((call,), (after,))
    graph.lint()


@pytest.mark.rules("FXG-8")
def test_copied_constants_of_one_name_and_other_values_stay_apart() -> None:
    both, results = fx.Graph(), []
    x = both.placeholder("x", "f32[2]")
    for number in (2.0, 3.0):
        graph = fx.Graph()
        given = graph.placeholder("x", "f32[2]")
        weight = graph.get_attr("w", al.full((2,), number))
        graph.output(graph.call_function(ops.mul, (given, weight)))
        results.append(both.graph_copy(graph, {given: x}))
    both.output(tuple(results))
    found = fx.GraphModule(both)(al.ones(2))
    assert [each.tolist() for each in found] == [[2.0, 2.0], [3.0, 3.0]]


def test_the_list_is_a_ring_around_its_root() -> None:
    graph, x, call = small()
    walked, node = [], graph._root.next
    while node.op != "root":
        walked.append(node)
        node = node.next
    assert walked == list(graph.nodes)
    assert (x.prev.op, call.prev, graph.output_node().next.op) == ("root", x, "root")
    assert len(graph.nodes) == 3


@pytest.mark.rules("FXG-7")
def test_names_stay_when_nodes_come_and_go() -> None:
    graph, x, call = small()
    with graph.inserting_before(call):
        before = graph.call_function(ops.mul, (x, 3.0))
    assert (call.name, before.name) == ("mul", "mul_1")
    call.name = "scaled value"
    before.name = "mul"
    assert shown(graph) == ["x", "mul", "scaled_value", "output"]
    x.name = "s0"  # the name of a symbol
    assert x.name == "s0_1"


# ------------------------------------------------------------------------------------------ rest
@pytest.mark.rules("FXG-5")
def test_metas_are_current_and_free_keys_stay() -> None:
    graph, x, call = small()
    total = graph.call_function(ops.sum, (call,))
    call.meta["mine"] = 1
    call.meta["val"] = "dropped"
    call.stack_trace = "my line"
    wide = graph.placeholder("wide", "f64[3, 3]")
    x.replace_all_uses_with(wide)
    assert call.meta["val"] is tensor_meta((3, 3), None, al.float64)
    assert (call.meta["mine"], call.stack_trace) == (1, "my line")
    assert total.meta["tensor_meta"] is tensor_meta((), None, al.float64)
    other = graph.call_function(ops.neg, (wide,))
    call.replace_all_uses_with(other, propagate_meta=True)
    assert other.meta["mine"] == 1
    with pytest.raises(ArgumentError, match="neg has a meta"):
        total.replace_all_uses_with(other, propagate_meta=True)


@pytest.mark.rules("FXG-6")
def test_results_may_nest_and_change() -> None:
    graph, x, call = small()
    graph.output_node().args = ({"a": (x, call), "n": None, "k": 2},)
    assert graph.output_node().args[0] == {"a": (x, call), "n": None, "k": 2}
    graph.output_node().args = (call,)
    assert graph.output_node().all_input_nodes == [call]
    graph.erase_node(graph.output_node())
    assert shown(graph) == ["x", "mul"]
    with pytest.raises(ArgumentError, match="no output yet"):
        graph.ir_graph()
    graph.output((call,))
    assert graph.ir_graph().outputs[0].target.name == "mul"


def test_writes_and_what_has_side_effects_are_kept() -> None:
    graph, x, call = small()
    write = graph.call_function(ops.add_, (call, 1.0))
    dead = graph.call_function(ops.exp, (x,))
    assert (write.is_impure(), dead.is_impure(), x.is_impure()) == (True, False, True)
    assert graph.eliminate_dead_code(lambda node: node.op != "call_function" or node is dead)
    assert dead in list(graph.nodes)
    assert graph.eliminate_dead_code()
    assert not graph.eliminate_dead_code()
    assert shown(graph) == ["x", "mul", "output"]


def test_dead_code_elimination_keeps_ops_that_are_said_to_have_side_effects() -> None:
    graph, x, _call = small()
    graph.call_function(ops.digamma, (x,))
    try:
        assert fx.has_side_effect(ops.digamma) is ops.digamma
        assert not graph.eliminate_dead_code()
    finally:
        node_module._IMPURE.clear()
    assert graph.eliminate_dead_code()
    with pytest.raises(ArgumentError, match="is no op"):
        fx.has_side_effect(print)


def test_a_long_chain_is_edited_in_linear_time() -> None:
    graph = fx.Graph()
    value = first = graph.placeholder("x", "f32[2]")
    for _ in range(3000):
        value = graph.call_function(ops.neg, (value,))
    graph.output(value)
    for node in graph.nodes:
        if node.op == "call_function":
            with graph.inserting_before(node):
                made = graph.call_function(ops.exp, node.args)
            node.replace_all_uses_with(made)
            graph.erase_node(node)
    graph.lint()
    assert len(graph.nodes) == 3002
    assert first.next.target is ops.exp


def test_print_tabular_has_a_row_for_each_node(capsys: pytest.CaptureFixture[str]) -> None:
    text = small()[0].print_tabular()
    assert text + "\n" == capsys.readouterr().out
    assert len(text.splitlines()) == 4
