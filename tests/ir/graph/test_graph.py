"""Graphs: their parts and indexes, builders, and the comparison of programs."""

import copy
import math
import sys
import time

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotlite.ir.errors import ArgumentError, GraphError, IndexOutOfRangeError
from aotlite.ir.graph import Graph, Node, Phase, map_nodes
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.compare import equal_graphs, structurally_equal
from aotlite.ir.graph.role import Argument, Gradient, Output, Primal
from aotlite.ir.graph.text.printer import code, readable, tabular
from aotlite.ir.graph.text.source import graph_from_source
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS
from aotlite.ir.provenance.location import Places, place_of
from tests.ir.helpers import strategies

PAIR = tensor_meta((2,))


# ------------------------------------------------------------------------------------ properties
@given(strategies.graphs())
def test_users_are_the_inverse_of_inputs(graph):
    for node in graph:
        assert all(node in graph.users[value] for value in node.inputs())
    for node, users in graph.users.items():
        assert all(node in user.inputs() for user in users)
        assert len(users) == len(set(users))


@given(strategies.graphs())
def test_each_value_is_last_used_once_and_never_after(graph):
    order = {node: i for i, node in enumerate(graph.nodes)}
    freed = [(value, node) for node, values in graph.last_uses.items() for value in values]
    assert sorted(order.values()) == sorted(order[value] for value, _ in freed)
    for value, node in freed:
        assert order[node] == max([order[value], *(order[user] for user in graph.users[value])])


@given(strategies.graphs(), st.data())
def test_comparison_finds_any_change_of_one_node(graph, data):
    """Changing one thing of one node makes the graphs differ, both ways round."""
    index = data.draw(st.integers(0, len(graph) - 1))
    node = graph.nodes[index]
    other = attrs.evolve(node, **_change(node, data))
    swap = {node: other}
    nodes = []
    for each in graph.nodes:
        new = other if each is node else attrs.evolve(each, args=_renamed(each.args, swap))
        swap[each] = new
        nodes.append(new)
    changed = Graph(tuple(nodes))
    assert structurally_equal(graph, changed) is not None
    assert structurally_equal(changed, graph) is not None


def _renamed(args, swap):
    return map_nodes(args, lambda value: swap.get(value, value))


def _change(node, data):
    if node.op == "output":
        return {"args": ((*node.args[0], None),), "role": (*node.role, Gradient(Primal(9)))}
    if node.op == "placeholder":
        return {"role": Primal(99)}
    if node.op == "get_attr" or data.draw(st.booleans()):
        return {"meta": tensor_meta((9, 9))}
    return {"target": OPS["log1p"]}


@given(strategies.graphs())
def test_graph_is_equal_to_itself_and_to_a_copy_under_another_name(graph):
    assert equal_graphs(graph, graph)
    assert equal_graphs(graph, Graph(graph.nodes, "other"))


# ----------------------------------------------------------------------------------------- parts
def sample():
    build = Builder("sample")
    x = build.placeholder(PAIR, Primal(0))
    y = build.placeholder(PAIR)
    w = build.constant("w", np.ones(2), PAIR)
    return build.finish([x * w, None, y], [Output(0), Gradient(Primal(0)), Output(1)])


def test_graph_parts():
    graph = sample()
    x, y, w, mul, output = graph.nodes
    assert (x, y) == graph.placeholders and (mul,) == graph.calls
    assert output is graph.output_node and (mul, None, y) == graph.outputs
    assert x is graph.input_with(Primal(0))
    assert [(Gradient(Primal(0)), None)] == graph.outputs_with(Gradient)
    assert ["w"] == list(graph.constants) and w.target.value is graph.constants["w"]
    assert 5 == len(graph) and list(graph.nodes) == list(graph)
    assert "<Graph sample: 5 nodes>" == repr(graph) and readable(graph) == str(graph)
    assert {} == mul.kwargs and ((2,), PAIR.dtype) == (mul.shape, mul.dtype)


def test_input_with_names_the_missing_role():
    with pytest.raises(
        GraphError, match="graph sample: no input has the role primals_7, expected one"
    ):
        sample().input_with(Primal(7))


def test_printing_prints_unless_told_not_to(capsys):
    graph = sample()
    assert graph.print_readable() + "\n" + graph.print_tabular() + "\n" == capsys.readouterr().out
    assert readable(graph) == graph.print_readable(print_output=False)
    assert tabular(graph) == graph.print_tabular(print_output=False)
    assert "" == capsys.readouterr().out


def test_nodes_can_be_shared_between_graphs():
    graph = sample()
    build = Builder()
    for node in graph.placeholders:
        build.add(node)
    other = build.finish([-build_proxy(build, graph.placeholders[0])])
    assert graph.placeholders == other.placeholders
    assert 1 == len(other.users[graph.placeholders[0]])


def build_proxy(build, node):
    from aotlite.ir.graph.builder import Proxy

    return Proxy(build, node)


