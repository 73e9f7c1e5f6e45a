"""The interpreter against NumPy, its hooks, and transforms that rebuild graphs."""

import re
import time

import numpy as np
import pytest
from hypothesis import given

from aotlite.ir import dtypes
from aotlite.ir.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from aotlite.ir.graph import Node
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.compare import structurally_equal
from aotlite.ir.graph.verify import verify
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.run.interpreter import ArrayValue, Interpreter, array_value, call_arrays, run_graph
from aotlite.ir.run.transform import Transformer
from tests.ir.helpers import strategies

FLOAT64 = strategies.st.just(dtypes.float64)

# What the ops of the random graphs mean, said a second time in NumPy.
MEANING = {
    "neg": lambda a: -a,
    "logical_not": lambda a: ~a,
    "mul": lambda a, b: a * b,
    "add": lambda a, b: a + b,
    "eq": lambda a, b: np.equal(a, b),
    "where": lambda c, a, b: np.where(c, a, b),
    "cast": lambda a, dtype: a.astype(dtype.numpy),
    "permute": lambda a, dims: a.transpose(dims),
    "select": lambda a, dim, index: a.take(index, axis=dim),
    "slice": lambda a, dim, start, end, step: a[start:end:step],
    "unsqueeze": lambda a, dim: np.expand_dims(a, dim),
    "restride": lambda a, stride: a.copy(),
    "split": lambda a, size, dim: [a[i : i + size] for i in range(0, len(a), size)],
    "full": lambda size, value, dtype, device: np.full(size, value, dtype.numpy),
}


def small_integers(graph):
    """An input for each placeholder; products of a few of these are exact in float64."""
    return [
        (np.arange(node.meta.numel) % 5 - 2).astype(node.meta.dtype.numpy).reshape(node.meta.shape)
        for node in graph.placeholders
    ]


# ------------------------------------------------------------------------------------ properties
@given(strategies.graphs(impure=False, numbers=strategies.SMALL, dtypes_from=FLOAT64, most=8))
def test_interpreter_computes_what_numpy_computes(graph):
    inputs = small_integers(graph)
    meaning = Interpreter(
        graph,
        lambda op, args: MEANING[op.name](*args),
        constant=lambda value, meta: value.astype(meta.dtype.numpy),
    )
    with np.errstate(all="ignore"):
        expected = meaning.run(*inputs)
    for want, got in zip(expected, run_graph(graph, *inputs), strict=True):
        np.testing.assert_array_equal(want, got)


