"""Pairs of a joint graph's values: parameters with gradients, results with tangents (TRC-8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aotlite.descriptors.kinds import (
    AnyDescriptor,
    BufferInput,
    GradOutput,
    ParamInput,
    PlainInput,
    TangentInput,
)
from aotlite.descriptors.names import Names
from aotlite.ir.graph import Graph, Node


def inputs_of(names: Names, graph: Graph) -> dict[AnyDescriptor, Node]:
    """The inputs of a graph, by descriptor."""
    return {names.of(node.role): node for node in graph.placeholders}


def outputs_of(names: Names, graph: Graph) -> dict[AnyDescriptor, Any]:
    """The outputs of a graph, by descriptor: nodes, None, or plain values."""
    described = names.of_graph(graph).outputs
    return dict(zip(described, graph.outputs, strict=True))


def parameters(names: Names, graph: Graph) -> dict[str, Node]:
    """The inputs that are parameters, by qualified name."""
    return {x.name: n for x, n in inputs_of(names, graph).items() if isinstance(x, ParamInput)}


def buffers(names: Names, graph: Graph) -> dict[str, Node]:
    """The inputs that are buffers, by qualified name."""
    return {x.name: n for x, n in inputs_of(names, graph).items() if isinstance(x, BufferInput)}


def parameters_with_gradients(names: Names, graph: Graph) -> dict[str, tuple[Node, Any]]:
    """(input, gradient) of each parameter of a joint graph, by qualified name.

    The gradient is a node of the graph, or None where none flows."""
    pairs = _with_gradients(names, graph)
    return {each.name: pair for each, pair in pairs if isinstance(each, ParamInput)}


def arguments_with_gradients(names: Names, graph: Graph) -> dict[PlainInput, tuple[Node, Any]]:
    """(input, gradient) of each argument of a joint graph, by descriptor; gradients may be None."""
    pairs = _with_gradients(names, graph)
    return {each: pair for each, pair in pairs if isinstance(each, PlainInput)}


def _with_gradients(names: Names, graph: Graph) -> Iterator[tuple[AnyDescriptor, tuple[Node, Any]]]:
    outputs = outputs_of(names, graph).items()
    gradients = {what.of: value for what, value in outputs if isinstance(what, GradOutput)}
    for what, node in inputs_of(names, graph).items():
        yield what, (node, gradients.get(what))


def results_with_tangents(
    names: Names, graph: Graph
) -> dict[AnyDescriptor, tuple[Any, Node | None]]:
    """(value, tangent) of each output of a joint graph that is no gradient, by descriptor.

    Results, updated inputs and intermediate bases have tangents; None where nothing flows back."""
    inputs = inputs_of(names, graph).items()
    tangents: dict[AnyDescriptor, Node] = {
        what.of: node for what, node in inputs if isinstance(what, TangentInput)
    }
    outputs = outputs_of(names, graph).items()
    return {
        what: (value, tangents.get(what))
        for what, value in outputs
        if not isinstance(what, GradOutput)
    }
