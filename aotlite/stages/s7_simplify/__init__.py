"""Stage 7, simplify: dead code, common subexpressions and needless windows of a pure graph.

Input and output: a pure graph. In linear time. Nodes whose memory the caller comes to hold are
merged with nothing: two results are two memories, and a saved value must not become a result that
the caller may write (PART-15). The window rules are in `s7_simplify/views_of_scatters.py` and
`s7_simplify/dead_scatters.py`.
Rules: TRC-10, PART-15, PART-38, SIM-7. Spec: `specs/s7_simplify.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.ir.graph import Graph, Node, Phase, map_nodes, output_node
from aotlite.ir.graph.role import IntermediateBase, MutatedInput, Output, Part
from aotlite.ir.op import Cost, PureOp
from aotlite.ir.ops.structure import GETITEM
from aotlite.stages.s7_simplify.dead_scatters import drop_dead_writes
from aotlite.stages.s7_simplify.decompositions import Table, decompose
from aotlite.stages.s7_simplify.views_of_scatters import has_windows, see_through_scatters

_ROUNDS = 4
"""What one round leaves, the next finds; a round that removes no node is the last."""


def simplify(graph: Graph) -> Graph:
    """An equal graph without unused and repeated computations, and without needless windows."""
    graph = eliminate_common_subexpressions(eliminate_dead_code(graph))
    return apply_window_rules(graph) if has_windows(graph) else graph


def apply_window_rules(graph: Graph) -> Graph:
    """The graph by the rules on views and scatters (SIM-2 to SIM-6); never a larger one (SIM-7)."""
    for _ in range(_ROUNDS):
        seen = see_through_scatters(graph, _escaping(graph))
        if seen is not graph:
            seen = eliminate_dead_code(seen)
        shorter = drop_dead_writes(seen)
        if shorter is graph:
            break
        shorter = eliminate_common_subexpressions(eliminate_dead_code(shorter))
        before = len(graph.nodes)
        if len(shorter.nodes) <= before:
            graph = shorter
        if len(shorter.nodes) >= before:
            break
    return graph


def eliminate_dead_code(graph: Graph) -> Graph:
    """The graph without calls whose results nobody uses; placeholders stay (TRC-10).

    So do calls that write (FUN-25): closing copies have no readers.
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
    """The graph with equal pure calls computed once.

    `again` gets the nodes of the forward that stand for some of the backward, too.
    """
    escaping = _escaping(graph)
    new: dict[Node, Node] = {}
    """For nodes that are not in the result: those that stand for them."""
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
    """The node with arguments that are in the result; itself if its own are."""
    for value in node.args:
        if value in new if type(value) is Node else type(value) is tuple:
            break
    else:
        return node
    args = map_nodes(node.args, lambda value: new.get(value, value))
    if all(a is b for a, b in zip(args, node.args, strict=True)):
        return node
    return node.with_args(args, node.meta)


def _escaping(graph: Graph) -> set[Node]:
    """Calls whose memory the caller holds after the call: results, and what results are views
    of.
    """
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
    """A key that tells 1 from 1.0 and True, and 0.0 from -0.0."""
    kind = type(value)
    if kind is tuple:
        if _INT.issuperset(map(type, value)):
            return int, value
        return tuple([v if type(v) is Node else _literal(v) for v in value])
    if kind is float:
        # Equal but for the sign of zero; what is not a number equals nothing.
        return float, value if value and value == value else value.hex()
    if kind is complex:
        return complex, repr(value)
    return (kind, value) if kind is int or kind is bool else value


_INT = frozenset((int,))


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
