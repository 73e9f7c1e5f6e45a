"""Dead scatter elimination: drops a scatter whose window a later scatter overwrites whole.

    s = select_scatter(x, a, 0, 0); t = select_scatter(s, b, 0, 1); u = select_scatter(t, c, 0, 0)

The first one is dead, if `s` and `t` have no other users. Each node of such a chain, scatters and
views, is read by the next one alone (SIM-4). A part of stage 7. Input and output: a pure graph.
Spec: `specs/s7_simplify.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.ir.graph import Graph, Node, map_nodes, output_node
from aotlite.ir.op import ViewOp
from aotlite.stages.shared.memory.windows import SCATTERED, write_of

Later = tuple[set[Any], int]
"""The windows that later scatters write, and the start of this value in their memory."""


def drop_dead_writes(graph: Graph) -> Graph:
    """The graph without scatters that later ones of the same chain overwrite."""
    dead = _dead(graph, _only_readers(graph))
    if not dead:
        return graph
    new: dict[Node, Node] = {}
    nodes: list[Node] = []
    for node in graph.nodes[:-1]:
        if node in dead:
            operand = node.args[0]
            new[node] = new.get(operand, operand)
            continue
        args = map_nodes(node.args, lambda value: new.get(value, value))
        if args is not node.args:
            new[node] = node = node.with_args(args, node.meta)
        nodes.append(node)
    values = [new.get(v, v) if type(v) is Node else v for v in graph.outputs]
    return Graph((*nodes, output_node(values, graph.output_roles)), graph.name)


def _only_readers(graph: Graph) -> dict[Node, Node | None]:
    """The only user of each node; None if there are several uses."""
    readers: dict[Node, Node | None] = {}
    for node in graph.nodes:
        for value in node.args[0] if node.op == "output" else node.inputs():
            readers[value] = None if value in readers else node
    return readers


def _dead(graph: Graph, readers: dict[Node, Node | None]) -> set[Node]:
    dead: set[Node] = set()
    later: dict[Node, Later] = {}
    for node in reversed(graph.nodes):
        reader = readers.get(node)
        if reader is None or reader.op != "call" or reader.args[0] is not node:
            continue
        windows = _windows_behind(reader, later)
        if windows is None:
            continue
        later[node] = windows
        write = write_of(node)
        if write is not None:
            seen, shift = windows
            if (write.window.meta, write.window.start + shift) in seen:
                dead.add(node)
    return dead


def _windows_behind(reader: Node, later: dict[Node, Later]) -> Later | None:
    """The windows that are overwritten from `reader` on; None if it does not continue a chain."""
    op = reader.target
    if type(op) is ViewOp and not op.recasts:
        if reader not in later:
            return None
        windows, shift = later[reader]
        start: int = op.result(reader.args)[1]
        return windows, shift - start
    write = write_of(reader) if op in SCATTERED else None
    if write is None:
        return None
    windows, shift = later.get(reader, (set(), 0))
    windows.add((write.window.meta, write.window.start + shift))
    return windows, shift
