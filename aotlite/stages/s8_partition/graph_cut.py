"""`cut`: the forward and backward graphs of a partition, given the values to save.

Every partitioner ends with it, a user's as well. The forward returns the saved values as its last
outputs; the backward takes them as inputs, and recomputes the other forward values that it needs.
Rules: PART-1..PART-9, PART-26, PART-31, SAV-1. Spec: `specs/s8_partition.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from aotlite.ir.errors import ArgumentError, TokenError, noted
from aotlite.ir.graph import Graph, Node, Phase
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.effect_chains import is_effect
from aotlite.ir.graph.role import (
    FROM_BACKWARD,
    OF_BACKWARD,
    Current,
    Gradient,
    IntermediateBase,
    MutatedInput,
    Output,
    Part,
    Rewritten,
    Role,
    Saved,
    SyntheticBase,
    is_given,
    is_number,
)
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.shape.copies import CLONE, RESTRIDE
from aotlite.stages.records.backward.partition import Partition, SavedValue
from aotlite.stages.s8_partition.indexed_graph import IndexedGraph, numbered
from aotlite.stages.s8_partition.saved_memory import recomputed_from, unchecked_values
from aotlite.stages.shared.user_frames import describe


def cut(
    graph: Graph, saved: dict[Node, str] | Iterable[Node], *, indexed: IndexedGraph | None = None
) -> Partition:
    """The partition that saves these nodes; the backward recomputes the rest from them.
    `saved` has the reason for each node; a node that the backward does not use is not saved.
    `indexed` is the indexed graph, if the caller has it. Raises ArgumentError if the gradients
    cannot be computed from the saved nodes and the tangents, or if a result needs a tangent."""
    reasons = dict(saved) if isinstance(saved, dict) else dict.fromkeys(saved, "chosen")
    indexed = numbered(graph) if indexed is None else indexed
    kept = [node in reasons for node in graph.nodes]
    needed = needed_values(indexed, kept)
    order = [i for i, is_kept in enumerate(kept) if is_kept and needed[i]]
    names = graph.names
    nodes = [graph.nodes[i] for i in order]
    saving = {n: Saved(k, names[n], is_number(n.role)) for k, n in enumerate(nodes)}
    unchecked = unchecked_values(indexed, needed, kept)
    sources = recomputed_from(indexed, needed, kept)
    forward, owners = _forward(indexed, order, list(saving.values()), unchecked)
    backward = _backward(graph, saving, list(_in_time(indexed, needed, kept)))
    values = [
        SavedValue(
            role.name,
            node.meta,  # type: ignore[arg-type]
            owner,
            reasons[node],
            copied_on_write=owner is not None and i in unchecked,
            byte_checked=owner is not None and i not in unchecked and indexed.roots[i] in sources,
        )
        for i, (node, role), owner in zip(order, saving.items(), owners, strict=True)
    ]
    return Partition(forward, backward, tuple(values))


def needed_values(indexed: IndexedGraph, kept: list[bool]) -> list[bool]:
    """For each node whether the gradients depend on it, not looking behind `kept` nodes."""
    return indexed.upstream([i for _, i in indexed.gradients], kept)


# -------------------------------------------------------------------------------------- forward
def _forward(
    indexed: IndexedGraph, saved: list[int], saving: list[Saved], unchecked: set[int]
) -> tuple[Graph, list[Any]]:
    """The forward graph, and for each saved value the role that owns its memory, if one does."""
    graph = indexed.graph
    results = [
        (role, value)
        for role, value in zip(graph.output_roles, graph.outputs, strict=True)
        if type(role) not in FROM_BACKWARD
    ]
    build = Builder(f"{graph.name}_forward")
    build.nodes = list(_forward_nodes(indexed, saved))
    owners = _owners(results)
    written = {role.of for role, _ in results if isinstance(role, MutatedInput)}
    values = [value for _, value in results]
    linked: list[object] = []
    for i in saved:
        node, root = graph.nodes[i], graph.nodes[indexed.roots[i]]
        owner = root.role if is_given(root.role) else owners.get(root)
        # PART-31: the memory of a written input holds the new value when the backward runs.
        is_written = owner in written or type(root.role) is SyntheticBase
        if is_written or (i in unchecked and indexed.roots[i] not in indexed.copiable_on_write):
            build.source = node
            node, owner = _copied(build, node), None
        values.append(node)
        linked.append(owner)
    return build.finish(values, [*(role for role, _ in results), *saving]), linked


def _copied(build: Builder, node: Node) -> Node:
    """A copy with the strides of the value, which the backward's placeholder has."""
    meta: TensorMeta = node.meta  # type: ignore[assignment]
    if meta.contiguous:
        return build.emit(CLONE, (node,))
    return build.emit(RESTRIDE, (node, meta.stride))


