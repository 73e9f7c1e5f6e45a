"""The laws of passes hold for ours, and each rejects the wrong pass that is meant for it."""

import copy
import itertools
from typing import ClassVar

import numpy as np
import pytest

import aotlite as al
from aotlite.ir.graph import Graph, Node, Phase, map_nodes, output_node
from aotlite.ir.graph.builder import Builder
from aotlite.ir.meta import tensor_meta
from aotlite.ir.run.transform import Transformer
from aotlite.stages.s7_simplify import simplify
from aotlite.testing import laws
from aotlite.testing.laws.graphs.runs import given, run


class Rewriting(Transformer):
    """A pass by ops' names: `rules[name](*args)` instead of the op."""

    rules: ClassVar[dict[str, object]] = {}

    def call(self, target, args):
        rule = self.rules.get(target.name)
        return super().call(target, args) if rule is None else rule(*args)


def rewriting(**rules):
    kind = type("Rules", (Rewriting,), {"rules": rules})
    return lambda graph: kind(graph).transform()


def rebuild(graph):
    return Transformer(graph).transform()


def add_instead_of_doubling(graph):
    def rule(a, b):
        return a + a if type(b) is float and b == 2.0 else a * b

    return rewriting(mul=rule)(graph)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("own", [rebuild, simplify, add_instead_of_doubling])
def test_right_passes_obey_every_law(own):
    found = laws.check_pass(own, idempotent=True)
    assert ("G1", "G2", "G3", "G4", "G5", "G6", "G7", "G8") == found.laws
    assert 112 == found.cases


def test_a_pass_may_be_asked_to_keep_writes_and_views():
    assert 168 == laws.check_pass(rebuild, imperative=True).cases


def tenths(graph):
    """Rounded otherwise: products are computed by way of a tenth."""
    return rewriting(mul=lambda a, b: a * b * 0.1 * 10.0 if isinstance(b, float) else a * b)(graph)


def test_rounding_is_a_difference_unless_it_may_be():
    with pytest.raises(laws.LawError, match="^G5 .same values, bit for bit.: pass 'tenths' on "):
        laws.check_pass(tenths)
    assert 112 == laws.check_pass(tenths, exact=False).cases
    with pytest.raises(laws.LawError, match="^G5 .same values, up to rounding.: .*expected about"):
        laws.check_pass(scales_products, exact=False)


# --------------------------------------------------------------------------------- wrong passes
def gives_nothing(graph):
    return None


def stops_at_relu(graph):
    if any(node.target.name == "relu" for node in graph.calls):
        raise KeyError("relu")
    return graph


def renames_in_place(graph):
    graph.name = "renamed"
    return graph


def reroles_in_place(graph):
    for node in graph.calls:
        node.sequence = 7
    return graph


def guesses_metas(graph):
    """Nodes with the metas of other nodes."""
    nodes = [
        n.with_args(n.args, tensor_meta((9,)))
        if n.op == "call" and type(n.meta) is not tuple
        else n
        for n in graph.nodes
    ]
    return Graph(tuple(nodes), graph.name)


def writes_a_copy(graph):
    def rule(a, b):
        return a.clone().mul_(b)

    return rewriting(mul=rule)(graph)


def without_last_result(graph):
    if len(graph.outputs) < 2:
        return graph
    last = output_node(graph.outputs[:-1], graph.output_roles[:-1])
    return Graph((*graph.nodes[:-1], last), graph.name)


def turned_inputs(graph):
    """Inputs in another order."""
    inputs = graph.placeholders
    return Graph((*reversed(inputs), *graph.nodes[len(inputs) :]), graph.name)


def scales_products(graph):
    return rewriting(mul=lambda a, b: a * b * 1.5)(graph)


def merges_results(graph):
    """Of two equal results, both are the first."""
    seen = {}
    outputs = []
    for value in graph.outputs:
        key = (getattr(value, "target", value), getattr(value, "args", None), id(None))
        hashable = tuple(map(str, key))
        outputs.append(seen.setdefault(hashable, value) if hasattr(value, "args") else value)
    return Graph((*graph.nodes[:-1], output_node(outputs, graph.output_roles)), graph.name)


def drops_clones(graph):
    return rewriting(clone=lambda a, *rest: a)(graph)


class Counting:
    """The name of what it gives tells how often it was called."""

    __name__ = "counting"

    def __init__(self):
        self.calls = itertools.count()

    def __call__(self, graph):
        return Graph(graph.nodes, f"{graph.name}_{next(self.calls)}")


def adds_a_zero(graph):
    """Once more each time."""
    return rewriting(mul=lambda a, b: a * b * 1.0)(graph)


def forgets_nan(graph):
    def rule(a, b):
        return a - a if type(b) is float and b == 0 else a * b

    return rewriting(mul=rule)(graph)


def forgets_the_sign_of_zero(graph):
    return rewriting(add=lambda a, b: a if type(b) is float and b == 0 else a + b)(graph)


def divides_by_a_product(graph):
    def rule(a, b):
        return a * (1 / b) if type(b) is float else a / b

    return rewriting(div=rule)(graph)


def forgets_phases(graph):
    found = rebuild(graph)
    nodes: dict[Node, Node] = {}
    for node in found.nodes:
        nodes[node] = copy.copy(node)
        nodes[node].args = map_nodes(node.args, nodes.__getitem__)
        nodes[node].phase = Phase.FORWARD
    return Graph(tuple(nodes.values()), graph.name)