# --------------------------------------------------------------------------------------- builders
def test_builder_records_the_source_of_its_nodes():
    place = (sample.__code__, 0)
    source = Node(
        "call",
        OPS["exp"],
        grad_mode=False,
        phase=Phase.BACKWARD,
        sequence=3,
        location=place,
        recompute=True,
    )
    build = Builder()
    x = build.placeholder(PAIR)
    build.source = source
    node = (-x).node
    assert (False, Phase.BACKWARD, 3, place, True, source) == (
        node.grad_mode, node.phase, node.sequence, node.location, node.recompute, node.origin
    )  # fmt: skip


def test_origin_is_the_first_of_a_chain_of_passes():
    first = Node("call", OPS["exp"], meta=PAIR)
    second = first.with_args((1,), PAIR)
    assert first is second.origin and first is second.with_args((2,), PAIR).origin
    assert () == first.args


def test_finish_wants_a_role_an_output():
    build = Builder("short")
    x = build.placeholder(PAIR)
    with pytest.raises(
        ArgumentError, match="graph short: it has 1 outputs and 0 roles, expected one"
    ):
        build.finish([x], [])


def test_results_are_emitted_when_they_are_taken():
    build = Builder()
    x = build.placeholder(PAIR)
    parts = build.apply(OPS["split"], (x, 1, 0))
    assert 2 == len(parts) and 2 == len(build.nodes)
    parts[1]
    assert 3 == len(build.nodes)
    first, second = parts
    assert [0, 1] == [first.node.args[1], second.node.args[1]]
    with pytest.raises(IndexOutOfRangeError, match="getitem: index is 2, expected 0 to 1"):
        parts[2]


# ------------------------------------------------------------------------------------- comparison
def scaled(number):
    build = Builder()
    x = build.placeholder(PAIR)
    return build.finish([x * number])


@pytest.mark.parametrize(("a", "b"), [(0.0, -0.0), (1, 1.0), (True, 1), (math.nan, 0.0), (1j, 1.0)])
def test_comparison_tells_numbers_apart_that_python_finds_equal(a, b):
    assert not equal_graphs(scaled(a), scaled(b))
    assert equal_graphs(scaled(a), scaled(copy.deepcopy(a)))


def test_nan_is_equal_to_another_nan():
    assert equal_graphs(scaled(float("nan")), scaled(-float("nan")))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda x, y: [x], "the number of nodes is 4 in the first graph and 3 in the second"),
        (
            lambda x, y: [x * x],
            "node 2 (mul): argument 'other' is node 1 in the first graph and node 0 in the second",
        ),
        (
            lambda x, y: [x + y],
            "node 2 (mul): its target is ops.mul in the first graph and ops.add in the second",
        ),
        (lambda x, y: [x * y, x], "node 3 (output): its role is"),
    ],
)
def test_difference_is_a_sentence(make, sentence):
    def build(outputs):
        build = Builder()
        x, y = build.placeholder(PAIR), build.placeholder(PAIR)
        return build.finish(outputs(x, y))

    found = structurally_equal(build(lambda x, y: [x * y]), build(make))
    assert found.startswith(sentence)


def test_constants_are_the_same_object_or_differ():
    def build(value):
        build = Builder()
        return build.finish([build.constant("w", value, PAIR)])

    value = np.ones(2)
    assert equal_graphs(build(value), build(value))
    assert "node 0 (w): its target is" in structurally_equal(build(value), build(np.ones(2)))


# --------------------------------------------------------------------------------------- places
def test_place_is_the_line_of_the_instruction():
    places = Places()
    code_object = sample.__code__
    lines = {places((code_object, 2 * i)).line for i, _ in enumerate(code_object.co_positions())}
    first = code_object.co_firstlineno
    assert set(range(first + 1, first + 6)) <= lines
    place = places((code_object, 2))
    assert place is places((code_object, 2))
    assert f'test_graph.py:{place.line} in sample: build = Builder("sample")' == str(place)
    assert place.note().endswith(', in sample\n    build = Builder("sample")')


def test_place_of_a_running_frame_is_the_line_it_is_at():
    def frame():
        first = 1
        return (
            first,
            sys._getframe(),
        )

    _, found = frame()
    place = place_of((found.f_code, found.f_lasti))
    assert (found.f_lineno, "frame") == (place.line, place.function)
    assert place.line == frame.__code__.co_firstlineno + 2


def test_place_without_source_has_no_text():
    scope = {}
    exec(compile("def made(): return 1", "<made>", "exec"), scope)
    assert "<made>:1 in made" == str(place_of((scope["made"].__code__, 0)))


# ------------------------------------------------------------------------------------------ size
def test_long_chain_prints_and_is_read_back():
    """Nothing recurses: 50,000 nodes in a row; a few seconds on an idle core."""
    build = Builder()
    x = build.placeholder(PAIR, Argument(0))
    for _ in range(50_000):
        x = -x
    graph = build.finish([x])
    start = time.perf_counter()
    assert 50_002 == len(readable(graph, frees=True).splitlines())
    assert 50_003 == len(tabular(graph).splitlines())
    assert equal_graphs(graph, graph_from_source(code(graph)))
    assert time.perf_counter() - start < 60
