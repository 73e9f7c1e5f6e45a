"""Ops written as simpler ones: equal to their kernels, with the same metas, places and roles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aotlite as al
from aotlite.backends.loops.lowering.expansion import expand
from aotlite.ir.graph import Graph
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.graph.verify import verify
from aotlite.ir.op import OPS, PureOp
from aotlite.ir.run.interpreter import run_graph
from aotlite.testing import laws
from aotlite.testing.laws.ops.runs import bound, tensors_in
from tests.samples import samples_of
from tests.test_decompositions import close, graph_of

EXPANDED = sorted(
    op.name
    for op in OPS.values()
    if type(op) is PureOp and op.expands and not op.scalar and not op.loops
)


def outlines(graph: Graph) -> list[Any]:
    pairs = zip(graph.outputs, graph.output_roles, strict=True)
    return [(getattr(value, "meta", value), role) for value, role in pairs]


@pytest.mark.parametrize("name", EXPANDED)
def test_an_expansion_computes_what_the_kernel_does(name: str) -> None:
    """Each sample of the op: results have its metas and no operand's memory."""
    expanded = 0
    for sample in samples_of(name):
        args = bound(OPS[name], sample)
        graph = graph_of(OPS[name], args)
        simple = expand(graph)
        verify(simple, functional=True)
        expanded += not any(node.target.name == name for node in simple.calls)
        assert outlines(graph) == outlines(simple)
        assert all(storage_root(value).op == "call" for value in simple.outputs)
        arrays = [tensor.array for tensor in tensors_in(args)]
        expected, got = run_graph(graph, *arrays), run_graph(simple, *arrays)
        assert all(map(close, expected, got)), (sample, expected, got)
    assert expanded


def test_graphs_are_expanded_with_places_and_roles() -> None:
    """The corpus: forwards and backwards, with what the ops of gradients become."""
    for case in laws.graphs("forward", "backward"):
        simple = expand(case.graph)
        verify(simple, functional=True)
        assert outlines(case.graph) == outlines(simple)
        assert case.graph.placeholders == simple.placeholders


def test_what_an_expansion_calls_is_expanded_and_keeps_its_place() -> None:
    def loss(x: Any) -> Any:
        return x.std(1).softmax(0) * x.norm()

    x = al.arange(6.0).reshape(2, 3)
    graph = al.capture(loss)(x)
    simple = expand(graph)
    assert not {"std", "softmax", "linalg_vector_norm"} & {n.target.name for n in simple.calls}
    assert all(node.location is not None for node in simple.calls)
    (expected,), (got,) = run_graph(graph, x.numpy()), run_graph(simple, x.numpy())
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_complex_ops_stay() -> None:
    for make in (lambda x: x.mean(), lambda x: x.mm(x), lambda x: x.logsumexp(1)):
        x = al.ones(2, 2, dtype=al.complex64)
        graph = al.capture(make)(x)
        assert [n.target for n in expand(graph).calls] == [n.target for n in graph.calls]


def test_sums_of_16_bit_floats_are_rounded_once() -> None:
    """4096 is where float16 stops to count in ones."""
    x = al.ones(8192, dtype=al.float16)
    graph = al.capture(lambda x: x.mean())(x)
    (got,) = run_graph(expand(graph), x.numpy())
    assert 1.0 == got


def test_a_result_that_is_the_operand_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPS["softmax"], "expands", lambda self, dim, dtype=None: self)
    simple = expand(al.capture(lambda x: x.softmax(0))(al.ones(2)))
    assert ["restride"] == [node.target.name for node in simple.calls]
