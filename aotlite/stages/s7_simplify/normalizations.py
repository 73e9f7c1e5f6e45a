"""Normalisations written out in simpler ops, for backends that fuse.

Used by the pipeline before the min-cut partitioner. Rules: PART-38. Spec: `specs/s7_simplify.md`.
"""

from __future__ import annotations

from aotlite.ir.graph import Graph, Node, Phase, map_nodes
from aotlite.ir.op import Cost, PureOp
from aotlite.stages.s7_simplify.common_subexpressions import (
    eliminate_common_subexpressions,
    eliminate_dead_code,
)
from aotlite.stages.s7_simplify.decompositions import Table, decompose


# ----------------------------------------------------------------- for backends that fuse (PART-38)
def normalisations(graph: Graph) -> Table:
    """What the normalisations of a graph are in simpler ops: empty if it has none.

    Those that are wished to be kept or to be computed again stay as they are.
    """
    found = {node.target: node.target.expands for node in graph.calls if _is_normalisation(node)}
    for node in graph.calls if found else ():
        if node.recompute is not None:
            found.pop(node.target, None)
    return found


def opened(graph: Graph) -> Graph:
    """The graph with its normalisations written out; what is computed twice then is shared.

    A normalisation is not computed again as one op: its whole result would be kept. From its
    operand and a number a row, its maximum, mean or logarithm, it is computed again at once.
    """
    table = normalisations(graph)
    if not table:
        return graph
    again: set[Node] = set()
    simpler = eliminate_dead_code(decompose(graph, table))
    return _of_backward(eliminate_common_subexpressions(simpler, again), again)


def _of_backward(graph: Graph, again: set[Node]) -> Graph:
    """The graph with these nodes as of the backward, which reads what they read (PART-37)."""
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


def _is_normalisation(node: Node) -> bool:
    """Whether it reduces what it reads, gives as much, and says what it is in simpler ops."""
    op = node.target
    if type(op) is not PureOp or op.cost is not Cost.REDUCTION or op.expands is None:
        return False
    made = node.meta[0] if type(node.meta) is tuple else node.meta
    read = node.args[0].meta if type(node.args[0]) is Node else None
    return read is not None and made.shape == read.shape  # type: ignore[union-attr]
