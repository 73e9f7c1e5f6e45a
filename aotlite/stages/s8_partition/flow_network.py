"""Minimum cuts of flow networks, by the push-relabel algorithm or by a solver of the user's.

Knows numbers only, no graphs: `recompute_costs.py` makes the network, `flow_reductions.py` makes it
smaller first. Spec: `specs/s8_mincut.md`.

Note [Push-relabel]
Vertices may hold an excess: more flow enters than leaves. The height of a vertex is a lower bound
of its distance to the sink over edges with room left. A vertex with an excess pushes it along edges
that lead one step down; where none is left, its height grows. An excess that no edge takes to the
sink stays where it is, since only the cut is asked for. Heights become exact distances again
whenever that is paid for by the work done since (A. V. Goldberg and R. E. Tarjan 1988; B. V.
Cherkassky and A. V. Goldberg 1997). networkx has the algorithm, too, but its import takes longer
than the rest of a compilation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from aotlite.ir.errors import ArgumentError, noted
from aotlite.stages.s8_partition.flow_reductions import (
    SINK,
    SOURCE,
    UNLIMITED,
    Capacity,
    ReducedNetwork,
    Vertex,
    leaves,
    reduced,
)

Solver = Callable[[Any, Vertex, Vertex], tuple[Any, tuple[Any, Any]]]
"""(networkx.DiGraph, source, sink) to (value of the cut, (source side, sink side))."""
BUILT_IN = "push_relabel"
"""The name of the solver that is used where the user names none: `push_relabel` of this file."""
ALGORITHMS = (
    "boykov_kolmogorov",
    "dinitz",
    "edmonds_karp",
    "preflow_push",
    "shortest_augmenting_path",
)
"""The names of networkx algorithms that `solver=` accepts."""
Link = tuple[Vertex, Vertex, Capacity]
"""(from, to, capacity)."""


@attrs.frozen
class FlowCut:
    """A minimum cut: its weight, the values to save, and the number of edges of the network."""

    weight: Capacity
    values: tuple[int, ...]
    edges: int


def minimum_cut(network: ReducedNetwork, solver: Solver | str = BUILT_IN) -> FlowCut:
    """The minimum cut; among several the one nearest to the sink, as networkx returns it.

    A cut of finite weight has to exist: check with `unlimited_path`.
    """
    into = reduced(network)
    links = [(o, v, capacity) for v, edges in into.items() for o, (capacity, _) in edges.items()]
    near = push_relabel(links) if solver == BUILT_IN else _solved(links, solver)
    cut = [into[v][o] for o, v, _ in links if o in near and v not in near]
    values = {value for _, tree in cut for value in leaves(tree)}
    if not all(network.capacities[i] for i in values):
        values = _needed(network, values)
    return FlowCut(sum(capacity for capacity, _ in cut), tuple(sorted(values)), len(links))


def _needed(network: ReducedNetwork, values: set[int]) -> set[int]:
    """The values of a cut without empty ones that are only reached through other values of it."""
    passed: set[int] = set()
    needed: set[int] = set()
    for i, is_live in enumerate(network.live):
        if is_live and (network.starts[i] or not passed.isdisjoint(network.inputs[i])):
            (needed if i in values else passed).add(i)
    return needed


def unlimited_path(network: ReducedNetwork) -> list[int]:
    """A path of values of unlimited capacity from source to sink; empty if there is none.

    With such a path no cut of finite weight exists.
    """
    before: dict[int, int | None] = {}
    for i, capacity in enumerate(network.capacities):
        if not network.live[i] or capacity != UNLIMITED:
            continue
        if network.starts[i]:
            before[i] = None
        else:
            found = [p for p in network.inputs[i] if p in before]
            if not found:
                continue
            before[i] = found[0]
        if network.ends[i]:
            return list(_backwards(i, before))[::-1]
    return []


def _backwards(i: int | None, before: dict[int, int | None]) -> Iterator[int]:
    while i is not None:
        yield i
        i = before[i]


# ---------------------------------------------------------------------------------- push-relabel
def push_relabel(links: Sequence[Link]) -> set[Vertex]:
    """The source's side of the minimum cut nearest to the sink. See Note [Push-relabel].

    >>> sorted(push_relabel([("source", 0, 3), (0, 1, 5), (1, "sink", 3)]), key=str)
    [0, 1, 'source']
    """
    residual = _Residual(links)
    unpaid = 0
    while residual.active:
        unpaid += residual.discharge(residual.active.popleft())
        if unpaid > 4 * len(links):
            residual.measure()
            unpaid = 0
    residual.measure()
    limit = residual.limit
    return {v for v, i in residual.numbers.items() if residual.height[i] == limit}


class _Residual:
    """Excesses, heights, and the edges with the room left in them.

    Vertices are numbered. Edge 2k is link number k, edge 2k + 1 takes its flow back.
    """

    def __init__(self, links: Sequence[Link]) -> None:
        self.numbers: dict[Vertex, int] = {SINK: 0, SOURCE: 1}
        for origin, vertex, _ in links:
            self.numbers.setdefault(origin, len(self.numbers))
            self.numbers.setdefault(vertex, len(self.numbers))
        self.limit = len(self.numbers)
        """The height of the source, and of vertices from which nothing reaches the sink."""
        self.heads: list[int] = []
        self.room: list[int] = []
        self.leaving: list[list[int]] = [[] for _ in self.numbers]
        """The edges out of each vertex."""
        endless = 1 + sum(int(capacity) for _, _, capacity in links if capacity != UNLIMITED)
        for origin, vertex, capacity in links:
            ends = self.numbers[origin], self.numbers[vertex]
            for end in ends:
                self.leaving[end].append(len(self.heads))
                self.heads.append(sum(ends) - end)
            self.room += (endless if capacity == UNLIMITED else int(capacity), 0)
        self.excess = [0] * self.limit
        self.active: deque[int] = deque()
        """Vertices with an excess that may reach the sink."""
        self.measure()
        for edge in self.leaving[1]:
            self.push(edge, 1, self.room[edge])

    def measure(self) -> None:
        """Makes all heights exact: the distances to the sink, not through the source."""
        height, room, heads, limit = [self.limit] * self.limit, self.room, self.heads, self.limit
        height[0] = 0
        near = [0]
        for vertex in near:
            above = height[vertex] + 1
            for edge in self.leaving[vertex]:
                other = heads[edge]
                if height[other] == limit and other != 1 and room[edge ^ 1]:
                    height[other] = above
                    near.append(other)
        self.height = height

    def push(self, edge: int, vertex: int, amount: int) -> None:
        other, excess = self.heads[edge], self.excess
        if amount and not excess[other] and other > 1:
            self.active.append(other)
        excess[vertex] -= amount
        excess[other] += amount
        self.room[edge] -= amount
        self.room[edge ^ 1] += amount

    def discharge(self, vertex: int) -> int:
        """Pushes the excess of a vertex on, while it may reach the sink; the edges looked at."""
        height, room, heads, excess = self.height, self.room, self.heads, self.excess
        leaving, looked = self.leaving[vertex], 0
        while excess[vertex] and height[vertex] < self.limit:
            looked += len(leaving)
            below = height[vertex] - 1
            for edge in leaving:
                if room[edge] and height[heads[edge]] == below:
                    self.push(edge, vertex, min(excess[vertex], room[edge]))
                    if not excess[vertex]:
                        return looked
            height[vertex] = 1 + min([height[heads[edge]] for edge in leaving if room[edge]])
        return looked


# ------------------------------------------------------------------------------ solvers of users
def _solved(links: Sequence[Link], solver: Solver | str) -> set[Vertex]:
    """The source's side of a minimum cut, by a solver; its answer is checked."""
    import networkx

    digraph = networkx.DiGraph()
    digraph.add_nodes_from((SOURCE, SINK))
    for origin, vertex, capacity in links:
        limit = {} if capacity == UNLIMITED else {"capacity": capacity}
        digraph.add_edge(origin, vertex, **limit)
    value, side = _answer(digraph, solver)
    weight = sum(capacity for o, v, capacity in links if o in side and v not in side)
    if weight != value:
        raise _refused(solver, f"a cut of weight {weight} and the value {value!r}", "equal numbers")
    return side


