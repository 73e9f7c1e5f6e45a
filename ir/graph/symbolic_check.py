"""Whether a graph with symbolic sizes is right at numbers: its meta rules run again.

Ground floor, above graphs. A graph that was recorded with symbols has their expressions in its
metas and arguments. At sizes for which an assumption fails, a rule may give another result, or
refuse; then the graph is not the program of these sizes. Spec: `specs/guards_proved.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from aotlite.ir.errors import AotliteError
from aotlite.ir.graph.graph import Constant, Graph, Node, map_nodes
from aotlite.ir.graph.symbolic.numbers import at_sizes
from aotlite.ir.symbols.assumption import NO_VALUE, concrete
from aotlite.ir.symbols.cases.parts import parts_of

__all__ = ["differs_from", "is_wrong_at", "misfit", "same_program"]

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
        except NO_VALUE as error:
            return f"{graph.names[node]}: a size has no value: {error}"
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
            return not same_program(at_sizes(recorded, values), trace(values))
        except (AotliteError, *NO_VALUE):
            return True

    return differs


def same_program(a: Graph, b: Graph) -> bool:
    """Whether two graphs have the same nodes, arguments and metas, in one order; with symbols of
    two traces, whether these are written alike."""
    numbers: list[dict[Node, int]] = [{n: k for k, n in enumerate(g.nodes)} for g in (a, b)]

    def said(node: Node, of: dict[Node, int]) -> object:
        args = map_nodes(node.args, lambda each: _Place(of[each]))
        target = node.target
        if isinstance(target, Constant):
            target = str(target.value.dtype), str(target.value.tolist())
        meta = _written(node.meta)
        return node.op, target, repr(args), meta, node.role  # NaN is not equal to itself

    pairs = zip(a.nodes, b.nodes, strict=False)
    same = all(said(x, numbers[0]) == said(y, numbers[1]) for x, y in pairs)
    return same and len(a.nodes) == len(b.nodes)


def _written(meta: object) -> object:
    """A meta, or metas of results, as one text: sizes of two traces are never equal."""
    if type(meta) is tuple:
        return tuple(map(_written, meta))
    return repr(parts_of(meta) or meta)


class _Place(int):
    """The number of a node, which no number of a program is printed like."""

    def __repr__(self) -> str:
        return f"node {int(self)}"
