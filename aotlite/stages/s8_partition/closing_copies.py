"""The writes of an inference graph that stay in it: one `copy_` into each input, at the end.

Behind stage 8, where `keep_inference_input_mutations` asks for it. Input: a pure graph without
backward, and the analysis. Output: the graph, and the analysis that says which inputs it writes.
Rules: META-3, FUN-21, FUN-22, FUN-26. Spec: `specs/s9_lower.md`.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import attrs

from aotlite.ir.graph import Copy, Graph, Node
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.role import MutatedInput
from aotlite.ir.ops.shape.copies import COPY_
from aotlite.stages.records.metadata.function_facts import InputMeta
from aotlite.stages.records.metadata.function_meta import FunctionMeta


def with_closing_copies(graph: Graph, meta: FunctionMeta) -> tuple[Graph, FunctionMeta]:
    """The graph that writes what it may, and the analysis that says so.

    Members of a synthetic base are no inputs of the graph: the runtime writes them (SYN-11).
    """
    given = {node.role: node for node in graph.placeholders}
    kept = {each.role for each in meta.inputs if may_stay(each) and each.role in given}
    inputs = tuple([attrs.evolve(i, in_graph=True) if i.role in kept else i for i in meta.inputs])
    build = Builder(graph.name)
    build.nodes.extend(graph.nodes[:-1])
    copies: list[Copy] = []
    results: list[tuple[Any, Any]] = []
    for role, value in zip(graph.output_roles, graph.outputs, strict=True):
        if not isinstance(role, MutatedInput) or role.of not in kept:
            results.append((role, value))
            continue
        target = given[role.of]
        if value is not target:  # an input that gets its own value needs no copy
            assert type(value) is Node
            build.source = value  # the copy is of the line that made the value
            copies.append(Copy(build.emit(COPY_, (target, value)), "the graph writes its input"))
    build.source = None
    closed = build.finish([value for _, value in results], [role for role, _ in results])
    closed.copies = tuple(copies)
    return closed, attrs.evolve(meta, inputs=inputs)


class MutationKind(Enum):
    """What becomes of the writes to an input (META-3)."""

    NOT_MUTATED = "it is not written"
    IN_GRAPH = "a graph without backward may write it itself"
    OUT_GRAPH = "it is written after the graph has run"


def mutation_kind(each: InputMeta, *, keep_input_mutations: bool = True) -> MutationKind:
    """What becomes of the writes to an input, whether or not they may stay in the graph."""
    if not (each.writes or each.written_late):
        return MutationKind.NOT_MUTATED
    stays = keep_input_mutations and may_stay(each)
    return MutationKind.IN_GRAPH if stays else MutationKind.OUT_GRAPH


def may_stay(each: InputMeta) -> bool:
    """Whether the graph itself may write this input: nothing but its bytes changes (FUN-21).

    A change of geometry excludes it, also under no_grad; so does other memory.
    """
    unseen = each.hidden or each.under_no_grad or not each.requires_grad
    seen_by_tape = each.changes_history or not unseen
    return each.writes_data and not each.writes_metadata and not seen_by_tape
