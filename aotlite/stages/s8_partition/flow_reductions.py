"""Exact reductions of a flow network: fewer vertices and edges, and the same minimum cut.

Each value is two vertices, joined by an edge with the value's capacity; edges to its users have
unlimited capacity. A value may hang on the source, and the sink may read it. Values are in
execution order. Chains become one edge, parallel edges are added, and each remaining edge keeps the
values that it stands for. A solver gets the rest (`flow_network.py`). Spec: `specs/s8_mincut.md`.

Note [Reductions of the flow network]
    source -(17)- sin -(8)- exp -(8)- sink
A vertex with one edge in and one out becomes one edge, of the smaller capacity: of a chain one edge
of 8 is left. Of two cuts of equal weight the one nearest to the sink has to be found, so that equal
graphs save equal values. So of two edges of equal capacity the edge nearer to the sink remains.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

SOURCE, SINK = "source", "sink"
UNLIMITED = math.inf

Vertex = int | str
Capacity = int | float
"""An integer, or UNLIMITED."""
Tree = Any
"""The values that an edge stands for: a number, or a pair of trees."""
Edges = dict[Vertex, tuple[Capacity, Tree]]
"""The edges into one vertex, by origin."""
Carried = tuple[Vertex, Capacity, Tree]
"""(origin, capacity, values) of the edge out of a value whose head is not known yet."""


@attrs.frozen(eq=False)
class ReducedNetwork:
    """A flow network of values, numbered in execution order; only `live` ones are part of it."""

    inputs: Sequence[Sequence[int]]
    capacities: Sequence[Capacity]
    live: Sequence[int]
    starts: Sequence[int]
    """Whether each value hangs on the source: then its operands do not matter."""
    ends: Sequence[int]
    """Whether the sink reads the value."""
    users: Sequence[int]
    """The number of live users that do not hang on the source."""


def reduced(network: ReducedNetwork) -> dict[Vertex, Edges]:
    """Merges chains and parallel edges in one walk in execution order; the edges that are left.

    The minimum cut of the reduced network nearest to the sink is that of the whole one.

    Vertex 2i is the head of edges into value i, vertex 2i + 1 the tail of edges out of it.
    """
    into: dict[Vertex, Edges] = {SINK: {}}
    carried: list[Carried | None] = [None] * len(network.capacities)
    start: Carried = (SOURCE, UNLIMITED, None)
    capacities, starts, ends, users = (
        network.capacities,
        network.starts,
        network.ends,
        network.users,
    )
    for i, is_live in enumerate(network.live):
        if not is_live:
            continue
        read = network.inputs[i]
        if starts[i]:
            arriving: Carried | None = start
        elif len(read) == 1:
            arriving = carried[read[0]]
        else:
            arriving = _joined(into, 2 * i, [carried[p] for p in read])
        if arriving is None:
            continue
        origin, limit, tree = arriving
        if capacities[i] <= limit:
            limit, tree = capacities[i], i
        if ends[i]:
            _add(into[SINK], origin, limit, tree)
        elif users[i] == 1:
            carried[i] = (origin, limit, tree)
        else:
            into[2 * i + 1] = {origin: (limit, tree)}
            carried[i] = (2 * i + 1, UNLIMITED, None)
    return into


def _joined(
    into: dict[Vertex, Edges], vertex: Vertex, arriving: list[Carried | None]
) -> Carried | None:
    """The edge that merges these; a new vertex if they come from several origins."""
    edges: Edges = {}
    for each in arriving:
        if each is not None:
            _add(edges, *each)
    if len(edges) > 1:
        into[vertex] = edges
        return (vertex, UNLIMITED, None)
    for origin, (limit, tree) in edges.items():
        return (origin, limit, tree)
    return None


def _add(edges: Edges, origin: Vertex, capacity: Capacity, tree: Tree) -> None:
    """Adds an edge to those into a vertex; capacities of parallel edges are added."""
    before = edges.get(origin)
    if before is None:
        edges[origin] = (capacity, tree)
    else:
        edges[origin] = (before[0] + capacity, (before[1], tree))


def leaves(tree: Tree) -> Iterator[int]:
    """The values that an edge stands for, possibly with repeats."""
    stack = [tree]
    while stack:
        each = stack.pop()
        if type(each) is tuple:
            stack += each
        else:
            yield each
