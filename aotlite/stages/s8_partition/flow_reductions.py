"""Exact reductions of a flow network: fewer vertices and edges, and the same minimum cut.

Each value is two vertices, joined by an edge with the value's capacity; edges to its users have
unlimited capacity. A value may hang on the source, and the sink may read it. Values are in
execution order. Parallel edges are added, vertices known to be on one side of the cut are merged,
and each remaining edge keeps the values that it stands for. A solver gets the rest
(`flow_network.py`). Spec: `specs/s8_mincut.md`.

Note [Reductions of the flow network]
    source -(17)- sin -(8)- exp -(8)- sink
A vertex with one edge in and one out becomes one edge, of the smaller capacity: of a chain one edge
of 8 is left, and no solver runs. Of two cuts of equal weight the one nearest to the sink has to be
found, so that equal graphs save equal values. So a vertex is merged with its operand if the
capacity in is at least the capacity out, but with its user only if the capacity out is greater.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
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
    """The edges of the reduced network; its minimum cut nearest to the sink is the same."""
    return contracted(_collapsed(network))


# ----------------------------------------------------------------------------------- narrow parts
Link = tuple[Vertex, Vertex, Capacity]
"""(from, to, capacity)."""
_WIDTH = 4
"""The most neighbors of a vertex that is eliminated; a solver gets wider parts."""
_Table = tuple[tuple[Vertex, ...], list[int]]
"""(vertices, a cost for each choice of their sides): bit k of an index says whether vertex k is on
the source's side."""


def cut_by_elimination(links: Sequence[Link]) -> list[int] | None:
    """The indices of the edges of the minimum cut, vertex by vertex; None if the part is wide.

    The best side of a vertex depends on the sides of its neighbors alone. A table of what this side
    costs takes the place of the vertex and its edges; the vertex with the fewest neighbors is next.
    Of equal cuts the one nearest to the sink: it has the most vertices on the source's side.
    """
    tables = _costs_of(links)
    near = {each: {end for scope, _ in own for end in scope} for each, own in tables.items()}
    work = [(len(around), place, each) for place, (each, around) in enumerate(near.items())]
    heapify(work)
    places = {each: place for _, place, each in work}
    chosen: list[tuple[Vertex, tuple[Vertex, ...], list[int]]] = []
    while work:
        degree, _, vertex = heappop(work)
        if vertex not in near or degree != len(near[vertex]):
            continue  # eliminated, or it has another place in the order by now
        around = near.pop(vertex) - {vertex}
        if len(around) > _WIDTH:
            return None
        scope = tuple(sorted(around, key=places.__getitem__))
        costs, sides = _without(vertex, scope, tables)
        chosen.append((vertex, scope, sides))
        for each in scope:
            near[each] |= around
            near[each].discard(vertex)
            tables[each].append((scope, costs))
            heappush(work, (len(near[each]), places[each], each))
    side: dict[Vertex, int] = {SOURCE: 1, SINK: 0}
    for vertex, scope, sides in reversed(chosen):
        side[vertex] = sides[sum([side[each] << bit for bit, each in enumerate(scope)])]
    return [k for k, (origin, vertex, _) in enumerate(links) if side[origin] > side[vertex]]


def _costs_of(links: Sequence[Link]) -> dict[Vertex, list[_Table]]:
    """The tables of each vertex: of its edges, and of itself. A unit is a vertex far from the sink;
    the smallest capacity is more than all of them."""
    ends = dict.fromkeys([end for origin, vertex, _ in links for end in (origin, vertex)])
    tables: dict[Vertex, list[_Table]] = {}
    for each in ends:
        if each not in (SOURCE, SINK):
            tables[each] = [((each,), [0, -1])]
    for origin, vertex, capacity in links:
        cost = _amount(capacity) * (len(ends) + 1)
        if origin == SOURCE:
            table: _Table = ((vertex,), [cost, 0])
        elif vertex == SINK:
            table = ((origin,), [0, cost])
        else:
            table = ((origin, vertex), [0, cost, 0, 0])
        for each in table[0]:
            tables[each].append(table)
    return tables


