"""Minimum cuts of networks whose vertices stand in execution order, reduced before they are solved.

Each value is a vertex of two halves, joined by an edge with the value's capacity; from a value to
its users lead edges without limit. A value may start at the source, and may end at the sink. The
reductions are exact: parallel edges add up, edges in series are the smaller one, and each edge that
is left knows the values that cutting it cuts. What a solver sees is what then is left, often
nothing. It knows no graphs: `s8_mincut.py` says what values cost. Spec: `specs/s8_mincut.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from aotlite.ir.errors import ArgumentError, noted

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

Solver = Callable[[Any, Vertex, Vertex], tuple[Any, tuple[Any, Any]]]
"""(networkx.DiGraph, source, sink) to (value of the cut, (source side, sink side))."""
ALGORITHMS = (
    "boykov_kolmogorov",
    "dinitz",
    "edmonds_karp",
    "preflow_push",
    "shortest_augmenting_path",
)
"""Names of networkx's algorithms that stand for a solver."""


@attrs.frozen(eq=False)
class Network:
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


@attrs.frozen
class Cut:
    """A minimum cut: its weight, the values that it cuts, and how much a solver had to solve."""

    weight: Capacity
    values: tuple[int, ...]
    edges: int


def minimum_cut(network: Network, solver: Solver | str = ALGORITHMS[0]) -> Cut:
    """The minimum cut; among several the one next to the sink, as networkx gives it.

    There must be one of limited weight (`unlimited_path`).
    """
    into = _simplified(_collapsed(network))
    fixed = into[SINK].pop(SOURCE, None)
    cut = [] if fixed is None else [fixed]
    edges = sum(map(len, into.values()))
    if edges:
        cut += _solved(into, solver)
    values = tuple(sorted({value for _, tree in cut for value in _leaves(tree)}))
    return Cut(sum(capacity for capacity, _ in cut), values, edges)


def unlimited_path(network: Network) -> list[int]:
    """The values on a path from source to sink that no cut can cut; empty if there is none."""
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


# ------------------------------------------------------------------------------------ reductions
def _collapsed(network: Network) -> dict[Vertex, Edges]:
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


def _add(edges: Edges, origin: Vertex, capacity: Capacity, tree: Tree) -> None:
    """Parallel edges add up, and are cut together."""
    before = edges.get(origin)
    if before is None:
        edges[origin] = (capacity, tree)
    else:
        edges[origin] = (before[0] + capacity, (before[1], tree))


def _simplified(into: dict[Vertex, Edges]) -> dict[Vertex, Edges]:
    """Contracts every vertex with one edge in and one out, until there is none (in place)."""
    users: dict[Vertex, dict[Vertex, None]] = {}
    for vertex, edges in into.items():
        for origin in edges:
            users.setdefault(origin, {})[vertex] = None
    work = [vertex for vertex in into if vertex != SINK]
    while work:
        vertex = work.pop()
        edges = into.get(vertex, {})
        if len(edges) != 1 or len(users.get(vertex, ())) != 1:
            continue
        ((origin, (limit, tree)),) = into.pop(vertex).items()
        (user,) = users.pop(vertex)
        capacity, later = into[user].pop(vertex)
        if capacity <= limit:
            limit, tree = capacity, later
        _add(into[user], origin, limit, tree)
        del users[origin][vertex]
        users[origin][user] = None
        work += [each for each in (origin, user) if each in into and each != SINK]
    return into


def _leaves(tree: Tree) -> Iterator[int]:
    stack = [tree]
    while stack:
        each = stack.pop()
        if type(each) is tuple:
            stack += each
        else:
            yield each


# --------------------------------------------------------------------------------------- solving
Link = tuple[Vertex, Vertex]
"""An edge by its ends."""
Shape = tuple[tuple[Vertex, Vertex, Capacity], ...]
"""Edges between vertices that are numbered as they appear."""


def _solved(into: dict[Vertex, Edges], solver: Solver | str) -> list[tuple[Capacity, Tree]]:
    """The edges of a minimum cut. Parts that are joined by source and sink alone are solved one by
    one, and parts of one shape, as layers make them, once.
    """
    known: dict[Shape, list[int]] = {}
    cut = []
    for part in _parts(into):
        shape = _shape(into, part)
        if shape not in known:
            known[shape] = _cut_of(shape, solver)
        cut += [into[vertex][origin] for origin, vertex in map(part.__getitem__, known[shape])]
    return cut


def _parts(into: dict[Vertex, Edges]) -> list[list[Link]]:
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
    parts: list[list[Link]] = [[] for _ in range(count)]
    for origin, vertex in links:
        parts[part_of[vertex if origin == SOURCE else origin]].append((origin, vertex))
    return parts


def _shape(into: dict[Vertex, Edges], part: list[Link]) -> Shape:
    numbers: dict[Vertex, Vertex] = {SOURCE: SOURCE, SINK: SINK}
    for link in part:
        for vertex in link:
            numbers.setdefault(vertex, len(numbers) - 2)
    return tuple([(numbers[o], numbers[v], into[v][o][0]) for o, v in part])


def _cut_of(shape: Shape, solver: Solver | str) -> list[int]:
    """The positions of the edges of a minimum cut, as a solver finds it."""
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


def _answer(digraph: Any, solver: Solver | str) -> tuple[Any, set[Any]]:
    """(value, source side) as the solver gives them, checked."""
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
    """Raises ArgumentError for what is neither a function nor the name of an algorithm."""
    if not callable(solver) and solver not in ALGORITHMS:
        raise ArgumentError(
            f"min-cut: the solver is {solver!r}, expected a function or one of "
            f"{', '.join(ALGORITHMS)}"
        )


def solver_of(solver: Solver | str) -> Solver:
    """The solver that a name of a networkx algorithm stands for; a function is one itself.

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
