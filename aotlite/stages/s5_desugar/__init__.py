"""Stage 5, desugar: removes the nodes of wrapper subclasses from a joint graph.

Input: `Captured` and the imperative `Joint`, in which an op on a wrapper is a node beside the nodes
of the ops that its class ran on the parts. Output: the `Joint` with the nodes of parts alone:

    w = wrap(a, b); v = mul(w, 2); c = mul(a, 2); d = mul(b, 2)      becomes
                                   c = mul(a, 2); d = mul(b, 2)

A graph without wrappers is returned as it is (SUB-2). Rules: SUB-2, SUB-4, SUB-6.
Spec: `specs/s5_desugar.md`.
"""

from __future__ import annotations

from collections.abc import Container

import attrs

from aotlite.ir.errors import SubclassError
from aotlite.ir.graph import Graph, Node
from aotlite.stages.records.backward.joint import Joint
from aotlite.stages.records.capture import Captured


def desugar(captured: Captured, both: Joint) -> Joint:
    """The joint graph of dense tensors; the wrappers' parts are its inputs and outputs."""
    wrapped = captured.recorder.wrapped
    if not wrapped:
        return both
    return attrs.evolve(both, graph=without_wrappers(both.graph, wrapped.nodes))


def without_wrappers(graph: Graph, wrappers: Container[Node]) -> Graph:
    """The graph without these nodes. Raises SubclassError if a remaining node reads one."""
    inputs = [node for node in graph.placeholders if node not in wrappers]
    rest = [node for node in graph.nodes[len(graph.placeholders) :] if node not in wrappers]
    for node in rest:
        for value in node.inputs():
            if value in wrappers:
                raise SubclassError(
                    f"desugar: {node} reads {value}, a tensor made of tensors, expected its parts"
                )
    return Graph((*inputs, *rest), graph.name)
