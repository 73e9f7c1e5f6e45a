"""Edits: FX's methods on a copy, checked against rebuilding; the original never changes."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotlite.ir.errors import ArgumentError, GraphError, ShapeError
from aotlite.ir.graph import Node, Phase
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.compare import structurally_equal
from aotlite.ir.graph.edit import GraphEdit
from aotlite.ir.graph.role import Argument, Gradient, Output, Primal
from aotlite.ir.graph.verify import verify
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS
from aotlite.ir.run.interpreter import run_graph
from tests.ir.helpers import strategies

NEG, MUL, EXP = OPS["neg"], OPS["mul"], OPS["exp"]
PAIR = tensor_meta((2,))


def chain():
    """arg_0 -> neg -> exp -> output, with a second input that nobody uses."""
    build = Builder("chain")
    x = build.placeholder(PAIR)
    build.placeholder(PAIR)
    return build.finish([(-x).exp()])


# ------------------------------------------------------------------------------------ properties
@given(strategies.graphs())
def test_edit_without_changes_gives_an_equal_graph_of_new_nodes(graph):
    again = graph.edit().graph()
    assert structurally_equal(graph, again) is None
    assert not set(graph.nodes) & set(again.nodes)
    assert [x.origin or x for x in graph] == [y.origin for y in again]


@given(strategies.graphs(), st.data())
def test_users_follow_every_edit(graph, data):
    """Afterwards they are those of the finished graph, which are counted from nothing."""
    edit = graph.edit()
    for _ in range(data.draw(st.integers(0, 6))):
        _random_edit(edit, data)
    users = {node: set(edit.users[node]) for node in edit.nodes}
    done = edit.graph()
    assert {node: set(found) for node, found in done.users.items()} == users
    verify(done)


def _random_edit(edit, data):
    tensors = [node for node in edit.nodes if node.op != "output" and type(node.meta) is not tuple]
    old = data.draw(st.sampled_from(tensors))
    with edit.inserting_after(old if old.op != "placeholder" else _last_placeholder(edit)):
        new = edit.call(OPS["clone"], (old,))
    edit.replace_all_uses_with(old, new, delete_user_cb=lambda user: _is_later(edit, user, new))
    if data.draw(st.booleans()):
        edit.eliminate_dead_code()


def _last_placeholder(edit):
    return [node for node in edit.nodes if node.op == "placeholder"][-1]


def _is_later(edit, user, new):
    nodes = list(edit.nodes)
    return nodes.index(user) > nodes.index(new)


@given(strategies.graphs(impure=False))
def test_dead_code_is_what_no_output_needs(graph):
    edit = graph.edit()
    erased = edit.eliminate_dead_code()
    done = edit.graph()
    assert len(graph) - erased == len(done)
    needed = set(done.output_node.inputs())
    for node in reversed(done.nodes):
        if node in needed:
            needed.update(node.inputs())
    assert {n for n in done if n.op not in ("placeholder", "output")} == needed - set(
        done.placeholders
    )
    inputs = [np.ones(n.meta.shape, n.meta.dtype.numpy) for n in graph.placeholders]
    for a, b in zip(run_graph(graph, *inputs), run_graph(done, *inputs), strict=True):
        np.testing.assert_array_equal(a, b)


@given(strategies.graphs())
def test_dead_code_elimination_keeps_inputs_and_what_is_not_pure(graph):
    edit = graph.edit()
    edit.eliminate_dead_code()
    done = edit.graph()
    assert verify(graph) == verify(done)
    assert len(graph.placeholders) == len(done.placeholders)
    assert 0 == done.edit().eliminate_dead_code()


@given(strategies.graphs())
def test_editing_never_changes_the_graph_edited(graph):
    text = graph.code
    edit = graph.edit()
    edit.set_outputs([], [])
    edit.eliminate_dead_code()
    for node in edit.nodes:
        if node.op == "placeholder" and not edit.users[node]:
            edit.erase(node)
    edit.graph()
    assert text == graph.code


# ---------------------------------------------------------------------------------------- methods
def test_nodes_of_the_original_stand_for_their_copies():
    graph = chain()
    edit = graph.edit()
    neg = graph.calls[0]
    assert edit.find(neg) is not neg and neg is edit.find(neg).origin
    assert edit.find(edit.find(neg)) is edit.find(neg)
    assert len(graph) == len(edit) and edit.nodes[-1] is edit.output_node


def test_nodes_are_inserted_in_the_order_in_which_they_are_made():
    graph = chain()
    edit = graph.edit()
    x, neg = graph.nodes[0], graph.calls[0]
    with edit.inserting_before(neg):
        edit.call(MUL, (x, 1.0))
        with edit.inserting_after(neg):
            edit.call(MUL, (neg, 2.0))
            edit.call(MUL, (neg, 3.0))
        edit.call(MUL, (x, 4.0))
    edit.call(MUL, (x, 5.0))
    calls = edit.graph().calls
    assert ["mul", "mul", "neg", "mul", "mul", "exp", "mul"] == [c.target.name for c in calls]
    assert [1.0, 4.0, 2.0, 3.0, 5.0] == [c.args[1] for c in calls if c.target is MUL]


def test_insertion_point_survives_the_erasure_of_its_node():
    graph = chain()
    edit = graph.edit()
    exp = graph.calls[1]
    with edit.inserting_before(exp):
        edit.set_outputs([graph.calls[0]], [Output(0)])
        edit.erase(exp)
        edit.call(MUL, (graph.nodes[0], 2.0))
    edit.lint()
    assert ["neg", "mul"] == [node.target.name for node in edit.graph().calls]


def test_outer_insertion_point_survives_an_erasure_in_an_inner_one():
    graph = chain()
    edit = graph.edit()
    neg, exp = graph.calls
    with edit.inserting_before(exp):
        with edit.inserting_before(neg):
            edit.set_outputs([neg], [Output(0)])
            edit.erase(exp)
        edit.call(MUL, (neg, 2.0))
    edit.lint()
    assert ["neg", "mul"] == [node.target.name for node in edit.graph().calls]


def test_call_takes_arguments_as_python_does_and_records_of_its_neighbor():
    build = Builder()
    x = build.placeholder(PAIR)
    build.source = Node("call", None, phase=Phase.BACKWARD, sequence=3)
    graph = build.finish([-x])
    edit = graph.edit()
    with edit.inserting_after(graph.calls[0]):
        node = edit.call(OPS["full"], ([2], 1.0), {"dtype": None})
    assert ((2,), 1.0, None, None) == node.args
    assert (Phase.BACKWARD, 3) == (node.phase, node.sequence)


def test_call_takes_lists_of_nodes():
    graph = chain()
    edit = graph.edit()
    node = edit.call(OPS["cat"], ([graph.nodes[0], graph.calls[0]],))
    edit.set_outputs([node], [Output(0)])
    edit.graph().lint()


def test_placeholders_go_behind_the_others():
    graph = chain()
    edit = graph.edit()
    edit.placeholder(PAIR, Primal(0))
    edit.erase(graph.nodes[1])
    edit.placeholder(PAIR, Primal(1))
    done = edit.graph()
    done.lint()
    assert [Argument(0), Primal(0), Primal(1)] == [node.role for node in done.placeholders]


def test_first_placeholder_goes_in_front():
    build = Builder()
    graph = build.finish([build.constant("w", np.ones(2), PAIR)])
    edit = graph.edit()
    edit.placeholder(PAIR, Primal(0))
    done = edit.graph()
    done.lint()
    assert "placeholder" == done.nodes[0].op


def test_replacement_spares_the_new_node_and_whom_the_callback_spares():
    graph = chain()
    edit = graph.edit()
    x, neg = graph.nodes[0], graph.calls[0]
    with edit.inserting_before(neg):
        half = edit.call(MUL, (x, 0.5))
    assert [edit.find(neg)] == edit.replace_all_uses_with(x, half)
    assert [] == edit.replace_all_uses_with(half, x, delete_user_cb=lambda user: False)
    edit.replace_input_with(neg, half, x)
    assert edit.find(x) is edit.find(neg).args[0]
    assert [half] == [node for node in edit.nodes if not edit.users[node] and node.target is MUL]


def test_metas_follow_the_operands():
    build = Builder()
    x, y = build.placeholder(PAIR), build.placeholder(tensor_meta((4,)))
    first, second = (-x).split(1)
    graph = build.finish([first.exp() * second])
    edit = graph.edit()
    edit.replace_all_uses_with(x.node, y.node)
    split = next(node for node in edit.nodes if node.target is OPS["split"])
    edit.set_outputs([split.args[0]], [Output(0)])
    done = edit.graph()
    done.lint()
    assert tensor_meta((4,)) is done.outputs[0].meta


def test_operands_that_do_not_fit_are_refused_with_the_node():
    build = Builder()
    x, y = build.placeholder(PAIR), build.placeholder(tensor_meta((3,)))
    z = build.placeholder(PAIR)
    graph = build.finish([x * z])
    edit = graph.edit()
    edit.replace_all_uses_with(x.node, y.node)
    with pytest.raises(ShapeError, match="shapes are") as caught:
        edit.lint()
    assert ["node: mul = ops.mul(arg_1, arg_2)"] == caught.value.__notes__


def test_outputs_are_set_with_their_roles():
    graph = chain()
    edit = graph.edit()
    edit.set_outputs([graph.nodes[0], None], [Output(0), Gradient(Primal(0))])
    done = edit.graph()
    assert (done.nodes[0], None) == done.outputs
    assert (Output(0), Gradient(Primal(0))) == done.output_roles


# ----------------------------------------------------------------------------------------- errors
def test_erase_names_the_users():
    graph = chain()
    with pytest.raises(ArgumentError, match="erase: neg has users exp, expected none"):
        graph.edit().erase(graph.calls[0])


def test_erase_refuses_the_output():
    graph = chain()
    with pytest.raises(ArgumentError, match="erase: the node is the output, expected another one"):
        graph.edit().erase(graph.output_node)


@pytest.mark.parametrize(
    "node", [chain().calls[0], Node("call", NEG)], ids=["other graph", "loose"]
)
def test_nodes_of_other_graphs_are_refused(node):
    with pytest.raises(ArgumentError, match=r"edit: <call neg: .*> is no node of graph chain"):
        chain().edit().erase(node)


def test_erased_nodes_are_refused():
    graph = chain()
    edit = graph.edit()
    edit.erase(graph.nodes[1])
    with pytest.raises(ArgumentError, match="is no node of graph chain, expected one"):
        edit.call(NEG, (graph.nodes[1],))


def test_inserting_after_the_output_is_refused():
    graph = chain()
    edit = graph.edit()
    with pytest.raises(ArgumentError, match="edit: inserting after the output"):
        with edit.inserting_after(graph.output_node):
            pass


def test_set_outputs_wants_a_role_an_output():
    graph = chain()
    with pytest.raises(ArgumentError, match="edit: the number of roles is 0, expected 1"):
        graph.edit().set_outputs([graph.nodes[0]], [])


@pytest.mark.parametrize(
    "change",
    [
        lambda edit: edit.call(NEG, (edit.nodes[0],)),
        lambda edit: edit.placeholder(PAIR, Primal(0)),
        lambda edit: edit.erase(edit.nodes[1]),
        lambda edit: edit.replace_all_uses_with(edit.nodes[0], edit.nodes[1]),
        lambda edit: edit.replace_input_with(edit.nodes[2], edit.nodes[0], edit.nodes[1]),
        lambda edit: edit.set_outputs([], []),
        lambda edit: edit.eliminate_dead_code(),
        lambda edit: edit.graph(),
    ],
)
def test_edit_ends_with_graph(change):
    edit = chain().edit()
    done = edit.graph()
    text = done.code
    with pytest.raises(
        ArgumentError, match=r"edit: the edit of graph chain has ended with graph\(\)"
    ):
        change(edit)
    assert text == done.code


def test_lint_finds_a_use_before_the_definition():
    graph = chain()
    edit = graph.edit()
    edit.replace_all_uses_with(graph.nodes[0], graph.calls[1])
    with pytest.raises(
        GraphError, match=r"edit: an operand of neg is exp, which is not defined before"
    ):
        edit.lint()


def test_failed_refusals_change_nothing():
    graph = chain()
    edit = graph.edit()
    with pytest.raises(ArgumentError):
        edit.erase(graph.calls[0])
    with pytest.raises(ShapeError):
        edit.call(OPS["view"], (graph.nodes[0], (3,)))
    assert structurally_equal(graph, edit.graph()) is None


# ------------------------------------------------------------------------------------------ size
def test_edits_of_a_long_chain_are_linear():
    """Each of 50,000 nodes is replaced and erased: about a second; a list would take minutes."""
    build = Builder()
    x = build.placeholder(PAIR)
    for _ in range(50_000):
        x = -x
    graph = build.finish([x])
    start = time.perf_counter()
    edit = GraphEdit(graph)
    for node in edit.nodes:
        if node.op == "call":
            with edit.inserting_before(node):
                edit.replace_all_uses_with(node, edit.call(EXP, node.args))
            edit.erase(node)
    edit.lint()
    assert 0 == edit.eliminate_dead_code()
    assert {EXP} == {node.target for node in edit.graph().calls}
    assert time.perf_counter() - start < 60
