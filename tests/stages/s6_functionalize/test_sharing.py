"""Functionalization builds only what changes: nodes may stand in several graphs (GRA-4)."""

from typing import Any

import pytest

import aotlite as al
from aotlite.ir.graph import Graph
from aotlite.stages.s6_functionalize import functionalize


def loss(x: Any, w: Any) -> Any:
    return ((x @ w).relu().t() * 2.0).sum()


def write_between(x: Any) -> Any:
    before = x * 2.0
    y = before.sin()
    y.add_(1.0)
    return before.cos() + y.cos()


def rebuilt(graph: Graph) -> list[str]:
    """The ops of the functional graph's own nodes."""
    given = set(graph.nodes)
    return [node.target.name for node in functionalize(graph).calls if node not in given]


@pytest.mark.rules("FUN-3", "FUN-34")
def test_a_graph_without_writes_keeps_its_nodes_views_too():
    graph = al.capture(loss)(al.ones(2, 3), al.ones(3, 3))
    assert rebuilt(graph) == []


@pytest.mark.rules("FUN-6")
def test_what_a_write_does_not_reach_keeps_its_nodes():
    graph = al.capture(write_between)(al.ones(3))
    assert rebuilt(graph) == ["add", "cos", "add"]


def test_the_graph_given_stays_as_it_was():
    graph = al.capture(write_between)(al.ones(3))
    before = [(node, node.args, node.meta, node.origin) for node in graph.nodes]
    functionalize(graph)
    assert before == [(node, node.args, node.meta, node.origin) for node in graph.nodes]
