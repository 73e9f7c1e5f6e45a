"""Stage 7, simplify: removes dead code, common subexpressions, and needless views and scatters.

Input and output: a pure graph; linear time.

    common_subexpressions.py   dead code, common subexpressions
    views_of_scatters.py       a view of a scatter's result becomes the value that was scattered
    dead_scatters.py           a scatter that a later one overwrites is dropped
    gradient_memory.py         gradients that were two memories stay two
    normalizations.py          not run here: softmax and the like in simpler ops, for stage 8
    decompositions.py          not run here: the user's table, before this stage
    linearity.py               not run here: asks whether a backward is linear, for double backward

A node whose memory the caller gets is never merged with another: two results are two memories, and
a saved value must not be a result that the caller may write (PART-15).
Rules: TRC-10, PART-15, PART-38, SIM-7, SIM-8. Spec: `specs/s7_simplify.md`.
"""

from __future__ import annotations

from aotlite.ir.graph import Graph
from aotlite.stages.s7_simplify.common_subexpressions import (
    eliminate_common_subexpressions,
    eliminate_dead_code,
    escaping_calls,
)
from aotlite.stages.s7_simplify.dead_scatters import drop_dead_writes
from aotlite.stages.s7_simplify.gradient_memory import with_separate_gradients
from aotlite.stages.s7_simplify.views_of_scatters import has_windows, see_through_scatters

_ROUNDS = 4
"""The most rounds of the window rules; a round that removes no node is the last."""


def simplify(graph: Graph) -> Graph:
    """An equal graph without unused or repeated calls, and with fewer views and scatters."""
    simplified = eliminate_common_subexpressions(eliminate_dead_code(graph))
    if has_windows(simplified):
        simplified = apply_window_rules(simplified)
    return with_separate_gradients(simplified, graph)


def apply_window_rules(graph: Graph) -> Graph:
    """Applies the rules on views and scatters (SIM-2 to SIM-6); never a larger graph (SIM-7)."""
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
