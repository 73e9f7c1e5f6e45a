"""The table of ready-made decompositions: each equals its op's kernel on all samples of the op."""

import numpy as np
import pytest

import aotlite as al
from aotlite.ir.graph import map_nodes
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.verify import verify
from aotlite.ir.op import OPS, MultiViewOp
from aotlite.ir.run.interpreter import Interpreter
from aotlite.stages.s7_simplify.decompositions import decompose
from aotlite.testing.laws.ops.runs import bound, tensors_in
from tests.samples import samples_of

TABLE = al.decompositions.core_table()


def graph_of(op, args):
    """The graph that calls the op once on inputs like these tensors."""
    build = Builder(op.name)
    inputs = {id(t): build.placeholder(t.meta) for t in tensors_in(args)}

    def value(arg):
        if isinstance(arg, tuple):
            return tuple(map(value, arg))
        return inputs.get(id(arg), arg)

    result = build.call(op, tuple(map(value, args)))
    return build.finish(result if isinstance(result, tuple) else [result])


def declined(graph):
    """The ops of the table whose decompositions give NotImplemented."""
    found = []
    for node in graph.calls:
        build = Builder()
        args = map_nodes(node.args, lambda value, build=build: build.placeholder(value.meta))
        pairs = list(zip(node.target.schema.parameters, args, strict=True))
        named = {p.name: value for p, value in pairs if p.keyword_only}
        rest = [value for p, value in pairs if not p.keyword_only]
        if node.target in TABLE and TABLE[node.target](*rest, **named) is NotImplemented:
            found.append(node.target)
    return found


def close(expected, got):
    """Rounding of a few operations in the dtype, nan and infinities exactly."""
    if expected.dtype.kind in "biu":
        return np.array_equal(expected, got)
    eps = 1e-2 if expected.dtype.itemsize == 2 else 64 * np.finfo(expected.dtype).eps
    return np.allclose(expected, got, rtol=eps, atol=eps, equal_nan=True)


@pytest.mark.parametrize("name", sorted(op.name for op in TABLE))
def test_a_decomposition_computes_what_the_kernel_does(name):
    """Same shape, dtype and strides, no op of the table left that does not decline, nothing
    written."""
    op = OPS[name]
    for sample in samples_of(name):
        args = bound(op, sample)
        graph = graph_of(op, args)
        simple = decompose(graph, TABLE)
        verify(simple, functional=True)
        assert not [n for n in simple.calls if type(n.target) is MultiViewOp]
        assert [n.target for n in simple.calls if n.target in TABLE] == declined(simple)
        assert [v.meta for v in graph.outputs] == [v.meta for v in simple.outputs]
        arrays = [t.array for t in tensors_in(args)]
        expected, got = Interpreter(graph).run(*arrays), Interpreter(simple).run(*arrays)
        assert all(map(close, expected, got)), (sample, expected, got)


def test_the_table_is_new_each_time():
    table = al.decompositions.core_table()
    table.clear()
    assert TABLE.keys() == al.decompositions.core_table().keys()