def _without(
    vertex: Vertex, scope: tuple[Vertex, ...], tables: dict[Vertex, list[_Table]]
) -> tuple[list[int], list[int]]:
    """(costs, sides): for each choice of the sides of `scope` the least cost of what `vertex` has,
    and the side of the vertex that has it. Its tables leave those of all vertices."""
    own = tables.pop(vertex)
    for each in scope:
        tables[each] = [table for table in tables[each] if vertex not in table[0]]
    bits = {each: bit for bit, each in enumerate((*scope, vertex))}
    sums = [0] * (2 << len(scope))
    for ends, costs in own:
        shifts = [(bits[each], bit) for bit, each in enumerate(ends)]
        for index in range(len(sums)):
            sums[index] += costs[sum([(index >> own_bit & 1) << bit for own_bit, bit in shifts])]
    half = len(sums) // 2
    pairs = list(zip(sums[:half], sums[half:], strict=True))
    return [min(pair) for pair in pairs], [int(near < far) for far, near in pairs]


# ---------------------------------------------------------------------------------- in one walk
def _collapsed(network: ReducedNetwork) -> dict[Vertex, Edges]:
    """Merges chains and parallel edges in one walk in execution order; the edges that are left.

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


# -------------------------------------------------------------------------------- contractions
_FEW = 8
"""With at most this many edges into a vertex, each is bounded by what enters its origin."""
_ENDLESS = 1 << 200
"""The amount of an unlimited edge in sums: more than all others together."""
_SWEEPS, _GROUP = 20, 32
"""The most sweeps for groups, and the largest group; a solver gets what is left."""


def contracted(into: dict[Vertex, Edges]) -> dict[Vertex, Edges]:
    """Merges vertices that are known to be on one side of the cut, until there are none.

    Near-linear: the vertex with fewer edges is merged into the other.
    """
    left = _Contracted()
    for vertex, edges in into.items():
        for origin, edge in edges.items():
            left.add(origin, vertex, *edge)
    left.contract()
    for _ in range(_SWEEPS):
        if not (left.join_the_sink() or left.join_the_source()):
            break
    return {SINK: {}, **{vertex: edges for vertex, edges in left.into.items() if edges}}


class _Contracted:
    """A mutable network, whose vertices are merged."""

    def __init__(self) -> None:
        self.into: dict[Vertex, Edges] = {}
        self.users: dict[Vertex, dict[Vertex, None]] = {}
        self.entering: dict[Vertex, int] = {}
        """The total capacity of the edges into a vertex."""
        self.leaving: dict[Vertex, int] = {}
        """The total capacity of the edges out of a vertex."""
        self.work: list[Vertex] = []
        """Vertices with a changed edge, to look at again."""

    def contract(self) -> None:
        work = self.work
        while work:
            vertex = work.pop()
            if vertex in (SOURCE, SINK) or not (self.into.get(vertex) or self.users.get(vertex)):
                continue
            other = self._on_one_side(vertex)
            if other is None:
                continue
            if other not in (SOURCE, SINK) and self._degree(vertex) > self._degree(other):
                vertex, other = other, vertex
            self._merge(vertex, other)

    def join_the_sink(self) -> bool:
        """Merges groups with the sink; whether there were any.

        A vertex is on the sink's side only with all vertices that have unlimited edges to it. If
        its edge to the sink has more capacity than all edges into this group, it is there.
        """
        found = False
        for vertex in list(self.into.get(SINK, ())):
            edge = self.into[SINK].get(vertex)
            if vertex == SOURCE or edge is None:
                continue
            group = self._group(vertex, self._read_without_limit)
            entering = sum(
                _amount(self.into[each][origin][0])
                for each in group
                for origin in self.into.get(each, ())
                if origin not in group
            )
            if group and edge[0] > entering:
                self._join(group, SINK)
                found = True
        return found

    def join_the_source(self) -> bool:
        """Merges groups with the source; whether there were any. The mirror of `join_the_sink`."""
        found = False
        for vertex in list(self.users.get(SOURCE, ())):
            edge = self.into[vertex].get(SOURCE)
            if vertex == SINK or edge is None:
                continue
            group = self._group(vertex, self._used_without_limit)
            leaving = sum(
                _amount(self.into[user][each][0])
                for each in group
                for user in self.users.get(each, ())
                if user not in group
            )
            if group and edge[0] >= leaving:
                self._join(group, SOURCE)
                found = True
        return found

    def _join(self, group: set[Vertex], end: Vertex) -> None:
        for each in group:
            self._merge(each, end)
        self.contract()

    def _group(self, vertex: Vertex, near: Callable[[Vertex], list[Vertex]]) -> set[Vertex]:
        """The closure of a vertex under `near`; empty if it is large."""
        group, stack = {vertex}, [vertex]
        while stack and len(group) <= _GROUP:
            more = [each for each in near(stack.pop()) if each not in group]
            group.update(more)
            stack += more
        return group if len(group) <= _GROUP else set()

    def _read_without_limit(self, vertex: Vertex) -> list[Vertex]:
        into = self.into.get(vertex, {})
        return [o for o, (limit, _) in into.items() if limit == UNLIMITED and o != SOURCE]

    def _used_without_limit(self, vertex: Vertex) -> list[Vertex]:
        users = self.users.get(vertex, ())
        return [u for u in users if self.into[u][vertex][0] == UNLIMITED and u != SINK]

    def _on_one_side(self, vertex: Vertex) -> Vertex | None:
        """A vertex that is on the same side of the cut; None if none is known.

        Its operand, if the edge from it has at least the capacity of all edges out: cutting those
        costs no more, and is nearer to the sink. Its user, if the edge to it has more capacity than
        all edges in.
        """
        into, users = self.into.get(vertex), self.users.get(vertex)
        if not into:
            return SINK
        if not users:
            return SOURCE
        origin = _decisive(into, SOURCE)
        if origin is not None and into[origin][0] >= self.leaving[vertex]:
            return origin
        user = _decisive(users, SINK)
        if user is not None and self.into[user][vertex][0] > self._arriving(vertex, into):
            return user
        return None

    def _arriving(self, vertex: Vertex, into: Edges) -> int:
        """An upper bound of the flow into a vertex: at most what enters its origin."""
        if len(into) > _FEW:
            return self.entering[vertex]
        amounts = [(_amount(into[origin][0]), origin) for origin in into]
        return sum([min(amount, self.entering.get(origin, amount)) for amount, origin in amounts])

    def _degree(self, vertex: Vertex) -> int:
        return len(self.into.get(vertex, ())) + len(self.users.get(vertex, ()))

    def _merge(self, gone: Vertex, kept: Vertex) -> None:
        for origin in list(self.into.get(gone, ())):
            self.add(origin, kept, *self._removed(origin, gone))
        for user in list(self.users.get(gone, ())):
            self.add(kept, user, *self._removed(gone, user))

    def add(self, origin: Vertex, vertex: Vertex, capacity: Capacity, tree: Tree) -> None:
        """Adds an edge, unless no cut can contain it."""
        if origin == vertex or origin == SINK or vertex == SOURCE:
            return
        edges = self.into.setdefault(vertex, {})
        before = _amount(edges[origin][0]) if origin in edges else 0
        _add(edges, origin, capacity, tree)
        self.users.setdefault(origin, {})[vertex] = None
        self._count(origin, vertex, _amount(edges[origin][0]) - before)

    def _removed(self, origin: Vertex, vertex: Vertex) -> tuple[Capacity, Tree]:
        edge = self.into[vertex].pop(origin)
        del self.users[origin][vertex]
        self._count(origin, vertex, -_amount(edge[0]))
        return edge

    def _count(self, origin: Vertex, vertex: Vertex, amount: int) -> None:
        self.leaving[origin] = self.leaving.get(origin, 0) + amount
        self.entering[vertex] = self.entering.get(vertex, 0) + amount
        self.work += (vertex, origin)


def _decisive(near: Mapping[Vertex, object], end: Vertex) -> Vertex | None:
    """The neighbor to compare with: an end of the network, or the only neighbor."""
    if end in near:
        return end
    return next(iter(near)) if len(near) == 1 else None


def _amount(capacity: Capacity) -> int:
    return _ENDLESS if capacity == UNLIMITED else int(capacity)


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
