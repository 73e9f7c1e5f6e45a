"""Networks made smaller without another minimum cut: what is left `flow_network.py` has a solver
solve.

Each value is a vertex of two halves, joined by an edge with the value's capacity; from a value to
its users lead edges without limit. A value may start at the source, and may end at the sink. Values
stand in execution order. Parallel edges add up, vertices that are on one side of the cut are one,
and each edge that is left knows the values that cutting it cuts. Spec: `specs/s8_mincut.md`.

Note [Reductions of the flow network]
    source -(17)- sin -(8)- exp -(8)- sink
A vertex with one edge in and one out is one edge, the smaller: of a chain one edge of 8 is left,
and no solver is asked. Of two cuts of equal weight the one next to the sink has to stay, since the
same graph shall always give the same saved values: so a vertex is merged with its operand if at
least as much comes in as leaves, but with its user only if more leaves than comes in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import combinations, count
from typing import Any

import attrs

SOURCE, SINK = "source", "sink"
UNLIMITED = math.inf

Vertex = int | str
Capacity = int | float
"""A whole number, or UNLIMITED."""
Tree = Any
"""The values that an edge stands for: a number, or a pair of trees."""
Edges = dict[Vertex, tuple[Capacity, Tree]]
"""Edges into one vertex, by where they come from."""
Carried = tuple[Vertex, Capacity, Tree]
"""The edge that leads out of a value, its head still open."""


@attrs.frozen(eq=False)
class ReducedNetwork:
    """Values numbered in execution order. Those that are not `live` are not part of it."""

    inputs: Sequence[Sequence[int]]
    capacities: Sequence[Capacity]
    live: Sequence[int]
    starts: Sequence[int]
    """Whether each value hangs on the source: then what it reads does not matter."""
    ends: Sequence[int]
    """Whether the sink reads it."""
    users: Sequence[int]
    """How many live values that do not hang on the source read it."""


def reduced(network: ReducedNetwork) -> dict[Vertex, Edges]:
    """The edges into each vertex that is left; the minimum cut next to the sink is the same."""
    return contracted(_collapsed(network))


# ------------------------------------------------------------------------------- one wide path
Link = tuple[Vertex, Vertex, Capacity]
"""An edge: from where, to where, how much."""


def cut_by_a_path(links: Sequence[Link]) -> list[int] | None:
    """The positions of the edges of the minimum cut, where one path tells it.

    Where all goes through one edge at the sink, and a path to there is as wide, that edge is cut:
    nothing is cheaper, or nearer to the sink. Where all comes through one edge at the source, and a
    path from there is wider, that one is: all other cuts are dearer.
    """
    first = [k for k, (origin, _, _) in enumerate(links) if origin == SOURCE]
    last = [k for k, (_, vertex, _) in enumerate(links) if vertex == SINK]
    if len(last) == 1:
        origin, _, capacity = links[last[0]]
        if _widest(links, SOURCE, origin) >= capacity:
            return last
    if len(first) == 1:
        _, vertex, capacity = links[first[0]]
        if _widest(links, vertex, SINK) > capacity:
            return first
    return None


def _widest(links: Sequence[Link], start: Vertex, end: Vertex) -> Capacity:
    """What the widest path carries."""
    near: dict[Vertex, list[tuple[Vertex, Capacity]]] = {}
    for origin, vertex, capacity in links:
        near.setdefault(origin, []).append((vertex, capacity))
    width: dict[Vertex, Capacity] = {start: UNLIMITED}
    turns = count()  # vertices of equal width are not compared
    work: list[tuple[Capacity, int, Vertex]] = [(-UNLIMITED, next(turns), start)]
    while work:
        narrow, _, origin = heappop(work)
        if origin == end:
            return -narrow
        for vertex, capacity in near.get(origin, ()):
            wide = min(-narrow, capacity)
            if wide > width.get(vertex, -1):
                width[vertex] = wide
                heappush(work, (-wide, next(turns), vertex))
    return 0


_TRIED = 5
"""With so many vertices, the sides that they can be on are looked at one by one."""


def cut_by_trying(links: Sequence[Link]) -> list[int] | None:
    """The positions of the edges of the minimum cut of a network that has few vertices.

    Of several the one next to the sink: it has the most vertices on the source's side.
    """
    ends = dict.fromkeys([end for origin, vertex, _ in links for end in (origin, vertex)])
    vertices = [end for end in ends if end not in (SOURCE, SINK)]
    if len(vertices) > _TRIED:
        return None
    found: list[tuple[Capacity, int, list[int]]] = []
    for size in range(len(vertices) + 1):
        for chosen in combinations(vertices, size):
            near = {SOURCE, *chosen}
            cut = [k for k, (o, v, _) in enumerate(links) if o in near and v not in near]
            found.append((sum([links[k][2] for k in cut]), -size, cut))
    return min(found)[2]


# ---------------------------------------------------------------------------------- in one walk
def _collapsed(network: ReducedNetwork) -> dict[Vertex, Edges]:
    """The edges into each vertex that is left after one walk in execution order.

    Chains become one edge, as do parallel edges that meet. Vertex 2i is where edges into value i
    meet, 2i + 1 is where edges out of it part.
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
    """The one edge that these are; a vertex is made where they come from several."""
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
"""So many edges into a vertex are looked at one by one."""
_ENDLESS = 1 << 200
"""What an edge without limit counts in sums, more than all others together."""
_SWEEPS, _GROUP = 20, 32
"""So often, and so many vertices at once, are groups looked at: what is left is a solver's."""


