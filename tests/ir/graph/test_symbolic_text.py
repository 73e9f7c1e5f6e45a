"""Graphs with symbols as programs: their text runs, and they run, at every size (GRA-16)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import aotlite as al
from aotlite.ir.errors import ArgumentError, FormatError, GuardError, ShapeError, UnsupportedError
from aotlite.ir.graph import Graph
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.compare import structurally_equal
from aotlite.ir.graph.symbolic.binding import bindings_of
from aotlite.ir.graph.symbolic.numbers import at_sizes
from aotlite.ir.graph.text.source import graph_from_source
from aotlite.ir.graph.verify import verify
from aotlite.ir.meta import table_in, tensor_meta
from aotlite.ir.meta.symbolic import symbolic_meta
from aotlite.ir.run.interpreter import run_graph
from aotlite.ir.serialize import dumps
from aotlite.ir.symbols.floats.operations import OPERATIONS
from aotlite.ir.symbols.floats.size_expressions import Computing
from aotlite.ir.symbols.floats.size_float import applied
from aotlite.ir.symbols.table import SymbolTable
from tests.backends.loops.helpers.sized_graphs import drawn, programs, symbolized
from tests.ir.helpers import strategies

pytestmark = pytest.mark.rules("GRA-16")


def executed(graph: Graph, text: str, arrays: Any, sizes: Mapping[str, int]) -> list[Any]:
    """The results of a printed graph on tensors; `sizes` are those of its parameters."""
    scope: dict[str, Any] = {"ops": al.ops}
    exec(text, scope)
    (function,) = [each for name, each in scope.items() if name not in ("ops", "__builtins__")]
    free = bindings_of(graph.placeholders, graph.symbols).free
    parameters = function.__code__.co_varnames[: function.__code__.co_argcount]
    given = {name: sizes[name] for name in free if name in parameters}
    return [
        value.numpy() if isinstance(value, al.Tensor) else value
        for value in function(*map(al.tensor, arrays), **given)
    ]


def same(found: Any, expected: Any) -> None:
    """Results are the same bits."""
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def agree(graph: Graph, arrays: Any, sizes: Mapping[str, int]) -> Any:
    """Runs a graph with symbols in each way, at one vector of sizes."""
    numbers = at_sizes(graph, sizes)
    expected = run_graph(numbers, *arrays)
    free = bindings_of(graph.placeholders, graph.symbols).free
    same(run_graph(graph, *arrays, sizes={name: sizes[name] for name in free}), expected)
    for text in (graph.code, str(graph)):
        same(executed(graph, text, arrays, sizes), expected)
        assert structurally_equal(graph_from_source(text, sizes=sizes), numbers) is None
    return expected


# ------------------------------------------------------------------------------- compiled functions
def product(x: al.Tensor, y: al.Tensor) -> Any:
    scores = (x @ y).softmax(-1)
    flat = scores.reshape(-1) * 2
    return flat.sum(), flat.view(scores.shape[0] * scores.shape[1]), x[: max(x.shape[0] - 3, 1)]


def total(x: al.Tensor, y: al.Tensor) -> Any:
    return x.sum() * y.sum(0)


def joined(x: al.Tensor, y: al.Tensor) -> Any:
    return al.cat([x.t(), y], 1).flatten().exp()


@pytest.mark.parametrize("function", [product, total, joined])
def test_graphs_of_a_region_run_at_other_sizes(function: Callable[..., Any]) -> None:
    """Forward and backward, printed and not; what the forward saves is given to the backward."""
    compiled = al.compile(function, dynamic=True, backend="reference")
    compiled(al.ones(5, 4).requires_grad_(), al.ones(4, 6).requires_grad_())
    forward, backward = compiled.forward_graph, compiled.backward_graph
    assert backward is not None
    for n, k, m in ((5, 4, 6), (7, 2, 9), (8, 3, 3)):
        sizes = {"s0": n, "s1": k, "s2": k, "s3": m}
        draws = np.random.default_rng(n)
        x, y = (draws.random(shape).astype(np.float32) for shape in ((n, k), (k, m)))
        results = agree(forward, [x, y], sizes)
        by_role = dict(zip(map(str, forward.output_roles), results, strict=True))
        shapes = [node.shape for node in at_sizes(backward, sizes).placeholders]
        arrays: list[Any] = [
            by_role.get(str(node.role), np.ones(shape, np.float32))
            for node, shape in zip(backward.placeholders, shapes, strict=True)
        ]
        agree(backward, arrays, sizes)


def test_a_symbol_of_no_input_is_a_parameter() -> None:
    compiled = al.compile(lambda x: x.sum(), dynamic=True, backend="reference")
    compiled(al.ones(5, 4).requires_grad_())
    backward = compiled.backward_graph
    assert backward is not None
    assert (
        """\
