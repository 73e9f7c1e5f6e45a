"""The verifier accepts what builders make, and refuses each planted violation by its number."""

import re
import time

import attrs
import numpy as np
import pytest
from hypothesis import given

import aotlite.ir.ops  # noqa: F401  (fills the op table)
from aotlite.ir import dtypes
from aotlite.ir.errors import GraphError, ShapeError
from aotlite.ir.graph import Constant, Graph, Node
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.role import Argument, Output
from aotlite.ir.graph.verify import verify
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS
from aotlite.ir.ops.structure import GETITEM
from tests.ir.helpers import strategies

PAIR = tensor_meta((2,))
MUL, FULL, VIEW, CAT = (OPS[name] for name in ("mul", "full", "view", "cat"))
CLAMP, HARDTANH = OPS["clamp"], OPS["hardtanh"]


@given(strategies.graphs())
def test_verifier_accepts_what_a_builder_makes_and_counts_what_is_impure(graph):
    impure = sum(node.target.name in ("mul_", "t_") for node in graph.calls)
    assert impure == verify(graph)


@given(strategies.graphs(impure=False))
def test_verifier_finds_pure_graphs_functional(graph):
    assert 0 == verify(graph, functional=True)


# ------------------------------------------------------------------------------------- violations
def parts():
    """(x, mul, output): the nodes of a sound graph."""
    build = Builder("sound")
    x = build.placeholder(PAIR)
    return build.finish([x * 2.0]).nodes


def call(op, *args, meta=PAIR):
    return Node("call", op, args, meta=meta)


def output(*values, roles=None):
    return Node("output", "output", (values,), role=roles or tuple(map(Output, range(len(values)))))


def refused(nodes, **options):
    """(message, notes) of the refusal of these nodes."""
    with pytest.raises(GraphError) as caught:
        verify(Graph(tuple(nodes), "planted"), stage="stage 5", **options)
    return str(caught.value), caught.value.__notes__


def split_of(x):
    """A node with two results."""
    return call(OPS["split"], x, 1, 0, meta=(tensor_meta((1,)),) * 2)


def wrong_kinds():
    x, mul, out = parts()
    other = Node("placeholder", Argument(1), meta=PAIR, role=Argument(1))
    yield (
        "VER-1",
        "the kind of a node is 'call_module', expected placeholder, get_attr, call or output",
        (x, Node("call_module", MUL, (x, x), meta=PAIR), output(x)),
    )
    yield "VER-1", "the number of output nodes is 2, expected one at the end", (x, output(x), out)
    yield (
        "VER-1",
        "the target of a call is 'mul', expected an op",
        (x, call("mul", x, x), output(x)),
    )
    yield (
        "VER-1",
        "the output holds no tuple, expected values and their roles",
        (x, Node("output", "output", (x,), role=(Output(0),))),
    )
    yield (
        "VER-2",
        "placeholder arg_1 follows another node, expected all in front",
        (x, mul, other, out),
    )


def wrong_roles():
    x, _, _ = parts()
    yield (
        "VER-3",
        "the role of an input is None, expected a role",
        (Node("placeholder", None, meta=PAIR), output()),
    )
    yield (
        "VER-3",
        "the role arg_0 is that of two inputs, expected one",
        (x, Node("placeholder", Argument(0), meta=PAIR, role=Argument(0)), output()),
    )
    yield (
        "VER-3",
        "the role output_0 is that of two outputs, expected one",
        (x, output(x, x, roles=(Output(0), Output(0)))),
    )
    yield (
        "VER-3",
        "the number of output roles is 1, expected 2",
        (x, output(x, x, roles=(Output(0),))),
    )


def wrong_order():
    x, mul, out = parts()
    yield "VER-4", "node mul is there twice, expected once", (x, mul, mul, out)
    yield (
        "VER-4",
        "an operand of mul is mul_1, which is not defined before, expected an earlier node",
        (x, call(MUL, mul, x), mul, out),
    )
    yield (
        "VER-4",
        "an operand of mul is a node of another graph, expected an earlier node",
        (mul, out),
    )
    yield (
        "VER-4",
        "an operand of cat is a node of another graph, expected an earlier node",
        (x, call(CAT, (x, mul), 0, meta=tensor_meta((4,))), output(x)),
    )
    yield (
        "VER-4",
        "an operand of the output is a node of another graph, expected an earlier node",
        (x, output(mul)),
    )