WRONG = [
    (gives_nothing, "G1", "it gives None, expected a Graph"),
    (stops_at_relu, "G1", "KeyError: 'relu'"),
    (renames_in_place, "G2", "it changes the graph that it is given"),
    (reroles_in_place, "G2", "it changes the graph that it is given"),
    (guesses_metas, "G3", "GraphError: it: the meta of"),
    (writes_a_copy, "G3", "is not pure, expected a functional graph"),
    (without_last_result, "G4", "changed the roles of the outputs"),
    (turned_inputs, "G4", "changed the inputs"),
    (forgets_phases, "G4", "needs a tangent and is of the forward"),
    (scales_products, "G5", "expected float32"),
    (forgets_nan, "G5", "expected float32"),
    (forgets_the_sign_of_zero, "G5", "expected float32"),
    (divides_by_a_product, "G5", "expected float32"),
    (merges_results, "G6", "shares memory with result 0, expected as before"),
    (drops_clones, "G6", "shares memory with input"),
    (Counting(), "G7", "it gives two results for the same graph"),
    (adds_a_zero, "G8", "it changes its own result"),
]


@pytest.mark.parametrize(("wrong", "law", "text"), WRONG, ids=lambda v: getattr(v, "__name__", v))
def test_a_wrong_pass_is_rejected_by_the_law_that_is_meant_for_it(wrong, law, text):
    with pytest.raises(laws.LawError) as caught:
        laws.check_pass(wrong, idempotent=True)
    assert law == caught.value.law
    assert str(caught.value).startswith(f"{law} ({claim(law)}): pass {wrong.__name__!r} on ")
    assert text in caught.value.report


def claim(law):
    (found,) = [each.claim for each in laws.PASS_LAWS if each.name == law]
    return found


def test_every_law_of_passes_has_a_wrong_pass():
    assert {law.name for law in laws.PASS_LAWS} == {law for _, law, _ in WRONG}


def test_a_pass_that_loses_a_write_is_found_in_imperative_graphs():
    def forgets_writes(graph):
        return rewriting(mul_=lambda a, b: a)(graph)

    graphs = laws.graphs("capture")
    with pytest.raises(
        laws.LawError, match="^G[56] .* on (written|row_written) of 2x[23], capture"
    ):
        laws.check_pass(forgets_writes, graphs, imperative=True)


def test_the_smallest_graph_that_fails_is_named():
    def on_several_products(graph):
        if sum(node.target.name == "mul" for node in graph.calls) < 2:
            return graph
        return scales_products(graph)

    with pytest.raises(laws.LawError) as caught:
        laws.check_pass(on_several_products)
    found = caught.value.case
    smaller = [c for c in laws.graphs() if len(c.graph) < len(found.graph)]
    assert laws.check_pass(on_several_products, smaller).cases == len(smaller)
    assert "before:\ndef " in caught.value.report
    assert "\nafter:\ndef " in caught.value.report


# ------------------------------------------------------------------------------------ own graphs
def test_own_graphs_with_own_inputs():
    build = Builder("own")
    x = build.placeholder(tensor_meta((2,)))
    case = laws.GraphCase("mine", build.finish([x.exp() * 2.0]), (np.float32([0, 1]),))
    assert 1 == laws.check_pass(add_instead_of_doubling, [case]).cases
    assert 1 == laws.check_pass(add_instead_of_doubling, [case.graph]).cases
    (inputs,) = given(case)
    (result,) = run(case.graph, inputs.fresh()).results
    assert [2.0, pytest.approx(2 * np.e, rel=1e-6)] == result.array.tolist()


@pytest.mark.parametrize(
    ("graphs", "text"),
    [
        ([], "laws: there are no graphs, expected at least one"),
        ([3], "laws: a graph is 3, expected a Graph or a GraphCase"),
    ],
)
def test_what_is_no_graph_is_refused(graphs, text):
    with pytest.raises(al.ArgumentError) as caught:
        laws.check_pass(rebuild, graphs)
    assert text == str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ((), "are none, expected float32[2] as its inputs"),
        ((np.ones(3, np.float32),), "are float32[3], expected float32[2] as its inputs"),
        ((np.ones(2),), "are float64[2], expected float32[2] as its inputs"),
    ],
)
def test_arrays_that_are_no_inputs_of_the_graph_are_refused(arrays, text):
    build = Builder("own")
    x = build.placeholder(tensor_meta((2,)))
    with pytest.raises(al.ArgumentError) as caught:
        laws.check_pass(rebuild, [laws.GraphCase("mine", build.finish([x * 2.0]), arrays)])
    assert f"laws: the arrays of 'mine' {text}" == str(caught.value)


def test_an_unknown_stage_is_refused():
    with pytest.raises(al.ArgumentError, match="^laws: the stage is 'sixth', expected capture, jo"):
        laws.graphs("sixth")


def test_a_graph_that_cannot_be_run_says_so():
    build = Builder("lost")
    x = build.placeholder(tensor_meta((2, 2)))
    graph = build.finish([al.linalg.cholesky(x)])
    with pytest.raises(laws.LawError, match="^G5 .*: the graph itself cannot be run: .*, expected"):
        laws.check_pass(rebuild, [graph])