def _forward_nodes(indexed: IndexedGraph, saved: list[int]) -> Iterator[Node]:
    """The inputs, and the calls that results and saved values depend on, in order (PART-2)."""
    wanted = indexed.upstream([*saved, *[i for _, i in indexed.results]])
    for node, is_wanted in zip(indexed.graph.nodes[:-1], wanted, strict=False):
        if type(node.role) in OF_BACKWARD:
            if is_wanted:
                raise ArgumentError(
                    f"partition: a result of the forward needs {node.role}, which only the "
                    "backward has, expected results that are computed from the inputs"
                )
        elif is_wanted or node.op == "placeholder":
            yield node


def _owners(results: Sequence[tuple[Role, object]]) -> dict[Node, Any]:
    """The results, by the node that made their memory; new values of arguments are copied later."""
    owners: dict[Node, Any] = {}
    for role, value in results:
        if isinstance(role, (Output, IntermediateBase, MutatedInput, Part)) and type(value) is Node:
            owners.setdefault(storage_root(value), role)
    return owners


# ------------------------------------------------------------------------------------- backward
def _backward(graph: Graph, saving: dict[Node, Saved], order: list[int]) -> Graph | None:
    results = graph.outputs_with(tuple(FROM_BACKWARD))
    if not results:
        return None
    build = Builder(f"{graph.name}_backward")
    new = {
        node: build.add(Node("placeholder", role, meta=node.meta, role=role, origin=node))
        for node, role in saving.items()
    }
    build.nodes += [node for node in graph.nodes if type(node.role) in OF_BACKWARD]
    for i in order:
        node = graph.nodes[i]
        args = _replaced(node.args, new)
        if args != node.args:
            new[node] = node.with_args(args, node.meta)
        build.nodes.append(new.get(node, node))
    copies: dict[Node, Node] = {}
    values = [
        _own_memory(build, role, new.get(value, value), copies) if type(value) is Node else None
        for role, value in results
    ]
    return build.finish(values, [role for role, _ in results])


def _replaced(args: tuple[Any, ...], new: dict[Node, Node]) -> tuple[object, ...]:
    """Arguments with replaced nodes."""
    found = []
    for value in args:
        kind = type(value)
        if kind is Node:
            value = new.get(value, value)
        elif kind is tuple:
            value = _replaced(value, new)
        found.append(value)
    return tuple(found)


def _in_time(indexed: IndexedGraph, needed: list[bool], kept: list[bool]) -> Iterator[int]:
    """The calls of the backward in order; a recomputed call stands before its first user (PART-26).
    So recomputed values live as short as possible."""
    waiting: dict[int, None] = {}
    for i, node in enumerate(indexed.graph.nodes[:-1]):
        if not needed[i] or kept[i] or type(node.role) in OF_BACKWARD:
            continue
        if node.op == "placeholder":
            raise ArgumentError(
                f"partition: a gradient needs the input {node.role}, which is not saved, expected "
                "every needed value to be saved or computed from saved ones"
            )
        if node.phase is Phase.FORWARD:
            if is_effect(node):
                raise _twice(node)
            waiting[i] = None
            continue
        if waiting:
            yield from _taken(i, indexed.inputs, waiting)
        yield i
    yield from waiting


def _twice(node: Node) -> TokenError:
    op = node.target
    return noted(
        TokenError(
            f"partition: the backward would run {op.of} again, an effect {op.effect!r} of the "
            "forward, expected its results among the saved values"
        ),
        describe(node.location),
        "Effects happen exactly once: save what the backward needs of them. (PART-23, TOK-6)",
    )


def _taken(reader: int, inputs: list[list[int]], waiting: dict[int, None]) -> list[int]:
    """Removes from `waiting` the calls that `reader` depends on; returns them in order."""
    found: list[int] = []
    stack = [reader]
    while stack:
        for p in inputs[stack.pop()]:
            if p in waiting:
                del waiting[p]
                found.append(p)
                stack.append(p)
    found.sort()
    return found


def _own_memory(build: Builder, role: Role, value: Node, copies: dict[Node, Node]) -> Node:
    """A copy of a gradient that is a saved value or a tangent: the user may write a gradient.
    Likewise for a `Rewritten` output, unless the memory keeps its value.

    Gradients that are one value are one copy, as they are one tensor in eager (SIM-8).
    """
    if storage_root(value).op == "call" or _is_kept(role, value):
        return value
    if value in copies and type(role) is Gradient:
        return copies[value]
    build.source = value
    copy = build.emit(CLONE, (value,))
    build.source = None
    if type(role) is Gradient:
        copies[value] = copy
    return copy


def _is_kept(role: Role, value: Node) -> bool:
    """Whether an output says that memory keeps the value that it had."""
    return type(role) is Rewritten and value.role == Current(role.of)
