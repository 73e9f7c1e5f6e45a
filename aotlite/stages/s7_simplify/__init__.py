"""Stage 7, simplify: dead code, common subexpressions and needless windows of a pure graph.

Input and output: a pure graph. In linear time. Nodes whose memory the caller comes to hold are
merged with nothing: two results are two memories, and a saved value must not become a result that
the caller may write (PART-15). Both are in `s7_simplify/common_subexpressions.py`; the window rules
are in `views_of_scatters.py` and `dead_scatters.py`. For backends that fuse, `normalizations.py`
writes normalisations out before the partition.
Rules: TRC-10, PART-15, PART-38, SIM-7. Spec: `specs/s7_simplify.md`.
"""

from __future__ import annotations

from aotlite.ir.graph import Graph
from aotlite.stages.s7_simplify.common_subexpressions import (
    eliminate_common_subexpressions,
    eliminate_dead_code,
    escaping_calls,
)
from aotlite.stages.s7_simplify.dead_scatters import drop_dead_writes
from aotlite.stages.s7_simplify.views_of_scatters import has_windows, see_through_scatters

_ROUNDS = 4
"""What one round leaves, the next finds; a round that removes no node is the last."""


def simplify(graph: Graph) -> Graph:
    """An equal graph without unused and repeated computations, and without needless windows."""
    graph = eliminate_common_subexpressions(eliminate_dead_code(graph))
    return apply_window_rules(graph) if has_windows(graph) else graph


def apply_window_rules(graph: Graph) -> Graph:
    """The graph by the rules on views and scatters (SIM-2 to SIM-6); never a larger one (SIM-7)."""
    for _ in range(_ROUNDS):
        seen = see_through_scatters(graph, escaping_calls(graph))
        if seen is not graph:
            seen = eliminate_dead_code(seen)
        shorter = drop_dead_writes(seen)
        if shorter is graph:
            break
        shorter = eliminate_common_subexpressions(eliminate_dead_code(shorter))
        before = len(graph.nodes)
        if len(shorter.nodes) <= before:
            graph = shorter
        if len(shorter.nodes) >= before:
            break
    return graph
