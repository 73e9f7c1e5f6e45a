"""Decompositions: same results on every graph, and what is wrong with one is said by its name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import aotlite as al
from aotlite.ir.graph import Graph
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.role import IntermediateBase, Output
from aotlite.ir.graph.verify import verify
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS, MultiViewOp
from aotlite.stages.s7_simplify.decompositions import decompose, decomposition_table
from tests.end_to_end.helpers.cases import Case, cases
from tests.end_to_end.helpers.worlds import check
from tests.stages.helpers.journeys import journeys, run_graph, same_results, values_for

ENOUGH = 20

EXACT = decomposition_table(
    {
        "add": lambda a, b: a.sub(-b),
        "neg": lambda a: a.rsub(0),
        "relu": lambda a: (a <= 0).where(0, a),
        "clone": lambda a: a.alias(),
        "t": lambda a: a.transpose(0, 1) if a.ndim == 2 else a,
        "transpose": lambda a, i, j: a.permute(_swapped(a.ndim, i, j)) if a.ndim else a,
        "select": lambda a, dim, index: a.slice(
            dim, index % a.size(dim), index % a.size(dim) + 1
        ).squeeze(dim),
        "unsqueeze": lambda a, dim: al.ops.stack((a,), dim),
        "stack": lambda tensors, dim: (
            al.ops.cat(tuple(t.view(_with_one(t, dim)) for t in tensors))
            if dim == 0
            else NotImplemented
        ),
    }
)
"""Functions that are exact on small integers, some of which return a window on their argument."""


def _swapped(ndim: int, i: int, j: int) -> list[int]:
    dims = list(range(ndim))
    dims[i], dims[j] = dims[j], dims[i]
    return dims


def _with_one(t: Any, dim: int) -> tuple[int, ...]:
    return (*t.shape[:dim], 1, *t.shape[dim:])


def roots(graph: Graph) -> list[Any]:
    """What made the memory of each result that the caller holds."""
    found = []
    for role, value in zip(graph.output_roles, graph.outputs, strict=True):
        if isinstance(role, (Output, IntermediateBase)):
            while value.op == "call" and value.target.views:
                value = value.args[0]
            found.append(value)
    return found


# ---------------------------------------------------------------------------------------- the laws
@pytest.mark.draws(long=520)
@pytest.mark.slow("takes 120 cases through all stages, for the tests of a worker")
def test_decomposing_keeps_results_metas_and_memory() -> None:
    """DEC-4, DEC-5: exactly, on the graphs of random programs."""
    changed = 0
    for journey in journeys():
        graph = journey.pure
        simple = decompose(graph, EXACT)
        verify(simple, functional=True)
        values = values_for(graph)
        assert same_results(run_graph(graph, values), run_graph(simple, values))
        assert [getattr(v, "meta", v) for v in graph.outputs] == [
            getattr(v, "meta", v) for v in simple.outputs
        ]
        assert len(set(roots(simple))) == len(roots(simple))
        assert all(root.op == "call" for root in roots(simple))
        left = {n.target.name for n in simple.calls if n.target in EXACT}
        assert left <= {"stack"}
        changed += simple is not graph
    assert changed > ENOUGH


def test_a_decomposition_that_declines_changes_nothing() -> None:
    """DEC-3: what it recorded before is forgotten."""

    def decline(*args: Any, **kwargs: Any) -> Any:
        args[0].exp()
        return NotImplemented

    table = decomposition_table({"mul": decline, "sin": decline, "add": decline})
    for journey in journeys()[:50]:
        simple = decompose(journey.pure, table)
        assert list(journey.pure.nodes[:-1]) == list(simple.nodes[:-1])


@pytest.mark.draws(long=300)
@settings(max_examples=40, deadline=None)
@given(cases())
def test_compiled_with_decompositions_is_eager(case: Case) -> None:
    """GEN-1: what the caller sees, later gradients and writes too."""
    found, _ = check(case, decompositions=EXACT, verify=1)
    assert [] == found


def one(name: str, *args: Any, shape: tuple[int, ...] = (2, 3), dtype: Any = al.float32) -> Graph:
    """A graph of one op on one input."""
    build = Builder("one")
    x = build.placeholder(tensor_meta(shape, None, dtype))
    result = build.call(OPS[name], OPS[name].bind((x, *args), {}))
    return build.finish(result if isinstance(result, tuple) else [result])


def test_results_of_an_op_with_several_are_replaced_one_by_one() -> None:
    graph = one("max_dim", 1)
    table = decomposition_table(
        {"max_dim": lambda x, dim, keepdim: [x.amax(dim, keepdim), x.argmax(dim, keepdim)]}
    )
    simple = decompose(graph, table)
    assert ["amax", "argmax"] == [node.target.name for node in simple.calls]
    x = np.array([[1, 3, 2], [9, 7, 8]], "f4")
    values = dict.fromkeys([node.role for node in graph.placeholders], x)
    assert same_results(run_graph(graph, values), run_graph(simple, values))  # type: ignore[arg-type]


def test_two_results_in_one_memory_are_two() -> None:
    """DEC-5: the caller may write one of them."""
    table = decomposition_table({"max_dim": lambda x, d, k: (x.amax(d, k), x.argmax(d, k))})
    twice = decomposition_table(
        {"max_dim": lambda x, d, k: (lambda y: (y, y.to(al.int64)))(x.amax(d, k))}
    )
    graph = one("max_dim", 1, dtype=al.int64)
    for each in (table, twice):
        assert 2 == len(set(roots(decompose(graph, each))))


def test_strides_are_those_of_the_op() -> None:
    """DEC-4: a result in another layout is laid out anew."""
    graph = one("exp")
    simple = decompose(graph, {OPS["exp"]: lambda x: x.t().contiguous().sin().t()})
    assert graph.outputs[0].meta is simple.outputs[0].meta
    assert "restride" == simple.outputs[0].target.name


def test_several_views_are_recorded_one_by_one() -> None:
    """No op of several views is in a pure graph."""
    graph = one("exp")
    simple = decompose(graph, {OPS["exp"]: lambda x: al.ops.stack(x.unbind(1), 1)})
    assert not any(isinstance(node.target, MultiViewOp) for node in simple.calls)
    assert ["select"] * 3 + ["stack"] == [node.target.name for node in simple.calls]


def test_arguments_are_passed_where_they_say_something() -> None:
    """DEC-1: a function without them serves calls without them."""
    build = Builder("one")
    x = build.placeholder(tensor_meta((2, 3)))
    given = {"dtype": al.float64}
    calls = [x.softmax(1), x.softmax(1, **given), x.mean(1), x.mean(1, **given)]
    graph = build.finish(calls)
    seen: list[Any] = []

    def softmax(x: Any, dim: int, *rest: Any) -> Any:
        seen.append(rest)
        return x.to(rest[0] if rest else x.dtype).exp()

    def mean(x: Any, dim: Any, keepdim: bool, **named: Any) -> Any:
        seen.append(named)
        return x.to(named.get("dtype", x.dtype)).sum(dim, keepdim)

    decompose(graph, {OPS["softmax"]: softmax, OPS["mean"]: mean})
    assert [(), (al.float64,), {}, given] == seen


def test_nodes_keep_phase_place_and_origin() -> None:
    """A decomposed gradient is of the backward, and of the same line."""
    x = al.ones(3, requires_grad=True)
    compiled = al.compile(lambda x: x.relu().sum(), decompositions=al.decompositions.core_table())
    compiled(x).backward()
    assert ["le", "where"] == [n.target.name for n in compiled.forward_graph.calls][:2]
    backward = compiled.partition.backward
    assert backward is not None
    assert {"le", "where"} < {node.target.name for node in backward.calls}
    assert all(node.location is not None for node in compiled.forward_graph.calls)


def test_arguments_that_differ_end_a_recursion() -> None:
    """DEC-2: a decomposition may come back to its op, on other arguments."""

    def halves(x: Any) -> Any:
        if x.shape[0] == 1:
            return (x * 2.0).sin()
        return al.ops.cat([part.exp() for part in x.split(x.shape[0] // 2)])

    simple = decompose(one("exp", shape=(4,)), {OPS["exp"]: halves})
    assert 4 == sum(node.target.name == "sin" for node in simple.calls)


# ------------------------------------------------------------------------------------ what is wrong
def outside() -> Any:
    """A function that uses a value which an earlier call kept."""
    kept: list[Any] = []

    def function(x: Any, dim: int) -> Any:
        kept.append(x * 2.0)
        return kept[0] + x

    return function


WRONG = {
    "writes": (lambda x, d: x.mul_(2.0), "it calls mul_, which writes, expected ops without eff"),
    "changes a geometry": (lambda x, d: x.t_(), "it calls t_, which changes a geometry"),
    "shape": (lambda x, d: x.sum(), r"it returned f32\[\], expected f32\[2, 3\]"),
    "dtype": (lambda x, d: x.double(), r"it returned f64\[2, 3\], expected f32\[2, 3\]"),
    "number": (lambda x, d: 3, "it returned 3, expected a value made of its arguments"),
    "nothing": (lambda x, d: None, "it returned None, expected a value made of its arguments"),
    "two": (lambda x, d: (x, x), "it returned 2 results, expected a value made of"),
    "a tensor": (lambda x, d: al.ones(2, 3), "it calls on a tensor from outside, expected"),
    "tensors": (lambda x, d: x * al.ones(2, 3), "it calls on a tensor from outside, expected"),
    "cycle": (lambda x, d: x.softmax(d), r"it leads back to itself \(softmax -> softmax\), exp"),
    "raises": (lambda x, d: {"a": x}["key"], "it raised KeyError, expected a result"),
    "signature": (lambda x: x, "it raised TypeError, expected a result"),
    "leaks": (outside(), "it calls add on <call mul: f32.*> from outside, expected values of its"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_decomposition_is_named(kind: str) -> None:
    """And nothing is done: inputs keep bytes and versions, no entry is left (TRC-2)."""
    function, text = WRONG[kind]
    x = al.ones(2, 3)
    table = {"softmax": function}
    compiled = al.compile(
        lambda x: x.mul_(2.0).softmax(1) + (x + 1.0).softmax(1), decompositions=table
    )
    with pytest.raises(al.ArgumentError, match=f"^decomposition of 'softmax': {text}"):
        compiled(x)
    assert ([[1.0] * 3] * 2, 0, []) == (x.tolist(), x.version, compiled.entries)


def test_a_cycle_through_others_is_named() -> None:
    """DEC-2."""
    table = {"exp": lambda x: x.sin() + 1.0, "sin": lambda x: x.cos(), "cos": lambda x: x.exp()}
    compiled = al.compile(lambda x: x.exp(), decompositions=table)
    with pytest.raises(al.ArgumentError, match="itself .exp -> sin -> cos -> exp., expected"):
        compiled(al.ones(2))


def test_arguments_that_grow_without_end_are_refused() -> None:
    """DEC-2."""
    table = {"exp": lambda x: x.new_zeros((x.shape[0] + 1,)).exp().slice(0, 0, x.shape[0], 1)}
    compiled = al.compile(lambda x: x.exp(), decompositions=table)
    with pytest.raises(al.ArgumentError, match="'exp': it is 100 deep in others"):
        compiled(al.ones(2))


def test_errors_of_ops_and_decisions_by_values_say_where() -> None:
    for function, kind in (
        (lambda x: x.view(7), al.ShapeError),
        (lambda x: x if x > 0 else -x, al.UnsupportedError),
    ):
        with pytest.raises(kind) as caught:
            al.compile(lambda x: x.exp(), decompositions={"exp": function})(al.ones(2))
        assert "in the decomposition of 'exp'" in caught.value.__notes__


@pytest.mark.parametrize(
    ("table", "text"),
    [
        (3, "decompositions is 3, expected a mapping"),
        ({3: len}, "decompositions has the key 3, expected an op, its name, or its function"),
        ({len: len}, "decompositions has the key <built-in function len>"),
        ({"softmax": 3}, "the decomposition of 'softmax' is 3, expected a function"),
        ({"softmaxx": len}, "'softmaxx' is not an op; did you mean softmax"),
        ({"mul_": len}, "decompositions has 'mul_', which no pure graph has, expected mul"),
        ({"t_": len}, "decompositions has 't_', which no pure graph has, expected t"),
        ({"rand": len}, "decompositions has 'rand', which no pure graph has, expected uniform"),
        ({"split": len}, "decompositions has 'split', which no pure graph has, expected the views"),
        ({"restride": len}, "decompositions has 'restride', expected another op"),
        ({"getitem": len}, "decompositions has 'getitem', expected another op"),
        ({"exp": len, OPS["exp"]: len}, "decompositions has 'exp' twice, expected once"),
        ({"exp": len, al.ops.exp: len}, "decompositions has 'exp' twice, expected once"),
    ],
)
def test_a_wrong_table_is_refused_when_it_is_given(table: Any, text: str) -> None:
    with pytest.raises(al.ArgumentError, match=text):
        al.compile(lambda x: x, decompositions=table)


def test_verify_names_the_decomposition_that_computes_something_else() -> None:
    table = {"exp": lambda x: x.sin(), "mul": lambda a, b: a / (1.0 / b)}
    compiled = al.compile(lambda x: (x * 3.0).exp(), decompositions=table, verify=True)
    with pytest.raises(al.ArgumentError, match="verify: decomposition of 'exp' changed the value"):
        compiled(al.ones(2))
