"""Stage 8, partition: cuts a pure joint graph into a forward and a backward.

Input: the simplified joint graph. Output: `Partition`. The default partitioner runs forward what
was recorded in the forward, and saves every forward value that the backward uses (PART-10). Its
helper
`cut` is what a partitioner of one's own ends with: give it the set of nodes that the forward keeps
for the backward. Rules: PART-1..PART-10, SAV-1. Spec: `specs/s8_partition.md`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aotlite.ir.builder import Builder
from aotlite.ir.errors import ArgumentError
from aotlite.ir.graph import Graph, Node, Phase, map_nodes
from aotlite.ir.memory import storage_root
from aotlite.ir.ops.create import CLONE
from aotlite.ir.role import (
    Gradient,
    Hidden,
    IntermediateBase,
    MutatedInput,
    Output,
    Primal,
    Role,
    Saved,
    Tangent,
)
from aotlite.stages.facts import Partition, SavedValue


def default_partition(graph: Graph) -> Partition:
    """Forward: all that was recorded in the forward; saved: what the backward uses of it."""
    forward = {n for n in graph.nodes if n.op != "output" and n.phase is Phase.FORWARD}
    saved: dict[Node, str] = {}
    needed = {value for _, value in graph.outputs_with(Gradient) if type(value) is Node}
    for node in reversed(graph.nodes):
        if node in needed and node not in forward:
            needed.update(node.inputs())
    for node in graph.nodes:
        if node in forward and node in needed and node.op != "get_attr":
            if type(node.meta) is not tuple:
                saved[node] = "the backward uses it"
    return cut(graph, saved)


def cut(graph: Graph, saved: dict[Node, str] | Iterable[Node]) -> Partition:
    """The partition that saves these nodes: the backward recomputes what it needs from them.

    `saved` gives the reason for each. Raises ArgumentError where the gradients cannot be computed
    from the saved nodes and the tangents, or a result needs a tangent.
    """
    reasons = dict(saved) if isinstance(saved, dict) else dict.fromkeys(saved, "chosen")
    order = [node for node in graph.nodes if node in reasons]
    forward, owners = _forward(graph, order)
    backward = _backward(graph, order)
    names = graph.names
    values = tuple(
        SavedValue(names[node], node.meta, owners[node], reasons[node])  # type: ignore[arg-type]
        for node in order
    )
    return Partition(forward, backward, values)


# -------------------------------------------------------------------------------------- forward
def _forward(graph: Graph, saved: list[Node]) -> tuple[Graph, dict[Node, Any]]:
    results: list[tuple[Role, Any]] = [
        (role, value)
        for role, value in zip(graph.output_roles, graph.outputs, strict=True)
        if not isinstance(role, Gradient)
    ]
    wanted = {v for _, v in results if type(v) is Node} | set(saved)
    for node in reversed(graph.nodes):
        if node in wanted:
            wanted.update(node.inputs())
    build = Builder(f"{graph.name}_forward")
    for node in graph.nodes:
        if node.op == "output":
            break
        if isinstance(node.role, Tangent):
            if node in wanted:
                raise ArgumentError(
                    f"partition: a result of the forward needs the tangent {node.role}, expected "
                    "results that are computed from the inputs"
                )
        elif node.op == "placeholder" or node in wanted:
            build.add(node)
    owners = _owners(results)
    written = {role.of for role, _ in results if isinstance(role, MutatedInput)}
    kept = []
    linked: dict[Node, Any] = {}
    for node in saved:
        root = storage_root(node)
        linked[node] = owners.get(root)
        if root.op == "placeholder" and isinstance(root.role, (Primal, Hidden)):
            linked[node] = root.role
            if root.role in written:  # its memory holds the new value when the backward runs
                build.source = node
                node, linked[node] = build.emit(CLONE, (node,)), None
        kept.append(node)
    roles: list[Role] = [role for role, _ in results]
    roles += [Saved(i, graph.names[node]) for i, node in enumerate(saved)]
    return build.finish([*(v for _, v in results), *kept], roles), linked


def _owners(results: list[tuple[Role, Any]]) -> dict[Node, Any]:
    """Whose memory each root is, once the call has returned."""
    owners: dict[Node, Any] = {}
    for role, value in results:
        if isinstance(role, (Output, IntermediateBase, MutatedInput)) and type(value) is Node:
            owners.setdefault(storage_root(value), role)
    return owners


# ------------------------------------------------------------------------------------- backward
def _backward(graph: Graph, saved: list[Node]) -> Graph | None:
    gradients = graph.outputs_with(Gradient)
    if not gradients:
        return None
    build = Builder(f"{graph.name}_backward")
    new: dict[Node, Any] = {}
    for i, node in enumerate(saved):
        placeholder = Node(
            "placeholder", Saved(i), meta=node.meta, role=Saved(i, graph.names[node]), origin=node
        )
        new[node] = build.add(placeholder)
    needed = _needed(gradients, graph, set(saved))
    for node in graph.nodes:
        if isinstance(node.role, Tangent):
            new[node] = build.add(node)
    for node in graph.nodes:
        if node not in needed or node in new or node.op == "output":
            continue
        if node.op == "placeholder":
            raise ArgumentError(
                f"partition: a gradient needs the input {node.role}, which is not saved, expected "
                "every needed value to be saved or computed from saved ones"
            )
        args = map_nodes(node.args, new.__getitem__)
        same = all(a is b for a, b in zip(args, node.args, strict=True))
        new[node] = build.add(node if same else node.with_args(args, node.meta))
    values = [_own_memory(build, new[v]) if type(v) is Node else None for _, v in gradients]
    return build.finish(values, [role for role, _ in gradients])


def _needed(gradients: list[tuple[Any, Any]], graph: Graph, saved: set[Node]) -> set[Node]:
    """What the gradients need, down to saved values and tangents."""
    needed = {value for _, value in gradients if type(value) is Node}
    for node in reversed(graph.nodes):
        if node in needed and node not in saved:
            needed.update(node.inputs())
    return needed


def _own_memory(build: Builder, value: Node) -> Node:
    """A gradient is never memory of a saved value or of a tangent: its holder may write it."""
    if storage_root(value).op == "call":
        return value
    build.source = value
    copy = build.emit(CLONE, (value,))
    build.source = None
    return copy
