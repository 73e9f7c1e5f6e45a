"""Stage 7, simplify: dead code and common subexpressions of a pure graph, in linear time.

Input and output: a pure graph. Nodes whose memory the caller comes to hold are merged with nothing:
two results are two memories, and a saved value must not become a result that the caller may write
(PART-15). Rules: TRC-10, PART-15. Spec: `specs/s7_simplify.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.ir.graph import Graph, Node, map_nodes, output_node
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.role import IntermediateBase, MutatedInput, Output


def simplify(graph: Graph) -> Graph:
    """An equal graph without unused and without repeated computations."""
    return eliminate_common_subexpressions(eliminate_dead_code(graph))


def eliminate_dead_code(graph: Graph) -> Graph:
    """The graph without calls whose results nobody uses; placeholders stay (TRC-10)."""
    live: set[Node] = {value for value in graph.outputs if type(value) is Node}
    for node in reversed(graph.nodes):
        if node in live:
            live.update(node.inputs())
    kept = [n for n in graph.nodes if n in live or n.op in ("placeholder", "output")]
    return graph if len(kept) == len(graph.nodes) else Graph(tuple(kept), graph.name)


def eliminate_common_subexpressions(graph: Graph) -> Graph:
    """The graph with equal pure calls computed once."""
    escaping = _escaping(graph)
    new: dict[Node, Node] = {}
    seen: dict[Any, Node] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.op == "output":
            break
        if node.op != "call":
            new[node] = node
            nodes.append(node)
            continue
        args = map_nodes(node.args, new.__getitem__)
        key = None if node in escaping else (node.target, _literal(args), node.meta)
        found = seen.get(key) if key is not None else None
        if found is None:
            same = all(a is b for a, b in zip(args, node.args, strict=True))
            found = node if same else node.with_args(args, node.meta)
            nodes.append(found)
            if key is not None:
                seen[key] = found
        new[node] = found
    values = [new[v] if type(v) is Node else v for v in graph.outputs]
    nodes.append(output_node(values, graph.output_roles))
    return Graph(tuple(nodes), graph.name)


def _escaping(graph: Graph) -> set[Node]:
    """Calls whose memory the caller holds after the call: results, and what results are views
    of.
    """
    found: set[Node] = set()
    for role, value in zip(graph.output_roles, graph.outputs, strict=True):
        if isinstance(role, (Output, IntermediateBase, MutatedInput)) and type(value) is Node:
            while value.op == "call":
                found.add(value)
                if not (value.target.views or value.target is GETITEM):
                    break
                value = value.args[0]
    return found


def _literal(value: Any) -> Any:
    """A key that tells 1 from 1.0 and True, and 0.0 from -0.0."""
    if type(value) is tuple:
        return tuple([_literal(item) for item in value])
    if type(value) is float:
        return float, value.hex()
    if type(value) in (int, bool, complex):
        return type(value), repr(value)
    return value
