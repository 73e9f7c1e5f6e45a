"""Minimum cuts of flow networks: exact reductions first (`flow_reductions.py`), then a solver.

Most networks are solved by the reductions alone. That matters since importing networkx takes longer
than the rest of a compilation. Knows numbers only, no graphs: `recompute_costs.py` makes the
network. Spec: `specs/s8_mincut.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs

from aotlite.ir.errors import ArgumentError, noted
from aotlite.stages.s8_partition.flow_reductions import (
    SINK,
    SOURCE,
    UNLIMITED,
    Capacity,
    Edges,
    Link,
    ReducedNetwork,
    Tree,
    Vertex,
    cut_by_elimination,
    leaves,
    reduced,
)

Solver = Callable[[Any, Vertex, Vertex], tuple[Any, tuple[Any, Any]]]
"""(networkx.DiGraph, source, sink) to (value of the cut, (source side, sink side))."""
ALGORITHMS = (
    "boykov_kolmogorov",
    "dinitz",
    "edmonds_karp",
    "preflow_push",
    "shortest_augmenting_path",
)
"""The names of networkx algorithms that `solver=` accepts."""
USUAL = "boykov_kolmogorov"
"""The one that gets what the reductions leave, where no solver is chosen."""


@attrs.frozen
class FlowCut:
    """A minimum cut: its weight, the values to save, and the edges that a solver was given."""

    weight: Capacity
    values: tuple[int, ...]
    edges: int


def minimum_cut(network: ReducedNetwork, solver: Solver | str | None = None) -> FlowCut:
    """The minimum cut; among several the one nearest to the sink, as networkx returns it.

    A cut of finite weight has to exist: check with `unlimited_path`.
    """
    into = reduced(network)
    cut, edges = _solved(into) if solver is None else _asked(into, solver)
    values = {value for _, tree in cut for value in leaves(tree)}
    if not all(network.capacities[i] for i in values):
        values = _needed(network, values)
    return FlowCut(sum(capacity for capacity, _ in cut), tuple(sorted(values)), edges)


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


# --------------------------------------------------------------------------------------- solving
Pair = tuple[Vertex, Vertex]
"""An edge as (from, to)."""
Shape = tuple[Link, ...]
"""The edges of a component, with vertices renumbered in order of appearance."""


def _asked(
    into: dict[Vertex, Edges], solver: Solver | str
) -> tuple[list[tuple[Capacity, Tree]], int]:
    """The edges of the minimum cut of the solver that a user chose, and the network's number.

    It is asked for the whole network, also where no question is left, but not for none.
    """
    links = tuple(
        [(o, v, capacity) for v, edges in into.items() for o, (capacity, _) in edges.items()]
    )
    chosen = _cut_of(links, solver) if links else []
    return [into[vertex][origin] for origin, vertex, _ in map(links.__getitem__, chosen)], len(
        links
    )


def _solved(into: dict[Vertex, Edges]) -> tuple[list[tuple[Capacity, Tree]], int]:
    """The edges of a minimum cut, and the number of edges that an algorithm was given.

    Components that only source and sink connect are solved one by one. Components of equal shape,
    such as the layers of a model, are solved once.
    """
    known: dict[Shape, tuple[list[int], int]] = {}
    fixed = into[SINK].pop(SOURCE, None)
    cut, asked = [] if fixed is None else [fixed], 0
    for part in _parts(into):
        shape = _shape(into, part)
        if shape not in known:
            found = cut_by_elimination(shape)
            known[shape] = (_cut_of(shape, USUAL), len(shape)) if found is None else (found, 0)
        places, edges = known[shape]
        cut += [into[vertex][origin] for origin, vertex in map(part.__getitem__, places)]
        asked += edges
    return cut, asked


def _parts(into: dict[Vertex, Edges]) -> list[list[Pair]]:
    links = [(origin, vertex) for vertex, edges in into.items() for origin in edges]
    near: dict[Vertex, list[Vertex]] = {}
    for origin, vertex in links:
        near.setdefault(origin, []).append(vertex)
        near.setdefault(vertex, []).append(origin)
    part_of: dict[Vertex, int] = {}
    count = 0
    for start in near:
        if start in part_of or start in (SOURCE, SINK):
            continue
        stack = [start]
        while stack:
            vertex = stack.pop()
            if vertex not in part_of and vertex not in (SOURCE, SINK):
                part_of[vertex] = count
                stack += near[vertex]
        count += 1
    parts: list[list[Pair]] = [[] for _ in range(count)]
    for origin, vertex in links:
        parts[part_of[vertex if origin == SOURCE else origin]].append((origin, vertex))
    return parts


def _shape(into: dict[Vertex, Edges], part: list[Pair]) -> Shape:
    numbers: dict[Vertex, Vertex] = {SOURCE: SOURCE, SINK: SINK}
    for link in part:
        for vertex in link:
            numbers.setdefault(vertex, len(numbers) - 2)
    return tuple([(numbers[o], numbers[v], into[v][o][0]) for o, v in part])


def _cut_of(shape: Shape, solver: Solver | str) -> list[int]:
    """The indices of the edges of a minimum cut, by a solver."""
    import networkx

    digraph = networkx.DiGraph()
    for origin, vertex, capacity in shape:
        limit = {} if capacity == UNLIMITED else {"capacity": capacity}
        digraph.add_edge(origin, vertex, **limit)
    value, side = _answer(digraph, solver)
    cut = [k for k, (o, v, _) in enumerate(shape) if o in side and v not in side]
    weight = sum(shape[k][2] for k in cut)
    if weight != value:
        raise _refused(solver, f"a cut of weight {weight} and the value {value!r}", "equal numbers")
    return cut


def _answer(digraph: Any, solver: Solver | str) -> tuple[object, set[object]]:
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


def check_solver(solver: object) -> None:
    """Raises ArgumentError unless `solver` is None, a function or the name of an algorithm."""
    if solver is not None and not callable(solver) and solver not in ALGORITHMS:
        raise ArgumentError(
            f"min-cut: the solver is {solver!r}, expected a function or one of "
            f"{', '.join(ALGORITHMS)}"
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

    def solve(digraph: object, source: Vertex, sink: Vertex) -> Any:
        return networkx.minimum_cut(digraph, source, sink, flow_func=algorithm)

    return solve


def _refused(solver: Solver | str, got: str, expected: str) -> ArgumentError:
    name = solver if isinstance(solver, str) else getattr(solver, "__name__", repr(solver))
    return noted(
        ArgumentError(f"min-cut: the answer of solver {name!r} is {got}, expected {expected}"),
        "A solver takes a networkx.DiGraph whose edges have a `capacity`, or none for no limit, "
        "and the names of source and sink. (PART-24)",
    )
