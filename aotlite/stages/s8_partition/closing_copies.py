"""Closing copies: an inference graph ends in one `copy_` for each input that it updates.

After stage 8, with the option `keep_inference_input_mutations`. Input: a pure graph without
backward, and the metadata. Output: the graph, and the metadata that says which inputs it writes.
Rules: META-3, FUN-21, FUN-22, FUN-26. Spec: `specs/s9_lower.md`.
"""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.ir.graph import Copy, Graph, Node
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.role import MutatedInput
from aotlite.ir.ops.shape.copies import COPY_
from aotlite.stages.records.metadata.function_facts import InputMeta
from aotlite.stages.records.metadata.function_meta import FunctionMeta


def with_closing_copies(graph: Graph, meta: FunctionMeta) -> tuple[Graph, FunctionMeta]:
    """The graph with closing copies for the inputs that it may write, and the metadata.

    Members of a synthetic base are not inputs of the graph: the runtime writes them (SYN-11).
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
        if value is not target:  # an input that keeps its value needs no copy
            assert type(value) is Node
            build.source = value  # the copy gets the location of the value
            copies.append(Copy(build.emit(COPY_, (target, value)), "the graph writes its input"))
    build.source = None
    closed = build.finish([value for _, value in results], [role for role, _ in results])
    closed.copies = tuple(copies)
    return closed, attrs.evolve(meta, inputs=inputs)


def may_stay(each: InputMeta) -> bool:
    """Whether the graph itself may write this input: only its bytes change (FUN-21).

    Not if its geometry, its storage or its history changes too.
    """
    unseen = each.through_hidden_alias or each.under_no_grad or not each.requires_grad
    seen_by_tape = each.changes_history or not unseen
    return each.writes_data and not each.writes_metadata and not seen_by_tape