def _lambda__backward(
    tangents_output_0: "f32[]",
    s0: "int = saved_size_0",
    s1: "int = saved_size_1",
) -> ("grad_primals_0",):
    ops.phase("backward")
    view = ops.view(tangents_output_0, (1, 1))
    expand = ops.expand(view, (s0, s1))
    clone = ops.clone(expand)
    return (clone,)"""
        == backward.code
    )
    (result,) = agree(backward, [np.float32(3)], {"s0": 2, "s1": 7})
    assert (2, 7) == result.shape
    words = "the size s0 is not given, expected it in sizes=: it is saved_size_0"
    with pytest.raises(ArgumentError, match=words):
        run_graph(backward, np.float32(3))
    with pytest.raises(FormatError, match="source: the size s0 is not given, expected it in siz"):
        graph_from_source(backward.code)


# ------------------------------------------------------------------------------------- by hand
def graph_of(function: Any, *metas: Any, table: SymbolTable | None = None) -> Graph:
    build = Builder("made")
    inputs = [build.placeholder(meta) for meta in metas]
    graph = build.finish(function(*inputs))
    verify(graph)
    return graph


def size_of(table: SymbolTable, hint: int) -> Any:
    """A symbol from 2 on; an int to type checkers."""
    return table.symbol(hint, lower=2)


def test_sizes_are_read_from_the_first_input_that_has_them() -> None:
    table = SymbolTable()
    a, b, c = size_of(table, 4), size_of(table, 6), size_of(table, 3)
    odd = tensor_meta((2 * c + 1, 5 - b + a * b))
    metas = tensor_meta((a, a)), odd, tensor_meta((3, b)), tensor_meta((a, b))
    graph = graph_of(
        lambda w, x, y, z: [x.view(x.shape[0] * x.shape[1]), w.new_zeros((c, b - 1)), z.flatten()],
        *metas,
    )
    assert (
        """\
    s0 = arg_0.shape[0]
    s1 = arg_2.shape[1]
    s2 = (arg_1.shape[0] - 1) // 2
    view = ops.view(arg_1, (2*s0*s1*s2 + s0*s1 - 2*s1*s2 - s1 + 10*s2 + 5,))"""
        in graph.code
    )
    sizes = {"s0": 3, "s1": 2, "s2": 7}
    shapes = [node.shape for node in at_sizes(graph, sizes).placeholders]
    agree(graph, [np.ones(shape, np.float32) for shape in shapes], sizes)


@pytest.mark.parametrize(
    ("size", "line"),
    [
        (lambda a, b: 2 * a, "s0 = arg_0.shape[0] // 2"),
        (lambda a, b: a - 3, "s0 = arg_0.shape[0] - (-3)"),
        (lambda a, b: 5 - a, "s0 = (arg_0.shape[0] - 5) // -1"),
        (lambda a, b: a * 2 + b, "s0 = (arg_0.shape[0] - s1) // 2"),
        (lambda a, b: a + b // 2, "s0 = arg_0.shape[0] - (s1//2)"),
    ],
)
def test_sizes_that_are_no_symbols_are_solved(size: Any, line: str) -> None:
    table = SymbolTable()
    a, b = size_of(table, 4), size_of(table, 6)
    metas = tensor_meta((size(a, b),)), tensor_meta((b,))
    graph = graph_of(lambda x, y: [x.new_zeros((a, b))], *metas)
    assert line in graph.code
    sizes = {"s0": 4, "s1": 7}
    agree(graph, [np.ones(size(4, 7), np.float32), np.ones(7, np.float32)], sizes)


@pytest.mark.parametrize("size", [lambda a: a * a, lambda a: a // 2, lambda a: a + a % 2])
def test_sizes_that_do_not_give_a_symbol_are_no_source(size: Any) -> None:
    table = SymbolTable()
    a = size_of(table, 4)
    graph = graph_of(lambda x: [x.new_zeros((a,))], tensor_meta((size(a),)))
    assert ', s0: "int"):' in graph.code
    agree(graph, [np.ones(size(6), np.float32)], {"s0": 6})


def test_one_line_binds_all_sizes_of_an_input() -> None:
    meta = symbolic_meta(SymbolTable(), tensor_meta((4, 6)), "x")
    graph = graph_of(lambda x: [x.expand(2, *x.shape)], meta)
    assert "    s0, s1 = arg_0.shape\n    expand = ops.expand(arg_0, (2, s0, s1))" in graph.code


def test_text_has_no_line_for_symbols_that_no_statement_has() -> None:
    meta = symbolic_meta(SymbolTable(), tensor_meta((4, 6)), "x")
    assert (
        """\
