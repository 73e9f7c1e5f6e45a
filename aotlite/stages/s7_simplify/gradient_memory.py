"""Gradients that were two memories stay two memories.

Used by stage 7, last. To compute equal nodes once is right for values, and for gradients it is
not: whoever calls `autograd.grad` may write one of them. Of `x * 2 + y * 2`, eager computes two
products:

    mul = tangent * 2      ──►  grad of x          mul = tangent * 2      ──►  grad of x
                           ──►  grad of y          clone(mul)             ──►  grad of y

Input and output: a pure graph. Rule: SIM-8. Spec: `specs/s7_simplify.md`.
"""

from __future__ import annotations

from itertools import compress

from aotlite.ir.graph import Graph, Node, Phase
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.role import Gradient
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.ops.shape.copies import CLONE


def with_separate_gradients(graph: Graph, before: Graph) -> Graph:
    """The graph with copies of gradients that share memory and did not in the graph before.

    Both graphs have the same outputs. A gradient that is an input or a value of the forward is
    left: stage 8 copies it (PART-15).
    """
    owners: dict[Node, Node] = {}
    """The node that made the memory now -> the one that made it before."""
    is_copied = [
        type(role) is Gradient
        and type(value) is Node
        and storage_root(value).op == "call"
        and owners.setdefault(storage_root(value), storage_root(old)) is not storage_root(old)
        for role, value, old in zip(graph.output_roles, graph.outputs, before.outputs, strict=True)
    ]
    if not any(is_copied):
        return graph
    build = Builder(graph.name)
    build.nodes = list(graph.nodes[:-1])
    build.phase = Phase.BACKWARD
    values = list(graph.outputs)
    for place in compress(range(len(values)), is_copied):
        values[place] = build.emit(CLONE, (values[place],))
    return build.finish(values, graph.output_roles)