def wrong_arguments():
    x, _, _ = parts()
    yield (
        "VER-5",
        f"the number of arguments of mul is 1, expected 2: {MUL.schema}",
        (x, call(MUL, x), output(x)),
    )
    yield (
        "VER-5",
        "argument 'self' of clamp is 1.0, expected Tensor in canonical form",
        (x, call(CLAMP, 1.0, None, None), output(x)),
    )
    yield (
        "VER-5",
        "argument 'min_val' of hardtanh is arg_0, expected Scalar in canonical form",
        (x, call(HARDTANH, x, x, 1), output(x)),
    )
    yield (
        "VER-5",
        "argument 'other' of mul is '2', expected Tensor|Scalar in canonical form",
        (x, call(MUL, x, "2"), output(x)),
    )
    yield (
        "VER-5",
        "argument 'size' of view is [2], expected int[] in canonical form",
        (x, call(VIEW, x, [2]), output(x)),
    )
    yield (
        "VER-5",
        "argument 'size' of view is (2.0,), expected int[] in canonical form",
        (x, call(VIEW, x, (2.0,)), output(x)),
    )
    yield (
        "VER-5",
        "argument 'size' of view is 2, expected int[] in canonical form",
        (x, call(VIEW, x, 2), output(x)),
    )
    yield (
        "VER-5",
        "argument 'tensors' of cat is (arg_0, 2.0), expected Tensor[] in canonical form",
        (x, call(CAT, (x, 2.0), 0), output(x)),
    )
    yield (
        "VER-5",
        "the number of arguments of arg_0 is 1, expected 0",
        (Node("placeholder", Argument(0), (1,), meta=PAIR, role=Argument(0)), output()),
    )


def wrong_numbers_of_results():
    x, _, _ = parts()
    split = split_of(x)
    yield (
        "VER-5",
        "argument 'self' of mul is split, expected Tensor in canonical form",
        (x, split, call(MUL, split, 2.0), output(x)),
    )
    yield (
        "VER-5",
        "argument 'self' of getitem is arg_0, expected Tensor in canonical form",
        (x, call(GETITEM, x, 0), output(x)),
    )
    yield "VER-5", "an output is a str, expected a node, a number or None", (x, output("x"))
    yield (
        "VER-5",
        "output split has several results, expected one of them",
        (x, split, output(split)),
    )


def wrong_metas():
    x, _, _ = parts()
    split, full = split_of(x), (FULL, (2,), 1.0, None, None)
    yield (
        "VER-6",
        "the meta of mul is f32[3], expected f32[2]",
        (x, call(MUL, x, 2.0, meta=tensor_meta((3,))), output(x)),
    )
    yield (
        "VER-6",
        "the meta of mul is i64[2], expected f32[2]",
        (x, call(MUL, x, 2.0, meta=tensor_meta((2,), dtype=dtypes.int64)), output(x)),
    )
    yield (
        "VER-6",
        "the meta of mul is f32[2][2], expected f32[2]",
        (x, call(MUL, x, 2.0, meta=tensor_meta((2,), (2,))), output(x)),
    )
    yield (
        "VER-6",
        "the meta of getitem is f32[2], expected f32[1]",
        (x, split, call(GETITEM, split, 1), output(x)),
    )
    yield (
        "VER-6",
        "the meta rule of view refuses: view: shape is (3,), expected a shape of 2 elements",
        (x, call(VIEW, x, (3,)), output(x)),
    )
    yield (
        "VER-6",
        "the meta of arg_0 is None, expected a tensor's",
        (Node("placeholder", Argument(0), role=Argument(0)), output()),
    )
    yield (
        "VER-6",
        "the meta of full is f32[2], expected f64[2]",
        (call(*full[:3], dtypes.float64, None), output()),
    )


def wrong_constants():
    w, v = (Node("get_attr", Constant("w", np.ones(2)), meta=PAIR) for _ in range(2))
    yield "VER-7", "the constant 'w' has two values, expected one value a name", (w, v, output(w))
    yield (
        "VER-7",
        "the target of a get_attr is 'w', expected a Constant",
        (Node("get_attr", "w", meta=PAIR), output()),
    )


def test_arguments_are_checked_again_where_their_types_do_not_tell():
    x, _, _ = parts()
    sound, wrong = call(VIEW, x, (2,)), call(VIEW, x, (2.0,))
    text, _ = refused((x, sound, wrong, output(sound)))
    assert "argument 'size' of view is (2.0,), expected int[] in canonical form" in text


