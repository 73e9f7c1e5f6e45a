"""No import circles: reading a file and its imports comes to an end."""

from collections.abc import Collection, Iterable, Mapping

import networkx

from tests.house.imports import Edge
from tests.house.sources import Scope


def circles(edges: Iterable[Edge]) -> list[list[str]]:
    """Modules that import each other, directly or indirectly; the largest circle first."""
    graph = networkx.DiGraph((edge.source, edge.target) for edge in edges)
    components = networkx.strongly_connected_components(graph)
    found = [sorted(component) for component in components if len(component) > 1]
    return sorted(found, key=lambda circle: (-len(circle), circle))


def complaints(edges: Collection[Edge]) -> list[str]:
    return [f"{len(circle)} modules in a circle: {', '.join(circle)}" for circle in circles(edges)]


def closing(circle: Collection[str], edges: Iterable[Edge]) -> list[Edge]:
    """Imports whose removal breaks a circle, as few as a fast heuristic finds.

    Imports in functions and for type checkers are taken first.
    """
    weight: dict[tuple[str, str], int] = {}
    inside = [edge for edge in edges if edge.source in circle and edge.target in circle]
    for edge in inside:
        pair = edge.source, edge.target
        weight[pair] = max(weight.get(pair, 0), 100 if edge.scope is Scope.TOP else 1)
    order = {module: place for place, module in enumerate(_order(sorted(circle), weight))}
    return [edge for edge in inside if order[edge.source] > order[edge.target]]


def _order(modules: list[str], weight: Mapping[tuple[str, str], int]) -> list[str]:
    """Modules, importing ones before imported ones, as far as possible.

    Source: Eades, Lin, Smyth, "A fast and effective heuristic for the feedback arc set problem".
    """
    graph = networkx.DiGraph()
    graph.add_nodes_from(modules)
    graph.add_weighted_edges_from(
        (source, target, each) for (source, target), each in weight.items()
    )
    first: list[str] = []
    last: list[str] = []
    while graph:
        while sinks := [each for each in graph if graph.out_degree(each) == 0]:
            last += sinks
            graph.remove_nodes_from(sinks)
        while sources := [each for each in graph if graph.in_degree(each) == 0]:
            first += sources
            graph.remove_nodes_from(sources)
        if graph:
            out, into = graph.out_degree(weight="weight"), graph.in_degree(weight="weight")
            best = max(graph, key=lambda each: out[each] - into[each])
            first.append(best)
            graph.remove_node(best)
    return first + last[::-1]


def generations(edges: Iterable[tuple[str, str]]) -> list[list[list[str]]]:
    """Rooms by floor, the lowest first, as by their imports; rooms in a circle are together."""
    graph = networkx.DiGraph(edge for edge in edges if edge[0] != edge[1])
    graph.add_nodes_from(name for edge in edges for name in edge)
    whole = networkx.condensation(graph)
    return [
        sorted(sorted(whole.nodes[each]["members"]) for each in floor)
        for floor in networkx.topological_generations(whole.reverse())
    ]
