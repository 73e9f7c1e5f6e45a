"""Stage 8, min-cut: the values to save so that the fewest bytes move; the rest is recomputed.

Input: the simplified joint graph. Output: `MinCut`: the values to save, and the reason why each
value is saved or recomputed. `aotlite.partition` makes the halves of it with `cut`. Costs and bans
are in `recompute_costs.py`, the solver in `flow_network.py`. Hints on nodes (`Node.recompute`, set
by `checkpoint` and by passes) are followed. No memory budgets.
Rules: PART-14 to PART-25. Spec: `specs/s8_mincut.md`.

Note [Min-cut edges]
    s = x.sin(); y = s.exp()    # the gradients need cos(x) and y
Each value is two vertices, and the edge between them has its weight in bytes: to cut it is to save
the value. Edges from a value to its users are unlimited. The source leads to inputs and to values
that may not be recomputed; values that a backward-only node reads lead to the sink. A cut separates
source from sink: every path from the inputs to the backward goes through a saved value. To cut at
`x` saves one input, which is in memory anyway, and recomputes `s` and `y`.
"""

from __future__ import annotations

from operator import attrgetter

import attrs

from aotlite.ir.errors import ArgumentError, noted
from aotlite.ir.forks import cached_property
from aotlite.ir.graph import Graph, Node
from aotlite.stages.s8_partition.flow_network import (
    ReducedNetwork,
    Solver,
    check_solver,
    minimum_cut,
    unlimited_path,
)
from aotlite.stages.s8_partition.indexed_graph import IndexedGraph, numbered
from aotlite.stages.s8_partition.recompute_costs import RecomputeCosts, computed_forward, costs_of


@attrs.frozen(eq=False, slots=False)
class MinCut:
    """The values to save, and why.

    >>> import aotlite as al
    >>> from aotlite.partition import min_cut
    >>> def wave(x):
    ...     return x.sin().exp().cos().sum()
    >>> stages = al.inspect.stages_of(wave, al.ones(4).requires_grad_())
    >>> found = min_cut(stages["simplify"])
    >>> [value.role for value in found.saved], found.weight
    ([Primal(index=0)], 17)
    >>> found.reason(stages["simplify"].calls[0])
    'it is recomputed from primals_0, which costs less than keeping it'
    """

    indexed: IndexedGraph
    saved: dict[Node, str]
    """Why each saved value is saved, in the order of the graph."""
    weight: int
    """The sum of the saved values' weights (PART-18)."""
    edges: int
    """The number of edges that the solver was given."""
    joint = property(attrgetter("indexed"), doc="The name in the release before.")

    @property
    def graph(self) -> Graph:
        return self.indexed.graph

    def reason(self, node: Node) -> str:
        """Why this value of the graph is saved, recomputed, or neither."""
        if node in self.saved:
            return f"it is saved because {self.saved[node]}"
        sources = self._sources.get(node)
        if sources is None:
            return "the backward does not need it"
        if self._tangents[node]:
            return "it depends on tangents, so only the backward can compute it"
        names = ", ".join(self.graph.names[source] for source in sources)
        if node.recompute is True:
            return f"it is recomputed, as a checkpoint asks, from {names or 'constants'}"
        again = "recomputed" if node in self._forward else "computed in the backward alone"
        if not sources:
            return f"it is {again}, from constants"
        return f"it is {again} from {names}, which costs less than keeping it"

    @cached_property
    def _sources(self) -> dict[Node, list[Node]]:
        """For each value of the backward the saved values that it depends on, in order."""
        needed = {self.graph.nodes[i] for _, i in self.indexed.gradients}
        for node in reversed(self.graph.nodes):
            if node in needed and node not in self.saved:
                needed.update(node.inputs())
        found: dict[Node, dict[Node, None]] = {}
        for node in self.graph.nodes:
            if node in self.saved:
                found[node] = {node: None}
            elif node in needed:
                found[node] = {s: None for value in node.inputs() for s in found[value]}
        return {node: list(sources) for node, sources in found.items()}

    @cached_property
    def _tangents(self) -> dict[Node, int]:
        return dict(zip(self.graph.nodes, self.indexed.tangents, strict=True))

    @cached_property
    def _forward(self) -> set[Node]:
        return {self.graph.nodes[i] for i in computed_forward(self.indexed)}


def min_cut(graph: Graph, *, solver: Solver | str | None = None) -> MinCut:
    """The cheapest values to save such that the backward can recompute the rest (PART-14).

    Raises ArgumentError if the nodes' hints allow no cut, or if `solver` returns none.
    """
    check_solver(solver)
    indexed = numbered(graph)
    costs = costs_of(indexed)
    path = unlimited_path(costs.network)
    if path:
        raise _no_cut(graph, costs, path)
    found = minimum_cut(costs.network, solver)
    values = sorted({_viewed(indexed, costs.network, i) for i in found.values})
    saved = {indexed.graph.nodes[i]: _why(costs, i) for i in values}
    return MinCut(indexed, saved, int(found.weight), found.edges)


def _viewed(indexed: IndexedGraph, network: ReducedNetwork, i: int) -> int:
    """The base of a view to save, if it weighs the same (PART-24); else the value itself."""
    while indexed.roots[i] != i:
        (source,) = indexed.inputs[i]
        if not network.live[source] or network.capacities[source] != network.capacities[i]:
            break
        i = source
    return i


# ------------------------------------------------------------------------------------- reasons
def _why(costs: RecomputeCosts, i: int) -> str:
    why = costs.banned[i]
    if not why:
        reason = "it is the cheapest value that the backward can start from"
    elif costs.network.ends[i]:
        reason = f"the backward uses it, and {why}"
    else:
        reason = f"the backward recomputes other values from it, and {why}"
    return f"{reason} (as a copy: its memory is the caller's)" if i in costs.copied else reason


def _no_cut(graph: Graph, costs: RecomputeCosts, path: list[int]) -> ArgumentError:
    """The error for a path without a cut: why each value on it is neither saved nor recomputed."""
    nodes = graph.nodes
    last = nodes[path[-1]]
    notes = [
        f"{graph.names[nodes[i]]}: it cannot be saved, having several results, and "
        + (
            f"it cannot be computed again: {costs.banned[i]}"
            if costs.banned[i]
            else f"is computed from {graph.names[nodes[path[k - 1]]]}"
        )
        for k, i in enumerate(path)
    ]
    return noted(
        ArgumentError(
            f"min-cut: {graph.names[last]} is needed by the backward and can be neither saved nor "
            "computed again, expected one of them"
        ),
        *notes,
        "A hint to recompute a result of it forbids both, or a pass has broken the "
        "graph. (PART-24)",
    )