PLANTED = [
    *wrong_kinds(),
    *wrong_roles(),
    *wrong_order(),
    *wrong_arguments(),
    *wrong_numbers_of_results(),
    *wrong_metas(),
    *wrong_constants(),
]


@pytest.mark.parametrize(
    ("rule", "message", "nodes"), PLANTED, ids=[text for _, text, _ in PLANTED]
)
def test_verifier_refuses(rule, message, nodes):
    text, notes = refused(nodes)
    assert f"stage 5: {message}" == text
    assert f"rule: {rule} (specs/verify.md)" == notes[-1]


def test_every_rule_has_a_planted_violation():
    assert {f"VER-{number}" for number in range(1, 8)} == {rule for rule, _, _ in PLANTED}


def test_graph_without_output_is_refused_when_made():
    x, mul, _ = parts()
    with pytest.raises(
        GraphError, match="graph planted: it has no output node, expected one at the end"
    ):
        Graph((x, mul), "planted")


def test_error_carries_node_surroundings_and_the_users_line():
    x, mul, _out = parts()
    wrong = attrs.evolve(mul, meta=tensor_meta((3,)), location=(parts.__code__, 2))
    _, notes = refused((x, wrong, output(wrong)))
    line = parts.__code__.co_firstlineno
    assert "node: mul = ops.mul(arg_0, 2.0)" == notes[0]
    assert """\
in graph planted:
  arg_0: "f32[2]"
> mul = ops.mul(arg_0, 2.0)  # f32[3]
  return (mul,)""" == notes[1]
    assert re.fullmatch(
        rf'  File ".*test_verify.py", line {line + 2}, in parts\n    build = .*', notes[2]
    )


def test_refusal_of_a_meta_rule_has_the_rules_own_error_as_cause():
    x, _, _ = parts()
    with pytest.raises(GraphError) as caught:
        verify(Graph((x, call(VIEW, x, (3,)), output(x))))
    assert isinstance(caught.value.__cause__, ShapeError)


def test_lint_is_verify():
    x, mul, out = parts()
    Graph((x, mul, out)).lint()
    with pytest.raises(GraphError, match="graph: node mul is there twice"):
        Graph((x, mul, mul, out)).lint()


# ---------------------------------------------------------------------------------------- purity
def writing(steps):
    build = Builder()
    x, y = build.placeholder(PAIR), build.placeholder(PAIR)
    steps(x, y)
    return build.finish([y])


@pytest.mark.parametrize(
    ("steps", "line"),
    [
        (lambda x, y: x.mul_(2.0), "ops.mul_(arg_0, 2.0)"),
        (lambda x, y: x.unsqueeze_(0), "ops.unsqueeze_(arg_0, 0)"),
        (lambda x, y: x.builder.call(OPS["rand"], ((2,), None, None)), "ops.rand((2,))"),
        (lambda x, y: x.copy_(y), "ops.copy_(arg_0, arg_1)"),
    ],
)
def test_functional_graph_holds_no_op_that_writes_moves_or_draws(steps, line):
    graph = writing(steps)
    assert 1 == verify(graph)
    text, notes = refused(graph.nodes, functional=True)
    assert text.startswith("stage 5: ") and text.endswith(
        f"{line} is not pure, expected a functional graph (FUN-25)"
    )
    assert "rule: VER-8 (specs/verify.md)" == notes[-1]


def test_closing_copies_are_allowed_where_the_caller_says_so():
    graph = writing(lambda x, y: x.copy_(y))
    assert 1 == verify(graph, functional=True, closing_copies=True)


@pytest.mark.parametrize(
    "steps",
    [
        lambda x, y: (x * y).copy_(y),
        lambda x, y: (x.copy_(y), x.copy_(y)),
        lambda x, y: x.mul_(y),
    ],
    ids=["into an intermediate", "twice", "no copy"],
)
def test_closing_copies_go_once_into_an_input(steps):
    text, _ = refused(writing(steps).nodes, functional=True, closing_copies=True)
    assert text.endswith("is not pure, expected a functional graph (FUN-25)")


# ------------------------------------------------------------------------------------------ size
def test_long_chain_is_verified_in_linear_time():
    """Generous: about 0.1 s on an idle core; a quadratic pass would take minutes."""
    build = Builder()
    x = build.placeholder(PAIR)
    for _ in range(50_000):
        x = -x
    graph = build.finish([x])
    start = time.perf_counter()
    verify(graph, functional=True)
    assert time.perf_counter() - start < 10
