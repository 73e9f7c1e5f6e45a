"""Refuses effects of a generated function in a checkpointed region, which is recomputed.

Used by stage 10, for the forward and for each variant of the backward: the effect would happen
twice. Rules: TOK-6, CKP-7, CKP-9. Spec: `specs/checkpoint.md`.
"""

from __future__ import annotations

from aotlite.eager.base.modes import STATE
from aotlite.eager.dispatch.effects import refuse_in_region
from aotlite.ir.graph import Graph
from aotlite.ir.graph.effect_chains import first_effect
from aotlite.stages.s10_runtime.source import FunctionSource


def refuse_regions(source: FunctionSource, graph: Graph) -> None:
    """Adds the line that refuses the graph's first effect, if any, in a region."""
    node = first_effect(graph)
    if node is not None:
        source.use(refuse_in_region)
        source.scope["STATE"] = STATE
        what = source.constant(node.target, "E", f"the effect {node.target.effect}")
        source.add(f"if STATE.in_region: refuse_in_region({what})")


__all__ = ["refuse_regions"]