def _answer(digraph: Any, solver: Solver | str) -> tuple[Any, set[Any]]:
    """(value, source side) as the solver returns them, checked."""
    vertices = set(digraph)
    try:
        answer = solver_of(solver)(digraph, SOURCE, SINK)
    except Exception as error:
        raise _refused(solver, f"{type(error).__name__}: {error}", "a cut") from error
    try:
        value, sides = answer
        near, far = map(set, sides)
    except (TypeError, ValueError):
        raise _refused(solver, repr(answer), "(value, (source side, sink side))") from None
    if near & far or near | far != vertices or SOURCE not in near or SINK not in far:
        raise _refused(
            solver,
            f"sides of {len(near)} and {len(far)} of the {len(vertices)} vertices",
            "each vertex on one side, the source on the first, the sink on the second",
        )
    return value, near


def check_solver(solver: Any) -> None:
    """Raises ArgumentError unless `solver` is a function or the name of an algorithm."""
    if not callable(solver) and solver not in (BUILT_IN, *ALGORITHMS):
        raise ArgumentError(
            f"min-cut: the solver is {solver!r}, expected a function or one of "
            f"{', '.join((BUILT_IN, *ALGORITHMS))}"
        )


def solver_of(solver: Solver | str) -> Solver:
    """The solver function for the name of a networkx algorithm; a function as it is.

    Raises ArgumentError for anything else.
    """
    check_solver(solver)
    if not isinstance(solver, str):
        return solver
    import networkx

    algorithm = getattr(networkx.algorithms.flow, solver)

    def solve(digraph: Any, source: Vertex, sink: Vertex) -> Any:
        return networkx.minimum_cut(digraph, source, sink, flow_func=algorithm)

    return solve


def _refused(solver: Solver | str, got: str, expected: str) -> ArgumentError:
    name = solver if isinstance(solver, str) else getattr(solver, "__name__", repr(solver))
    return noted(
        ArgumentError(f"min-cut: the answer of solver {name!r} is {got}, expected {expected}"),
        "A solver takes a networkx.DiGraph whose edges have a `capacity`, or none for no limit, "
        "and the names of source and sink. (PART-24)",
    )
