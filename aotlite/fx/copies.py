"""Copies in a graph that `reinplace` gets: those that nobody can tell from their operands, and
those at its end.

Spec: `specs/reinplace.md`, RIP-1, RIP-3, RIP-11.
"""

from __future__ import annotations

import attrs

from aotlite.ir.errors import AotliteError
from aotlite.ir.graph import Graph, Node, map_nodes
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import GeometryOp, InplaceOp, MultiViewOp, PureOp, ViewOp
from aotlite.ir.ops.shape.copies import CLONE, COPY_, RESTRIDE
from aotlite.ir.ops.structure import GETITEM

WRITES = (InplaceOp, GeometryOp)

__all__ = ["closing_nodes", "lies_unseen", "without_copies"]


def closing_nodes(graph: Graph) -> set[Node]:
    """The writes at the end of a graph: `copy_` into inputs, or windows on them, and `t_` of inputs
    that nothing reads afterwards."""
    found: set[Node] = set()
    for node in reversed(graph.calls):
        if node.target is COPY_ and storage_root(node.args[0]).op == "placeholder":
            found.add(node)
        elif isinstance(node.target, GeometryOp) and node.args[0].op == "placeholder":
            later = graph.nodes[graph.nodes.index(node) + 1 : -1]
            if not any(node.args[0] in each.inputs() or node in each.inputs() for each in later):
                found.add(node)
    return found


def without_copies(graph: Graph) -> tuple[Graph, dict[Node, Node]]:
    """The graph without copies that nobody can tell from what they copy (RIP-11); for each node
    that has other operands there: the node that it comes from.

    A pure graph writes nothing before its end, so a copy has its operand's values for ever. It
    stays if it is a result, or if an op that reads it would do another thing with other strides.
    """
    outputs = {value for value in graph.outputs if type(value) is Node}
    results = {storage_root(value) for value in outputs}
    places = {node: place for place, node in enumerate(graph.nodes)}
    first_write = min((places[x] for x in graph.calls if isinstance(x.target, WRITES)), default=-1)
    until = first_write if first_write >= 0 else len(places)
    new: dict[Node, Node] = {}
    origins: dict[Node, Node] = {}
    nodes = []
    for node in graph.nodes[:-1]:
        args = map_nodes(node.args, lambda value: new.get(value, value))
        meta = node.target.infer(args) if isinstance(node.target, ViewOp) else node.meta
        made = node if args is node.args else node.with_args(args, meta)
        if node.target in (CLONE, RESTRIDE) and node not in results:
            operand = made.args[0]
            if type(operand.meta) is TensorMeta and all(
                _only_computes(each) and places[each] < until for each in readers(graph, node)
            ):
                if lies_unseen(graph, node, operand.meta, through_views=True):
                    new[node] = operand
                    continue
        if made is not node:
            new[node], origins[made] = made, node
        nodes.append(made)
    if not new:
        return graph, {}
    closing = graph.nodes[-1]
    args = map_nodes(closing.args, lambda value: new.get(value, value))
    last = closing if args is closing.args else closing.with_args(args, closing.meta)
    return attrs.evolve(graph, nodes=(*nodes, last)), origins


def readers(graph: Graph, node: Node) -> list[Node]:
    """The nodes that read a value, or a view of it."""
    found, stack = [], [node]
    while stack:
        for user in graph.users[stack.pop()]:
            found.append(user)
            if user.op == "call" and (user.target.views or user.target is GETITEM):
                stack.append(user)
    return found


def _only_computes(node: Node) -> bool:
    """Whether a node neither writes nor hands out what it reads."""
    if node.op != "call":
        return False
    return node.target is GETITEM or isinstance(node.target, (PureOp, ViewOp, MultiViewOp))


def lies_unseen(
    graph: Graph, node: Node, other: TensorMeta, *, through_views: bool = False
) -> bool:
    """Whether the value may have the strides of another: no node that reads it can tell.

    With `through_views`, views of it are looked through; else they can tell.
    """
    meta = node.meta
    assert type(meta) is TensorMeta
    if (meta.shape, meta.dtype, meta.device) != _looks(other) or meta.table is not None:
        return False
    there = Node("get_attr", None, meta=other)
    for user in graph.users[node]:
        if user.op != "call" or user.target is GETITEM:
            return False
        if user.target.views and not (through_views and isinstance(user.target, ViewOp)):
            return False
        args = map_nodes(user.args, lambda value: there if value is node else value)
        try:
            found = user.target.infer(args)
        except AotliteError:
            return False
        if found is user.meta:
            continue
        if not user.target.views or not lies_unseen(graph, user, found, through_views=True):
            return False
    return True


def _looks(meta: TensorMeta) -> tuple[object, ...]:
    return meta.shape, meta.dtype, meta.device