def made(arg_0: "f32[s0, s1]"):
    exp = ops.exp(arg_0)
    return (exp,)"""
        == graph_of(lambda x: [x.exp()], meta).code
    )


def test_larger_and_smaller_are_words_of_ops() -> None:
    """A value may be named `max`, as the op is."""
    table = SymbolTable()
    x = symbolic_meta(table, tensor_meta((4, 6)), "x", ranges={0: (0, None), 1: (0, None)})
    rows, columns = x.shape
    largest = table.call("max", rows, columns), table.call("min", rows, 9)
    graph = graph_of(lambda x: [x.max(), x.new_ones(largest)], x)
    assert "(ops.sym_max(s0, s1), ops.sym_min(9, s0))" in graph.code
    agree(graph, [np.ones((3, 8), np.float32)], {"s0": 3, "s1": 8})
    agree(graph, [np.ones((30, 8), np.float32)], {"s0": 30, "s1": 8})


def test_floats_made_of_sizes_are_words_of_ops() -> None:
    """Values may be named `round` and `abs`, as the ops are. A file refuses such a graph."""
    table = SymbolTable()
    table.computes = Computing(table)
    x = symbolic_meta(table, tensor_meta((4, 6)), "x", ranges={0: (0, None), 1: (0, None)})
    rows, columns = x.shape
    scale: Any = applied(table, OPERATIONS["math.sqrt"], (rows,), math.inf)
    many: Any = round(columns * 0.7)
    third = abs(scale - 9.5) / 3
    graph = graph_of(lambda x: [x.round(), x.abs() * third, x.new_ones((many,))], x)
    assert "ops.sym_abs(ops.math.sqrt(s0) - 9.5) / 3" in graph.code
    assert "ops.sym_round(s1 * 0.7)" in graph.code
    for sizes in ((3, 8), (30, 7), (1, 10)):
        agree(graph, [np.ones(sizes, np.float32)], {"s0": sizes[0], "s1": sizes[1]})
    with pytest.raises(UnsupportedError, match="made of floats|made of sizes"):
        dumps(graph)


def test_no_value_is_named_like_a_symbol() -> None:
    build = Builder("named")
    x = build.placeholder(symbolic_meta(SymbolTable(), tensor_meta((4, 6)), "x"))
    w = build.constant("s1", np.ones(6, np.float32), tensor_meta((6,)))
    graph = build.finish([x.view(x.shape[0] * x.shape[1]), w])
    assert "s1_1 = ops.constant" in graph.code


# ----------------------------------------------------------------------------------- bad inputs
def halves() -> Graph:
    table = SymbolTable()
    x = symbolic_meta(table, tensor_meta((4, 6)), "x")
    y = symbolic_meta(table, tensor_meta((4, 3)), "y", dims=(0,))
    return graph_of(lambda x, y: [x.view(-1, 2), x.sum(1) * y.sum(1)], x, y)


BAD: dict[str, tuple[Any, type[Exception], str]] = {
    "a guard": (((5, 6), (4, 3)), GuardError, "made: its sizes are {.*}, expected s0 == s2"),
    "a remainder": (((5, 5), (5, 3)), GuardError, r"expected s0\*s1 % 2 == 0|expected \(s0\*s1\)"),
    "a range": (((1, 6), (1, 3)), GuardError, "graph made: the size s0 is 1, expected at least 2"),
    "a rank": (((4,), (4, 3)), ShapeError, r"input arg_0 has shape \(4,\), expected \(s0, s1\)"),
    "a number": (((4, 6), (4, 5)), ShapeError, r"arg_1 has shape \(4, 5\), expected \(4, 3\)"),
}


@pytest.mark.parametrize("name", BAD)
def test_inputs_that_do_not_fit_are_refused(name: str) -> None:
    shapes, kind, words = BAD[name]
    with pytest.raises(kind, match=words):
        run_graph(halves(), *[np.ones(shape, np.float32) for shape in shapes])


def test_nothing_is_assumed() -> None:
    """Neither by printing, nor by running."""
    graph = halves()
    table = table_in([node.meta for node in graph.placeholders])
    assert table is not None
    before = list(table.log)
    arrays = [np.ones((8, 6), np.float32), np.ones((8, 3), np.float32)]
    agree(graph, arrays, {"s0": 8, "s1": 6, "s2": 8})
    assert before == table.log


# ----------------------------------------------------------------------------------- random graphs
CASES = {f"{case.name}, from {low}": case for low in (0, 2) for case in programs(low)}


@pytest.mark.parametrize("name", CASES)
def test_programs_run_as_text_at_many_sizes(name: str) -> None:
    case = CASES[name]
    for values in case.values(3):
        metas = [node.meta for node in at_sizes(case.graph, values).placeholders]
        agree(case.graph, [drawn(meta, k) for k, meta in enumerate(metas)], values)


@settings(max_examples=40)
@given(strategies.graphs(), st.sampled_from((0, 2)), st.booleans())
def test_random_graphs_run_as_text_at_other_sizes(graph: Any, less: int, shared: bool) -> None:
    case = symbolized("random", graph, less, shared=shared)
    assume(case is not None and not graph.constants)
    assert case is not None
    free = bindings_of(case.graph.placeholders, case.graph.symbols).free
    for values in (case.table.hints, *case.values(2)):
        numbers = at_sizes(case.graph, values)
        for text in (case.graph.code, str(case.graph)):
            assert structurally_equal(graph_from_source(text, sizes=values), numbers) is None
        arrays = [drawn(node.meta, k) for k, node in enumerate(numbers.placeholders)]
        sizes = {name: values[name] for name in free}
        try:
            expected = run_graph(numbers, *arrays)
        except ShapeError:  # a write of other sizes, about which the op's rule does not ask
            continue
        same(run_graph(case.graph, *arrays, sizes=sizes), expected)
