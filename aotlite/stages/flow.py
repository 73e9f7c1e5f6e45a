"""Maximum flows, which show minimum cuts: Dinitz's algorithm on plain lists.

What `networks.py` solves with where nobody names a solver; importing networkx takes longer than
all of a compilation. Every maximum flow leaves the same cut next to the sink, so which algorithm
finds it does not matter. Source: Dinitz 1970, with distances to the sink. Spec:
`specs/s8_mincut.md`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

Edge = tuple[Hashable, Hashable, int | float]
"""From, to, capacity: a whole number or infinity."""


def source_side(edges: Sequence[Edge], source: Hashable, sink: Hashable) -> set[Hashable]:
    """The vertices on the source's side of the minimum cut that is next to the sink.

    There must be no path of infinite edges.

    >>> sorted(source_side([("s", "a", 3), ("a", "b", 2), ("b", "t", 2)], "s", "t"))
    ['a', 'b', 's']
    """
    network = _Residual(edges, source, sink)
    while network.measured():
        while network.augmented():
            pass
    return {vertex for vertex, place in network.places.items() if network.distance[place] < 0}


class _Residual:
    """What may still flow: edge `e` and its reverse `e ^ 1`."""

    def __init__(self, edges: Sequence[Edge], source: Hashable, sink: Hashable) -> None:
        self.places: dict[Hashable, int] = {source: 0, sink: 1}
        self.heads: list[int] = []
        self.room: list[int | float] = []
        self.out: list[list[int]] = [[], []]
        """The edges, reverse ones too, out of each vertex."""
        for origin, vertex, capacity in edges:
            self._add(self._place(origin), self._place(vertex), capacity)

    def _place(self, vertex: Hashable) -> int:
        place = self.places.setdefault(vertex, len(self.places))
        if place == len(self.out):
            self.out.append([])
        return place

    def _add(self, origin: int, vertex: int, capacity: int | float) -> None:
        self.out[origin].append(len(self.heads))
        self.out[vertex].append(len(self.heads) + 1)
        self.heads += [vertex, origin]
        self.room += [capacity, 0]

    def measured(self) -> bool:
        """Measures how many edges each vertex is from the sink, -1 for no way; whether the source
        has one."""
        self.distance = [-1] * len(self.out)
        self.distance[1] = 0
        self.next = [0] * len(self.out)
        found = [1]
        for vertex in found:
            for edge in self.out[vertex]:
                origin = self.heads[edge]
                if self.distance[origin] < 0 and self.room[edge ^ 1]:
                    self.distance[origin] = self.distance[vertex] + 1
                    found.append(origin)
        return self.distance[0] >= 0

    def augmented(self) -> bool:
        """Sends what one shortest path takes; False where none is left."""
        path: list[int] = []
        vertex = 0
        while vertex != 1:
            edge = self._step(vertex)
            if edge is not None:
                path.append(edge)
                vertex = self.heads[edge]
            elif path:
                vertex = self.heads[path.pop() ^ 1]
                self.next[vertex] += 1
            else:
                return False
        amount = min([self.room[edge] for edge in path])
        for edge in path:
            self.room[edge] -= amount
            self.room[edge ^ 1] += amount
        return True

    def _step(self, vertex: int) -> int | None:
        """The next edge that leads one nearer to the sink; edges before it are of no use."""
        edges = self.out[vertex]
        while self.next[vertex] < len(edges):
            edge = edges[self.next[vertex]]
            if self.room[edge] and self.distance[self.heads[edge]] == self.distance[vertex] - 1:
                return edge
            self.next[vertex] += 1
        return None
