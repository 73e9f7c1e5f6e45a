"""Whether a graph with symbolic sizes is right at numbers: its meta rules run again.

Ground floor, above graphs. A graph that was recorded with symbols has their expressions in its
metas and arguments. At sizes for which an assumption fails, a rule may give another result, or
refuse; then the graph is not the program of these sizes. Spec: `specs/guards_proved.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from aotlite.ir.errors import AotliteError
from aotlite.ir.graph.graph import Graph, Node, map_nodes
from aotlite.ir.symbols.assumption import concrete

__all__ = ["at_sizes", "differs_from", "is_wrong_at", "misfit"]

Values = Mapping[str, int]


def misfit(graph: Graph, values: Values) -> str | None:
    """The first node whose rule does not give at these sizes what was recorded, as a sentence.

    None where every rule does. Each rule gets the recorded operands, with numbers put in.
    """
    for node in graph.calls:
        key = node.target.key(node.args)
        recorded = node.target.result_for(key)
        try:
            expected, numbers = concrete(recorded, values), concrete(key, values)
        except ZeroDivisionError:
            return f"{graph.names[node]}: a size is divided by 0"
        try:
            found = node.target.result_for(numbers)
        except AotliteError as error:
            return f"{graph.names[node]}: {error}"
        if found != expected:
            return f"{graph.names[node]}: recorded is {expected}, and its rule gives {found}"
    return None


def is_wrong_at(graphs: Iterable[Graph]) -> Callable[[Values], bool]:
    """The question whether one of these graphs has a `misfit`, for `weakest`."""
    kept = tuple(graphs)
    return lambda values: any(misfit(graph, values) is not None for graph in kept)


def differs_from(recorded: Graph, trace: Callable[[Values], Graph]) -> Callable[[Values], bool]:
    """The question whether a trace at these sizes gives another program, for `weakest`.

    It also sees what no meta has: a branch of the user's. A trace that raises gives another one.
    """

    def differs(values: Values) -> bool:
        try:
            return at_sizes(recorded, values).code != trace(values).code
        except (AotliteError, ZeroDivisionError):
            return True

    return differs


def at_sizes(graph: Graph, values: Values) -> Graph:
    """The graph with these numbers in the place of its symbols.

    >>> from aotlite.ir.graph.builder import Builder
    >>> from aotlite.ir.meta import tensor_meta
    >>> from aotlite.ir.meta.symbolic import symbolic_meta
    >>> from aotlite.ir.symbols.table import SymbolTable
    >>> build = Builder("doubled")
    >>> x = build.placeholder(symbolic_meta(SymbolTable(), tensor_meta((4, 6)), "x"))
    >>> graph = build.finish([x.flatten() * 2])
    >>> [node.meta for node in at_sizes(graph, {"s0": 2, "s1": 5}).nodes[:2]]
    [f32[2, 5], f32[10]]
    """
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        args = concrete(map_nodes(node.args, new.__getitem__), values)
        new[node] = node.with_args(args, concrete(node.meta, values))
    return Graph(tuple(new.values()), graph.name, exported=graph.exported)
