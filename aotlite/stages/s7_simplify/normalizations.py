"""Decomposes normalizations (softmax, layer_norm, ..) before min-cut, for backends that fuse.

Used by the pipeline before stage 8. Rules: PART-38. Spec: `specs/s7_simplify.md`.
"""

from __future__ import annotations

from aotlite.ir.geometry.sizes import always_same
from aotlite.ir.graph import Graph, Node, Phase, map_nodes
from aotlite.ir.op import Cost, PureOp
from aotlite.stages.s7_simplify.common_subexpressions import (
    eliminate_common_subexpressions,
    eliminate_dead_code,
)
from aotlite.stages.s7_simplify.decompositions import Table, decompose


# ----------------------------------------------------------------- for backends that fuse (PART-38)
def normalization_decompositions(graph: Graph) -> Table:
    """The decompositions of a graph's normalizations; empty if it has none.

    An op of which some call has a hint to be saved or recomputed is left out.
    """
    found = {node.target: node.target.expands for node in graph.calls if _is_normalization(node)}
    for node in graph.calls if found else ():
        if node.recompute is not None:
            found.pop(node.target, None)
    return found


def decompose_normalizations(graph: Graph) -> Graph:
    """The graph with its normalizations decomposed, and common subexpressions merged.

    As one op a normalization would be saved whole. Decomposed, the cut can save its operand and one
    number a row (maximum, mean, logarithm of a sum), and recompute the rest in a fused kernel.
    """
    table = normalization_decompositions(graph)
    if not table:
        return graph
    again: set[Node] = set()
    simpler = eliminate_dead_code(decompose(graph, table))
    return _of_backward(eliminate_common_subexpressions(simpler, again), again)


def _of_backward(graph: Graph, again: set[Node]) -> Graph:
    """The graph with these nodes in phase BACKWARD: eager's backward reads what they read."""
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        args = map_nodes(node.args, new.__getitem__)
        if node not in again and args is node.args:
            new[node] = node
            continue
        new[node] = node.with_args(args, node.meta)
        if node in again:
            new[node].phase = Phase.BACKWARD
    return Graph(tuple(new.values()), graph.name) if again else graph


def _is_normalization(node: Node) -> bool:
    """Whether a call reduces, returns as many elements as it reads, and has a decomposition."""
    op = node.target
    if type(op) is not PureOp or op.cost is not Cost.REDUCTION or op.expands is None:
        return False
    made = node.meta[0] if type(node.meta) is tuple else node.meta
    read = node.args[0].meta if type(node.args[0]) is Node else None
    return read is not None and always_same(made.shape, read.shape)  # type: ignore[union-attr]
