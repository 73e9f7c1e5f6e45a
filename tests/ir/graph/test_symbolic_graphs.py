"""Graphs whose metas have symbols: built, verified and printed, and given numbers."""

import pickle
from functools import partial

import attrs
import pytest

from aotlite.ir.errors import ArgumentError, ShapeError
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.graph import Copy
from aotlite.ir.graph.symbolic.numbers import with_sizes
from aotlite.ir.graph.verify import verify
from aotlite.ir.meta import tensor_meta
from aotlite.ir.meta.symbolic import symbolic_meta
from aotlite.ir.symbols.assumption import concrete
from aotlite.ir.symbols.table import SymbolTable


def test_graph_of_a_layer_is_made_for_every_size():
    """No line of it assumes anything: batch and time are whatever they are."""
    table, build = SymbolTable(), Builder("layer")
    x = build.placeholder(symbolic_meta(table, tensor_meta((4, 6, 8)), "x", (0, 1)))
    weight, bias = build.placeholder(tensor_meta((8, 8))), build.placeholder(tensor_meta((8,)))
    batch, time, width = x.meta.shape
    heads = (x @ weight + bias).view(batch, time, 2, width // 2).transpose(1, 2)
    scores = (heads @ heads.mT).softmax(-1)
    merged = (scores @ heads).transpose(1, 2).reshape(batch, time, width)
    result = (merged * 2).mean((0, 1)) + x.narrow(1, 0, time - 1).sum((0, 1))
    graph = build.finish([result, merged.flatten(0, 1).relu()])
    verify(graph)
    assert [] == table.log
    assert ["f32[8]", "f32[s0*s1, 8]"] == [repr(node.meta) for node in graph.outputs]
    assert "ops.view(add, (s0, s1, 2, 4))" in graph.code


def test_refusal_names_sizes_by_their_symbols():
    table, build = SymbolTable(), Builder("refused")
    x = build.placeholder(symbolic_meta(table, tensor_meta((4, 6)), "x"))
    y = build.placeholder(symbolic_meta(table, tensor_meta((5, 6)), "y"))
    with pytest.raises(ShapeError, match=r"add: shapes are \(s0, s1\) and \(s2, s3\), ex"):
        x + y
    assert "s0 != s2" in [assumption.text for assumption in table.log]


def test_meta_with_symbols_is_not_pickled():
    table, build = SymbolTable(), Builder("kept")
    x = build.placeholder(symbolic_meta(table, tensor_meta((4, 6)), "x"))
    with pytest.raises(ArgumentError, match="symbols: a size to copy is s0, expected an int"):
        pickle.dumps(x.meta)
    assert [] == table.log


def test_numbers_are_put_into_arguments_metas_and_copies():
    table, build = SymbolTable(), Builder("copied")
    x = build.placeholder(symbolic_meta(table, tensor_meta((4, 6)), "x"))
    w = build.placeholder(tensor_meta((3,)))
    flat = (x * 2).view(x.meta.shape[0] * x.meta.shape[1])
    plain = w.exp()
    graph = build.finish([flat, plain])
    graph = attrs.evolve(graph, copies=(Copy(graph.nodes[2], "why"),))
    made = {}
    numbers = with_sizes(graph, partial(concrete, values={"s0": 5, "s1": 3}), made)
    verify(numbers)
    assert ["f32[15]", "f32[3]"] == [repr(node.meta) for node in numbers.outputs]
    assert "ops.view(mul, (15,))" in numbers.code
    assert numbers.copies[0].node is numbers.nodes[2] is made[graph.nodes[2]]
    shared = [node for node in numbers.nodes if node in graph.nodes]
    assert [w.node, plain.node] == shared
    assert [] == table.log