class StrideCheck(Interpreter):
    """Compares each value with the meta of its node."""

    def run_node(self, node):
        value = super().run_node(node)
        if node.op != "output" and type(node.meta) is not tuple:
            assert node.meta is value.meta
            array = value.array
            assert (node.meta.shape, node.meta.dtype.numpy) == (array.shape, array.dtype)
            steps = tuple(step // array.itemsize for step in array.strides)
            assert all(
                want == got
                for want, got, size in zip(node.meta.stride, steps, array.shape, strict=True)
                if size > 1
            )
        return value


@given(strategies.graphs(impure=False))
def test_values_have_exactly_the_geometry_of_their_metas(graph):
    StrideCheck(graph).run(*small_integers(graph))


@given(strategies.graphs())
def test_running_leaves_inputs_and_graph_alone(graph):
    inputs = small_integers(graph)
    before, text = [a.tobytes() for a in inputs], graph.code
    first = run_graph(graph, *inputs)
    assert before == [a.tobytes() for a in inputs]
    for a, b in zip(first, run_graph(graph, *inputs), strict=True):
        np.testing.assert_array_equal(a, b)
    assert text == graph.code


@given(strategies.graphs())
def test_identity_transform_gives_an_equal_graph_with_its_records(graph):
    again = Transformer(graph).transform()
    assert structurally_equal(graph, again) is None
    for x, y in zip(graph.nodes[:-1], again.nodes[:-1], strict=True):
        for record in ("phase", "location", "sequence", "grad_mode", "recompute"):
            assert getattr(x, record) == getattr(y, record), record
    verify(again)


@given(strategies.graphs())
def test_transform_can_run_twice(graph):
    transformer = Transformer(graph)
    first = transformer.transform()
    assert structurally_equal(first, transformer.transform()) is None


# ------------------------------------------------------------------------------- writes and views
def test_writes_reach_every_view():
    build = Builder()
    x = build.placeholder(tensor_meta((2, 2)))
    row = x.select(0, 1)
    row.mul_(10.0)
    column = x.permute((1, 0)).select(0, 0)
    graph = build.finish([x, column])
    matrix, column = run_graph(graph, np.float32([[1, 2], [3, 4]]))
    np.testing.assert_array_equal([[1, 2], [30, 40]], matrix)
    np.testing.assert_array_equal([1, 30], column)


def test_as_strided_sees_what_lies_outside_the_view():
    build = Builder()
    x = build.placeholder(tensor_meta((6,)))
    window = x.narrow(0, 4, 1).as_strided((2,), (1,), -3)
    graph = build.finish([window])
    np.testing.assert_array_equal([1, 2], run_graph(graph, np.arange(6, dtype=np.float32))[0])


def test_geometry_ops_move_no_data():
    build = Builder()
    x = build.placeholder(tensor_meta((2, 3)))
    graph = build.finish([x.t_()])
    source = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(source.T, run_graph(graph, source)[0])


def test_array_values_are_written_and_may_overlap():
    """This is how the final values of inputs, and aliased inputs, are given and read."""
    meta = tensor_meta((2,))
    whole = array_value(np.float32([1, 2, 3]), tensor_meta((3,)))
    build = Builder()
    x, y = build.placeholder(meta), build.placeholder(meta)
    x.mul_(10.0)
    graph = build.finish([y])
    (seen,) = run_graph(graph, whole.window(meta, 0), whole.window(meta, 1))
    np.testing.assert_array_equal([20, 3], seen)
    np.testing.assert_array_equal([10, 20, 3], whole.array)
    assert "ArrayValue(f32[2], start=1)" == repr(whole.window(meta, 1))


def test_constants_are_never_written():
    value = np.float32([1, 2])
    build = Builder()
    graph = build.finish([build.constant("w", value, tensor_meta((2,))).mul_(2.0)])
    np.testing.assert_array_equal([2, 4], run_graph(graph)[0])
    np.testing.assert_array_equal([1, 2], value)


def test_ops_with_several_results():
    build = Builder()
    x = build.placeholder(tensor_meta((2, 2)))
    values, indices = x.max_dim(1)
    left, right = x.split(1, 1)
    graph = build.finish([values, indices, left, right])
    results = run_graph(graph, np.float32([[1, 5], [7, 2]]))
    for want, got in zip([[5, 7], [1, 0], [[1], [7]], [[5], [2]]], results, strict=True):
        np.testing.assert_array_equal(want, got)


# ------------------------------------------------------------------------------------------ hooks
def test_call_runs_ops_on_whatever_it_takes():
    build = Builder()
    x = build.placeholder(tensor_meta((2,)))
    graph = build.finish([(x * 2.0).exp(), None, 3])
    interpreter = Interpreter(graph, lambda op, args: f"{op.name}{args}")
    assert ("exp(\"mul('x', 2.0)\",)", None, 3) == interpreter.run("x")


def test_each_hook_sees_its_nodes():
    seen = []

    class Watching(Interpreter):
        def placeholder(self, target, args):
            seen.append(("placeholder", str(target)))
            return super().placeholder(target, args)

        def get_attr(self, target, args):
            seen.append(("get_attr", target.name))
            return super().get_attr(target, args)

        def call(self, target, args):
            seen.append(("call", target.name))
            assert self.node.target is target
            return super().call(target, args)

        def output(self, target, args):
            seen.append(("output", len(args[0])))
            return super().output(target, args)

    build = Builder()
    x = build.placeholder(tensor_meta((2,)))
    graph = build.finish([x * build.constant("w", np.ones(2), tensor_meta((2,)))])
    Watching(graph).run(np.ones(2, np.float32))
    assert [("placeholder", "arg_0"), ("get_attr", "w"), ("call", "mul"), ("output", 1)] == seen


def test_values_are_dropped_after_their_last_use():
    most = 0

    class Counting(Interpreter):
        def run_node(self, node):
            nonlocal most
            most = max(most, len(self.env))
            return super().run_node(node)

    build = Builder()
    x = build.placeholder(tensor_meta((2,)))
    y = x
    for _ in range(20):
        y.exp()  # never used
        y = y * x
    interpreter = Counting(build.finish([y]))
    interpreter.run(np.ones(2, np.float32))
    assert (2, {}) == (most, interpreter.env)


def test_transformer_replaces_ops_and_keeps_their_place():
    class Squares(Transformer):
        def call(self, target, args):
            if target.name == "exp":
                return args[0] * args[0]
            return super().call(target, args)

    build = Builder("f")
    x = build.placeholder(tensor_meta((2,)))
    build.source = Node("call", None, sequence=4)
    graph = build.finish([x.exp() + 1.0])
    new = Squares(graph).transform()
    assert ["mul", "add"] == [node.target.name for node in new.calls]
    assert 4 == new.calls[0].sequence
    assert ["exp", "add"] == [node.target.name for node in graph.calls]


def test_transformer_may_replace_an_op_with_several_results():
    class Narrows(Transformer):
        def call(self, target, args):
            if target.name == "split":
                return [args[0].narrow(0, 0, 1), args[0].narrow(0, 1, 1)]
            return super().call(target, args)

    build = Builder()
    x = build.placeholder(tensor_meta((2,)))
    graph = build.finish(x.split(1))
    new = Narrows(graph).transform()
    assert ["slice", "slice"] == [node.target.name for node in new.calls]
    for a, b in zip(
        run_graph(graph, np.float32([1, 2])), run_graph(new, np.float32([1, 2])), strict=True
    ):
        np.testing.assert_array_equal(a, b)


# ----------------------------------------------------------------------------------------- errors
def negation():
    build = Builder("negation")
    return build.finish([-build.placeholder(tensor_meta((2,)))])


@pytest.mark.parametrize(
    ("inputs", "error", "message"),
    [
        ((), ArgumentError, "graph negation: it is given 0 inputs, expected 1"),
        ((np.ones(3),), ShapeError, "run: input arg_0 has shape (3,), expected (2,)"),
        ((np.ones(2),), DTypeError, "run: input arg_0 is float64, expected float32"),
        (
            (array_value([1, 2], tensor_meta((2,), (2,))),),
            ArgumentError,
            "run: input arg_0 is f32[2][2], expected f32[2]",
        ),
    ],
)
def test_run_refuses_other_inputs(inputs, error, message):
    with pytest.raises(error, match=re.escape(message)):
        Interpreter(negation()).run(*inputs)


def test_error_of_a_node_names_it_and_the_users_line():
    def fail(op, args):
        raise ValueError("broken")

    build = Builder()
    x = build.placeholder(tensor_meta((2,)))
    build.source = Node("call", None, location=(negation.__code__, 2))
    graph = build.finish([-x])
    with pytest.raises(ValueError, match="broken") as caught:
        Interpreter(graph, fail).run(1)
    node, place = caught.value.__notes__
    assert "while running: neg = ops.neg(arg_0)" == node
    assert "in negation" in place


def test_random_ops_have_no_reference_meaning():
    with pytest.raises(
        UnsupportedError, match="rand: it draws from a generator, expected its pure form"
    ):
        call_arrays(OPS["rand"], ((2,), None, None))


def test_getitem_is_indexing_for_every_call():
    graph = Node("call", GETITEM, ())
    interpreter = Interpreter(negation(), lambda op, args: None)
    assert graph.target is GETITEM
    assert "b" == interpreter.call(GETITEM, (("a", "b"), 1))


def test_array_value_starts_where_its_window_does():
    base = array_value(np.float32([1, 2, 3, 4]), tensor_meta((4,)))
    view = base.window(tensor_meta((2,)), 1).window(tensor_meta((1,)), 1)
    assert isinstance(view, ArrayValue) and (2, [3.0]) == (view.start, view.array.tolist())


# ------------------------------------------------------------------------------------------ size
def test_long_chain_runs_and_is_rebuilt():
    """Nothing recurses: 50,000 nodes in a row; about a second on an idle core."""
    build = Builder()
    x = build.placeholder(tensor_meta((1,)))
    for _ in range(50_000):
        x = -x
    graph = build.finish([x])
    start = time.perf_counter()
    assert 5.0 == run_graph(graph, np.float32([5]))[0]
    assert structurally_equal(graph, Transformer(graph).transform()) is None
    assert time.perf_counter() - start < 60
