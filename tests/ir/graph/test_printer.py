"""Printed graphs: what the text looks like, and that it is the graph."""

import ast
import builtins
import keyword
import math

import numpy as np
import pytest
from hypothesis import given

import aotlite as al
from aotlite.ir import dtypes
from aotlite.ir.arrays.device import CPU, Device
from aotlite.ir.errors import ArgumentError, FormatError
from aotlite.ir.graph import Node, Phase, node_names
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.compare import structurally_equal
from aotlite.ir.graph.node_text import excerpt, literal, role_text
from aotlite.ir.graph.role import (
    Gradient,
    Hidden,
    MutatedInput,
    Output,
    Primal,
    Saved,
    Tangent,
)
from aotlite.ir.graph.text.printer import code, readable, tabular
from aotlite.ir.graph.text.roles import parse_role
from aotlite.ir.graph.text.source import (
    function_from_source,
    graph_from_source,
    role_from_text,
)
from aotlite.ir.meta import tensor_meta
from aotlite.ir.meta.text import meta_from_text, meta_text
from aotlite.ir.op import OPS
from aotlite.ir.op.namespace import OpNamespace
from aotlite.ir.run.interpreter import run_graph
from tests.ir.helpers import strategies

ELSEWHERE = Device("cuda:1", CPU.arrays)


# ------------------------------------------------------------------------------------ properties
@pytest.mark.rules("LOG-3")
@given(strategies.graphs())
def test_printed_text_is_the_graph(graph):
    for text in (code(graph), readable(graph), readable(graph, frees=True)):
        again = graph_from_source(text, constants=graph.constants)
        assert structurally_equal(graph, again) is None
        assert phases(graph) == phases(again)
    assert code(graph) == code(again)


def phases(graph):
    return [node.phase for node in graph if node.op in ("call", "placeholder")]


@given(strategies.graphs())
def test_names_are_identifiers_that_shadow_nothing_the_text_uses(graph):
    names = list(graph.names.values())
    assert len(names) == len(set(names))
    for name in names:
        assert name.isidentifier() and not keyword.iskeyword(name)
        assert name not in ("ops", "complex")


@given(strategies.graphs())
def test_code_has_no_comment_and_readable_is_code_with_comments(graph):
    assert ast.dump(ast.parse(code(graph))) == ast.dump(ast.parse(readable(graph)))
    assert all(" # " not in line for line in code(graph).splitlines())


@given(strategies.graphs())
def test_table_has_a_row_a_node(graph):
    rows = tabular(graph).splitlines()
    assert 1 + len(graph) == len(rows)
    assert [node.op for node in graph] == [row.split()[0] for row in rows[1:]]


@given(strategies.metas())
def test_meta_text_tells_every_meta_apart(meta):
    """The text is exact where `repr` is not: strides of dimensions of size 1."""
    assert meta is meta_from_text(meta_text(meta))


def test_meta_text_shows_unusual_strides_of_contiguous_tensors():
    assert "f32[1][7]" == meta_text(tensor_meta((1,), (7,)))


def test_meta_text_names_the_device():
    meta = tensor_meta((2,), device=ELSEWHERE)
    assert "f32[2]@cuda:1" == meta_text(meta)
    assert meta is meta_from_text("f32[2]@cuda:1", devices={"cuda:1": ELSEWHERE})


@pytest.mark.parametrize(
    "role",
    [
        *strategies.INPUT_ROLES,
        *strategies.OUTPUT_ROLES,
        Gradient(Hidden(3)),
        Tangent(MutatedInput(Hidden(1))),
        Saved(2, 'it\'s "quoted"'),
    ],
    ids=str,
)
def test_role_text_is_read_back(role):
    assert repr(role) == repr(role_from_text(role_text(role)))


@pytest.mark.parametrize("text", ["primals", "primals_x", "primals_01", "tangents_7", "seed_1", ""])
def test_parse_role_refuses_what_no_role_prints(text):
    assert parse_role(text) is None


# --------------------------------------------------------------------------------------- literals
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "1"),
        (True, "True"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (math.nan, "ops.nan"),
        (-math.inf, "-ops.inf"),
        (complex(-0.0, 1.0), "complex(-0.0, 1.0)"),
        (complex(math.inf, math.nan), "complex(ops.inf, ops.nan)"),
        (None, "None"),
        ((), "()"),
        ((2,), "(2,)"),
        ((2, -1), "(2, -1)"),
        ("a'b\n", '"a\'b\\n"'),
        (dtypes.float32, "ops.float32"),
        (dtypes.bool_, "ops.bool_"),
        (CPU, 'ops.device("cpu")'),
    ],
)
def test_literal_is_text_that_evaluates_to_the_value(value, text):
    assert text == literal(value, {})
    back = eval(text, {"ops": OpNamespace(lambda op, args: None)})
    assert (type(value), repr(value)) == (type(back), repr(back))


