"""Dead code elimination and common subexpression elimination of a pure graph, in linear time.

Used by stage 7, first and after each round of its other rules. Rules: TRC-10, PART-15, FUN-25.
Spec: `specs/s7_simplify.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.ir.graph import Graph, Node, map_nodes, output_node
from aotlite.ir.graph.role import IntermediateBase, MutatedInput, Output, Part
from aotlite.ir.ops.structure import GETITEM


def eliminate_dead_code(graph: Graph) -> Graph:
    """The graph without calls whose results are not used. Placeholders stay (TRC-10).

    Calls that write stay too (FUN-25): a closing copy has no users.
    """
    live: set[Node] = {value for value in graph.outputs if type(value) is Node}
    for node in reversed(graph.nodes):
        if node in live or (node.op == "call" and not node.target.pure):
            live.add(node)
            for value in node.args:
                if type(value) is Node:
                    live.add(value)
                elif type(value) is tuple:
                    live.update(item for item in value if type(item) is Node)
    kept = [n for n in graph.nodes if n in live or n.op in ("placeholder", "output")]
    return graph if len(kept) == len(graph.nodes) else Graph(tuple(kept), graph.name)


def eliminate_common_subexpressions(graph: Graph, again: set[Node] | None = None) -> Graph:
    """The graph with equal pure calls computed once, except calls whose memory the caller gets.

    `again` is filled with forward nodes that replaced a node of the backward.
    """
    escaping = escaping_calls(graph)
    new: dict[Node, Node] = {}
    """The replacements of nodes that are dropped or rebuilt."""
    seen: dict[Any, Node] = {}
    nodes: list[Node] = []
    for old in graph.nodes[:-1]:
        is_call = old.op == "call"
        node = _renewed(old, new) if new and is_call else old
        if is_call and old not in escaping:
            args = [v if type(v) is Node else _literal(v) for v in node.args]
            key = node.target, tuple(args), node.meta, node.recompute is True
            found = seen.setdefault(key, node)
            if found is not node:
                new[old] = found
                if again is not None and node.phase is not found.phase:
                    again.add(found)
                continue
        if node is not old:
            new[old] = node
        nodes.append(node)
    if len(nodes) == len(graph.nodes) - 1:
        return graph
    values = [new.get(v, v) if type(v) is Node else v for v in graph.outputs]
    nodes.append(output_node(values, graph.output_roles))
    return Graph(tuple(nodes), graph.name)


def _renewed(node: Node, new: dict[Node, Node]) -> Node:
    """The node with replaced arguments; itself if no argument was replaced."""
    for value in node.args:
        if value in new if type(value) is Node else type(value) is tuple:
            break
    else:
        return node
    args = map_nodes(node.args, lambda value: new.get(value, value))
    if all(a is b for a, b in zip(args, node.args, strict=True)):
        return node
    return node.with_args(args, node.meta)


def escaping_calls(graph: Graph) -> set[Node]:
    """The calls whose memory the caller gets: outputs, and what they are views of."""
    found: set[Node] = set()
    for role, value in zip(graph.output_roles, graph.outputs, strict=True):
        if isinstance(role, (Output, IntermediateBase, MutatedInput, Part)) and type(value) is Node:
            while value.op == "call" and value not in found:
                found.add(value)
                if not (value.target.views or value.target is GETITEM):
                    break
                value = value.args[0]
    return found


def _literal(value: Any) -> Any:
    """A key of a literal, different for 1, 1.0 and True, and for 0.0 and -0.0."""
    kind = type(value)
    if kind is tuple:
        if _INT.issuperset(map(type, value)):
            return int, value
        return tuple([v if type(v) is Node else _literal(v) for v in value])
    if kind is float:
        # A zero by its sign, and a NaN, which equals nothing, by its text.
        return float, value if value and value == value else value.hex()
    if kind is complex:
        return complex, repr(value)
    return (kind, value) if kind is int or kind is bool else value


_INT = frozenset((int,))