def contracted(into: dict[Vertex, Edges]) -> dict[Vertex, Edges]:
    """The network with vertices that are on one side of the cut as one, until none are.

    Every edge is moved a few times, as the vertex with fewer edges goes into the other.
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
    """A network, edges of which come and go."""

    def __init__(self) -> None:
        self.into: dict[Vertex, Edges] = {}
        self.users: dict[Vertex, dict[Vertex, None]] = {}
        self.entering: dict[Vertex, int] = {}
        """What all edges into a vertex can carry."""
        self.leaving: dict[Vertex, int] = {}
        self.work: list[Vertex] = []
        """Vertices some edge of which is new or gone."""

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
        """Merges groups with the sink, if there are any.

        A vertex cannot be on the sink's side without all from which edges without limit lead to it.
        If its edge to the sink carries more than what enters this group, it is there.
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
        """The same for groups that a vertex on the source's side takes along."""
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
        """The vertex with its near ones, and theirs; empty where these are many."""
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
        """What the vertex is on one side of the cut with, where that can be told.

        It follows what it reads if an edge from there carries all that leaves it: to cut what
        leaves costs no more, and is nearer to the sink. It goes before its user if an edge to there
        carries more than what arrives at it.
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
        """At most so much arrives: through an edge no more than enters where it begins."""
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
        """One edge more, unless no cut can have it."""
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


def _decisive(near: Mapping[Vertex, Any], end: Vertex) -> Vertex | None:
    """The neighbour that may decide for all: an end of the network, or the only one."""
    if end in near:
        return end
    return next(iter(near)) if len(near) == 1 else None


def _amount(capacity: Capacity) -> int:
    return _ENDLESS if capacity == UNLIMITED else int(capacity)


def _add(edges: Edges, origin: Vertex, capacity: Capacity, tree: Tree) -> None:
    """Parallel edges add up, and are cut together."""
    before = edges.get(origin)
    if before is None:
        edges[origin] = (capacity, tree)
    else:
        edges[origin] = (before[0] + capacity, (before[1], tree))


def leaves(tree: Tree) -> Iterator[int]:
    """The values that an edge stands for; one may come several times."""
    stack = [tree]
    while stack:
        each = stack.pop()
        if type(each) is tuple:
            stack += each
        else:
            yield each