# ---------------------------------------------------------------------------------------- goldens
def joint():
    """A small joint graph: source places, both phases, roles, strides, several results."""
    build = Builder("joint")
    x = build.placeholder(tensor_meta((4, 3)), Primal(0))
    w = build.placeholder(tensor_meta((4, 3), (1, 4)), Hidden(0, "model.w"))
    grad = build.placeholder(tensor_meta((2, 3)), Tangent(Output(0)))
    build.source = Node("call", None, location=(user_function.__code__, 2), sequence=5)
    half = x * 0.5
    first, _second = (half + w).split(2)
    build.source = Node("call", None, phase=Phase.BACKWARD)
    back = grad * grad.new_full((), math.nan)
    return build.finish(
        [first, w, back, None], [Output(0), Saved(0, "w"), Gradient(Primal(0)), Gradient(Hidden(0))]
    )


def user_function(x):
    return x * 0.5


FIRST_LINE = user_function.__code__.co_firstlineno


@pytest.mark.rules("LOG-3")
def test_readable_shows_metas_places_phases_and_roles():
    expected = f"""\
def joint(
    primals_0: "f32[4, 3]",
    hidden_0: "f32[4, 3][1, 4] = Hidden(index=0, place='model.w')",
    tangents_output_0: "f32[2, 3]",
) -> ("output_0", "Saved(index=0, name='w')", "grad_primals_0", "grad_hidden_0"):
    # test_printer.py:{FIRST_LINE + 1} in user_function: return x * 0.5
    mul = ops.mul(primals_0, 0.5)  # f32[4, 3]
    add = ops.add(mul, hidden_0)  # f32[4, 3]
    split = ops.split(add, 2, 0)  # (f32[2, 3], f32[2, 3])
    getitem = split[0]  # f32[2, 3]
    getitem_1 = split[1]  # f32[2, 3]
    ops.phase("backward")
    full = ops.full((), ops.nan, dtype=ops.float32, device=ops.device("cpu"))  # f32[]
    mul_1 = ops.mul(tangents_output_0, full)  # f32[2, 3]
    return (getitem, hidden_0, mul_1, None)  # output_0, saved_w, grad_primals_0, grad_hidden_0"""
    assert expected == str(joint())


def test_frees_drop_each_value_after_its_last_use():
    build = Builder()
    x = build.placeholder(tensor_meta((2,)))
    y = x * x
    y.exp()
    graph = build.finish([x + y])
    assert """\
def graph(arg_0: "f32[2]"):
    mul = ops.mul(arg_0, arg_0)
    exp = ops.exp(mul); exp = None
    add = ops.add(arg_0, mul); arg_0 = mul = None
    return (add,)""" == code(graph, frees=True)


def test_long_returns_have_a_line_an_output():
    build = Builder()
    x = build.placeholder(tensor_meta((2,)))
    graph = build.finish([x] * 12)
    assert ["    return (", "        arg_0,  # output_0"] == readable(graph).splitlines()[1:3]


def test_tabular_aligns_columns():
    build = Builder()
    x = build.placeholder(tensor_meta((2,)), Primal(0))
    build.source = Node("call", None, sequence=3)
    assert """\
opcode       name       target  args            meta    seq  role
placeholder  primals_0                          f32[2]       primals_0
call         mul        mul     primals_0, 2.0  f32[2]  3
output       output             mul, None                    output_0, grad_primals_0""" == tabular(
        build.finish([x * 2.0, None], [Output(0), Gradient(Primal(0))])
    )


def test_names_that_the_text_uses_are_numbered():
    build = Builder()
    x = build.placeholder(tensor_meta((2,)))
    w = build.constant("ops", np.ones(2), tensor_meta((2,)))
    v = build.constant("complex", np.ones(2), tensor_meta((2,)))
    graph = build.finish([x * w * v])
    assert ["arg_0", "ops_1", "complex_1", "mul", "mul_1", "output"] == list(graph.names.values())


def test_names_of_a_node_do_not_depend_on_the_nodes_after_it():
    graph = joint()
    assert list(node_names(graph.nodes[:6]).values()) == list(graph.names.values())[:6]


def test_excerpt_marks_the_node_between_its_neighbors():
    graph = joint()
    assert """\
  mul = ops.mul(primals_0, 0.5)  # f32[4, 3]
> add = ops.add(mul, hidden_0)  # f32[4, 3]
  split = ops.split(add, 2, 0)  # (f32[2, 3], f32[2, 3])""" == excerpt(
        graph, graph.calls[1], context=1
    )


