"""A joint graph by numbers: what stages that walk it many times look up once.

Shared by partitioners. Values are numbered as they stand in the graph; each list is aligned with
`nodes`. Rules: PART-16, PART-37. Spec: `specs/s8_mincut.md`.
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
    """A joint graph whose values are numbers."""

    graph: Graph
    inputs: list[list[int]]
    """What each node reads, without repeats."""
    results: list[tuple[Role, int]]
    """Outputs of the forward that are values."""
    gradients: list[tuple[Role, int]]
    """Outputs of the backward that are values: gradients, and what it writes."""

    def upstream(self, starts: Sequence[int], kept: Sequence[bool] = ()) -> list[bool]:
        """Whether each value is one of these or is read to compute them; what is kept is there."""
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
        """The tangents that each value depends on: bit k stands for the k-th tangent, or other
        input that only the backward has.
        """
        return _tangents(self.graph, self.inputs)

    @cached_property
    def every_tangent(self) -> int:
        """A mask of all tangents; at least one bit."""
        count = sum(type(node.role) in OF_BACKWARD for node in self.graph.nodes)
        return (1 << max(count, 1)) - 1

    @cached_property
    def roots(self) -> list[int]:
        """Whose memory each value is."""
        return _roots(self.graph, self.inputs)

    @cached_property
    def callers_memory(self) -> tuple[set[int], set[int]]:
        """Roots that are memory of the caller's after the call: all, and the overwritten ones."""
        return _callers_memory(self)

    @cached_property
    def lendable(self) -> set[int]:
        """Roots that the backward may read though eager's does not: they are copied before
        somebody writes them. None where the backward runs code, which may be what writes; and not
        what ndarrays show, which would have to be copied at each call, outside of any kernel.
        """
        return _lendable(self)


def numbered(graph: Graph) -> IndexedGraph:
    """The graph by numbers. Linear; the graph is functional."""
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


def _callers_memory(joint: IndexedGraph) -> tuple[set[int], set[int]]:
    inputs = {n.role: i for i, n in enumerate(joint.graph.nodes) if n.op == "placeholder"}
    others = OF_BACKWARD | {*RNG_INPUTS, Saved}
    held = {i for role, i in inputs.items() if type(role) not in others}
    written = {i for role, i in inputs.items() if type(role) is SyntheticBase}
    for role, i in joint.results:
        if isinstance(role, (Output, IntermediateBase, Part)):
            held.add(joint.roots[i])
        elif isinstance(role, MutatedInput) and role.of in inputs:
            written.add(inputs[role.of])
    return held, written


def _lendable(joint: IndexedGraph) -> set[int]:
    nodes = joint.graph.nodes
    if any(map(_is_code, nodes, joint.tangents)):
        return set()
    held, written = joint.callers_memory
    taken = {joint.roots[i] for role, i in joint.results if type(role) is MutatedInput}
    return {
        i
        for i in held - written - taken
        if nodes[i].op == "call"
        or (is_given(nodes[i].role) and nodes[i].role not in joint.graph.exported)
    }


def _is_code(node: Node, tangents: int) -> bool:
    """Whether the node is late memory of the backward, or an op of it that is no known kernel."""
    is_opaque = node.op == "call" and node.target.cost is Cost.OPAQUE
    return type(node.role) is Current or bool(is_opaque and tangents)
