"""Results of stages as text, and as facts for a trace: what observers, loggers and files show.

Spec: `specs/logs.md`.
"""

from __future__ import annotations

from collections.abc import Mapping

from aotlite.ir.graph import Graph
from aotlite.stages.records.backward.partition import Partition
from aotlite.stages.records.convention import Convention
from aotlite.stages.records.guards.size_conditions import SizeConditions
from aotlite.stages.records.metadata.explain_text import (
    explain_convention,
    explain_copies,
    explain_meta,
    explain_partition,
    saved_bytes,
)
from aotlite.stages.records.metadata.function_meta import FunctionMeta


def text_of(made: object) -> str:
    """A graph as runnable Python, or a record as sentences."""
    match made:
        case FunctionMeta():
            return explain_meta(made)
        case Convention():
            return explain_convention(made)
        case Partition():
            return explain_partition(made)
    if isinstance(made, Graph) and made.copies:
        said = explain_copies(made).replace("\n", "\n# ")
        return f"{made}\n# {said}"
    return str(made)


def facts_of(made: object) -> Mapping[str, object]:
    """The numbers of a stage's result: nodes of a graph, saved bytes, symbols with conditions."""
    match made:
        case Graph():
            counts = {"inputs": len(made.placeholders), "outputs": len(made.output_roles)}
            return {"graph": made.name, "nodes": call_count(made), **counts}
        case FunctionMeta():
            counts = {"inputs": len(made.inputs), "outputs": len(made.outputs)}
            return {"training": made.training, **counts}
        case Partition():
            return _partition_facts(made)
        case SizeConditions():
            conditions = [each.text for each in made.guards]
            conditions += [each.text for each in made.floats]
            proof = None if made.proof is None else str(made.proof)
            symbols = {each.name: each.source for each in made.symbols}
            return {"symbols": symbols, "conditions": conditions, "proof": proof}
    graph = getattr(made, "graph", None)
    return facts_of(graph) if isinstance(graph, Graph) else {}


def call_count(graph: Graph) -> int:
    """The number of calls of a graph, for which its nodes need not be read."""
    return len(graph.calls) if graph.header is None else graph.header.call_count


def _partition_facts(partition: Partition) -> Mapping[str, object]:
    backward = partition.backward
    return {
        "forward_nodes": call_count(partition.forward),
        "backward_nodes": None if backward is None else call_count(backward),
        "saved": [f"{each.name}: {each.meta}" for each in partition.saved],
        "saved_bytes": None if partition.saved_sizes else saved_bytes(partition),
    }