# ------------------------------------------------------------------------------------ the source
def test_text_computes_with_any_call():
    """The same text runs on arrays, as it will on tensors."""
    build = Builder("affine")
    x = build.placeholder(tensor_meta((2,)), Primal(0))
    w = build.constant("w", np.float32([3, 4]), tensor_meta((2,)))
    graph = build.finish([x * w + 1.0])
    table = {"mul": np.multiply, "add": np.add}
    ops = OpNamespace(lambda op, args: table[op.name](*args), {"w": ArrayWithMeta([3.0, 4.0])})
    (result,) = function_from_source(graph.code, ops)(ArrayWithMeta([1.0, 2.0]))
    np.testing.assert_array_equal([4.0, 9.0], result)
    np.testing.assert_array_equal(run_graph(graph, np.float32([1, 2]))[0], result)


class ArrayWithMeta(np.ndarray):
    """Schemas take anything with a `meta` for a tensor."""

    meta = None

    def __new__(cls, values):
        return np.asarray(values).view(cls)


def test_text_computes_on_tensors_with_nothing_but_ops():
    """Both phases, and each literal that Python lacks."""
    build = Builder("each")
    x = build.placeholder(tensor_meta((2,)), Primal(0))
    low = x.clamp(-math.inf, 1.5).cast(dtypes.float64)
    build.phase = Phase.BACKWARD
    part = (x > 0).where(low, math.nan) * complex(0.0, math.inf)
    hole = x.new_full((2,), True, dtype=dtypes.bool_)
    graph = build.finish([part, hole, x.cast(dtypes.float64) + low])
    for text in (graph.code, str(graph)):
        exec(text, scope := {"ops": al.ops})
        found = scope["each"](al.tensor([1.0, 2.0]))
        wanted = run_graph(graph, np.float32([1, 2]))
        assert list(map(repr, [w.tolist() for w in wanted])) == [repr(f.tolist()) for f in found]


def test_phase_is_one_of_two():
    with pytest.raises(ArgumentError, match="phase: name is 'sideways', expected 'forward' or 'ba"):
        al.ops.phase("sideways")


def test_op_namespace_suggests_names():
    with pytest.raises(ArgumentError, match=r"ops: 'mull' is not an op; did you mean mul"):
        OpNamespace(lambda op, args: None).mull()


def test_op_namespace_takes_every_op_by_name():
    ops = OpNamespace(lambda op, args: op)
    assert all(hasattr(ops, name) for name in OPS)
    assert not hasattr(ops, "__len__")


def test_missing_constant_is_named():
    build = Builder()
    w = build.constant("w", np.ones(2), tensor_meta((2,)))
    text = build.finish([-w]).code
    with pytest.raises(
        ArgumentError, match="constant: name is 'w', expected one of those given: none"
    ):
        graph_from_source(text)


def test_constant_is_the_object_given():
    value = np.ones(2)
    build = Builder()
    graph = build.finish([-build.constant("w", value, tensor_meta((2,)))])
    again = graph_from_source(graph.code, constants={"w": value})
    assert value is again.nodes[0].target.value


def test_unknown_device_is_named():
    with pytest.raises(
        ArgumentError, match="device: name is 'tpu', expected one of those given: cpu"
    ):
        meta_from_text("f32[2]@tpu")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(:", "source: the text has a syntax error .*, expected Python"),
        ("x = 1", "source: the text defines 0 functions, expected one"),
        ("def f(arg_0): return (arg_0,)", "source: the meta is '', expected one such as"),
        ('def f(x: "f32[2]"): return (x,)', "source: the role is 'x', expected one such as"),
    ],
)
def test_source_refuses_other_text(text, message):
    with pytest.raises(FormatError, match=message):
        graph_from_source(text)


def test_source_takes_text_written_by_hand():
    graph = graph_from_source('def f(arg_0: "f32[2]"):\n    return ops.exp(arg_0 * 2.0)')
    assert ["mul", "exp"] == [node.target.name for node in graph.calls]
    assert graph.calls[1:] == graph.outputs


def test_reserved_words_hold_pythons_constants():
    for name in ("None", "True", "False"):
        assert hasattr(builtins, name) or keyword.iskeyword(name)
        build = Builder()
        w = build.constant(name, np.ones(2), tensor_meta((2,)))
        graph = build.finish([-w])
        assert (
            structurally_equal(graph, graph_from_source(graph.code, constants=graph.constants))
            is None
        )


def test_a_number_too_long_for_digits_is_printed_and_read_back():
    for number in (10**5000, -(10**5000), 2**9999, 7):
        assert number == ast.literal_eval(literal(number, {}))
