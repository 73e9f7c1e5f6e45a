"""`IndexedGraph`: a joint graph as lists indexed by node number, for passes that walk it often.

Used by the partitioners. Node i is `graph.nodes[i]`; all lists are aligned with `nodes`.
Rules: PART-16, PART-37. Spec: `specs/s8_mincut.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from aotlite.ir.forks import cached_property
from aotlite.ir.graph import Graph, Node
from aotlite.ir.graph.role import (
    FROM_BACKWARD,
    OF_BACKWARD,
    RNG_INPUTS,
    Current,
    IntermediateBase,
    MutatedInput,
    Output,
    Part,
    Role,
    Saved,
    SyntheticBase,
    is_given,
)
from aotlite.ir.op import Cost
from aotlite.ir.ops.structure import GETITEM


@attrs.frozen(eq=False, slots=False)
class IndexedGraph:
    """A joint graph whose nodes are numbers."""

    graph: Graph
    inputs: list[list[int]]
    """The operands of each node, without repeats."""
    results: list[tuple[Role, int]]
    """Outputs of the forward that are values."""
    gradients: list[tuple[Role, int]]
    """Outputs of the backward that are values: gradients, and what it writes."""

    def upstream(self, starts: Sequence[int], kept: Sequence[bool] = ()) -> list[bool]:
        """For each node whether `starts` depend on it, not looking behind `kept` nodes."""
        found = [False] * len(self.inputs)
        kept = kept or found.copy()
        for i in starts:
            found[i] = True
        for i in range(len(found) - 2, -1, -1):
            if found[i] and not kept[i]:
                for p in self.inputs[i]:
                    found[p] = True
        return found

    @cached_property
    def tangents(self) -> list[int]:
        """The tangents that each node depends on, as bits; other backward inputs count as well."""
        return _tangents(self.graph, self.inputs)

    @cached_property
    def every_tangent(self) -> int:
        """A mask of all tangents; at least one bit."""
        count = sum(type(node.role) in OF_BACKWARD for node in self.graph.nodes)
        return (1 << max(count, 1)) - 1

    @cached_property
    def roots(self) -> list[int]:
        """For each node the node whose memory it is on: itself, unless it is a view."""
        return _roots(self.graph, self.inputs)

    @cached_property
    def callers_memory(self) -> tuple[set[int], set[int]]:
        """(held, written): roots on memory that the caller holds, and inputs that are written."""
        return _callers_memory(self)

    @cached_property
    def copiable_on_write(self) -> set[int]:
        """Roots on the caller's memory that may be saved without a copy, although eager would not
        save them: a write to them makes the copy (PART-37).
        None if the backward runs users' code, which may be what writes. No input that an ndarray
        shares: NumPy's writes are not noticed."""
        return _copiable_on_write(self)


def numbered(graph: Graph) -> IndexedGraph:
    """The indexed form of a functional graph, in linear time."""
    numbers: dict[Node, int] = {}
    inputs = _inputs(graph, numbers)
    results: list[tuple[Role, int]] = []
    gradients: list[tuple[Role, int]] = []
    for role, value in zip(graph.output_roles, graph.outputs, strict=True):
        if type(value) is Node:
            into = gradients if type(role) in FROM_BACKWARD else results
            into.append((role, numbers[value]))
    return IndexedGraph(graph, inputs, results, gradients)


def _inputs(graph: Graph, numbers: dict[Node, int]) -> list[list[int]]:
    inputs: list[list[int]] = []
    for i, node in enumerate(graph.nodes):
        numbers[node] = i
        found: list[int] = []
        for value in node.args:
            if type(value) is Node:
                found.append(numbers[value])
            elif type(value) is tuple:
                found += [numbers[item] for item in value if type(item) is Node]
        if len(found) > 1:
            found = list(dict.fromkeys(found)) if len(found) > 2 or found[0] == found[1] else found
        inputs.append(found)
    return inputs


def _tangents(graph: Graph, inputs: list[list[int]]) -> list[int]:
    masks: list[int] = []
    count = 0
    for node, read in zip(graph.nodes, inputs, strict=True):
        mask = 0
        for i in read:
            mask |= masks[i]
        if type(node.role) in OF_BACKWARD:
            mask, count = 1 << count, count + 1
        masks.append(mask)
    return masks


def _roots(graph: Graph, inputs: list[list[int]]) -> list[int]:
    roots: list[int] = []
    for i, node in enumerate(graph.nodes):
        if node.op != "call":
            roots.append(i)
            continue
        source = node.args[0].target if node.target is GETITEM else node.target
        roots.append(roots[inputs[i][0]] if getattr(source, "views", False) else i)
    return roots


def _callers_memory(indexed: IndexedGraph) -> tuple[set[int], set[int]]:
    inputs = {n.role: i for i, n in enumerate(indexed.graph.nodes) if n.op == "placeholder"}
    others = OF_BACKWARD | {*RNG_INPUTS, Saved}
    held = {i for role, i in inputs.items() if type(role) not in others}
    written = {i for role, i in inputs.items() if type(role) is SyntheticBase}
    for role, i in indexed.results:
        if isinstance(role, (Output, IntermediateBase, Part)):
            held.add(indexed.roots[i])
        elif isinstance(role, MutatedInput) and role.of in inputs:
            written.add(inputs[role.of])
    return held, written


def _copiable_on_write(indexed: IndexedGraph) -> set[int]:
    nodes = indexed.graph.nodes
    if any(map(_is_code, nodes, indexed.tangents)):
        return set()
    held, written = indexed.callers_memory
    taken = {indexed.roots[i] for role, i in indexed.results if type(role) is MutatedInput}
    return {
        i
        for i in held - written - taken
        if nodes[i].op == "call"
        or (is_given(nodes[i].role) and nodes[i].role not in indexed.graph.exported)
    }


def _is_code(node: Node, tangents: int) -> bool:
    """Whether the node is a `Current` input of the backward, or an opaque op in it."""
    is_opaque = node.op == "call" and node.target.cost is Cost.OPAQUE
    return type(node.role) is Current or bool(is_opaque and tangents)
