"""The passes around stage 7, simplify: decompositions before it, those of users behind it.

Input and output: a pure graph. Each graph is verified and, with `verify=True`, run and compared: up
to rounding noise, since users' functions may round otherwise. Rules: PIP-3, DEC-1, PART-38.
Spec: `specs/pipeline.md`, `specs/s7_simplify.md`.
"""

from __future__ import annotations

from collections.abc import Callable

from aotlite.ir.graph import Graph
from aotlite.pipeline.request import Compilation
from aotlite.pipeline.user_code import apply_pass, pass_name
from aotlite.stages.s7_simplify import normalisations, opened
from aotlite.stages.s7_simplify.decompositions import decompose


def decomposed(graph: Graph, compilation: Compilation) -> Graph:
    """The graph without ops of the options' table; a decomposition that is wrong names itself."""
    table, observers = compilation.options.decompositions, compilation.observers
    if not table:
        return graph
    if observers.runner is not None:
        for op in table:
            alone = decompose(graph, {op: table[op]})
            observers.compare(f"decomposition of {op.name!r}", alone, exact=False)
    result = decompose(graph, table)
    observers.check("7 decompose", result, functional=True)
    observers.compare("7 decompose", result, exact=False)
    return result


def applied(each: Callable[[Graph], Graph], graph: Graph, compilation: Compilation) -> Graph:
    """The graph that a pass makes, looked at as those of stages are."""
    result = apply_pass(each, graph)
    compilation.observers.check(pass_name(each), result, functional=True)
    compilation.observers.compare(pass_name(each), result, exact=False)
    return result


def with_passes(graph: Graph, compilation: Compilation) -> Graph:
    """The graph behind the users' passes, in their order."""
    for each in compilation.options.passes:
        graph = applied(each, graph, compilation)
    return graph


def opened_for_fusion(graph: Graph, compilation: Compilation) -> Graph:
    """The graph as it is cut for a backend that fuses (PART-38)."""
    if compilation.options.cuts_for_fusion() and normalisations(graph):
        return applied(opened, graph, compilation)
    return graph
