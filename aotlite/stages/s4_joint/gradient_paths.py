"""Walks the tape from each differentiable result: its sinks, its saved tensors, its errors.

Used by stage 4 before the backward is recorded; no node runs. Sets of results are bits of an int,
since n results may share nearly all of a tape. Rules: JNT-15, SAV-1, SAV-2, CKP-1.
Spec: `specs/s4_joint.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from aotlite.eager.autograd.nodes.accumulate_grad import AccumulateGrad
from aotlite.eager.autograd.nodes.saved_tensors import SavedTensor
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.node import Edge, TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import AutogradError
from aotlite.ir.graph.role import Result as ResultRole
from aotlite.stages.records.backward.gradient_reads import SavedOf, merged
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.capture_inputs import InputRole, SourceRole
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.s4_joint.instrumented_runs import runs_user_code
from aotlite.stages.s4_joint.leaf_inputs import new_leaves
from aotlite.stages.s4_joint.results import JointResults
from aotlite.stages.shared.gradient_sinks import sinks_of
from aotlite.stages.shared.memory.owners import owners_of
from aotlite.stages.shared.tape_queries import passed, refuse_inner_leaf, these_of


@attrs.frozen(eq=False, repr=False)
class GradientPaths:
    """The paths of all differentiable results of one function."""

    edges: dict[ResultRole, Edge | None]
    """The tape edge of each result: its tangent enters there."""
    sinks: Mapping[TapeNode, SourceRole]
    """The nodes at which gradients are collected, each with its input or family."""
    owners: Mapping[Storage, Any]
    """The storages that outlive the call, each with the input, result or base that owns it."""
    inner_leaves: list[Edge]
    """The edges of leaves that the function made; their gradients are dropped."""
    new_leaves: frozenset[InputRole]
    """Inputs that the function made leaves: the gradient is that of the new leaf (FUN-36)."""
    has_user_code: bool
    """Users' Python runs in the backward."""
    errors: dict[ResultRole, Exception] = attrs.field(factory=dict)
    """The error that eager's backward of a result raises. Recording may find more."""
    reachable_inputs: dict[ResultRole, frozenset[SourceRole]] = attrs.field(factory=dict)
    """The sources to which the tape of each result leads."""
    reads: dict[SavedOf, int] = attrs.field(factory=dict)
    """Saved tensors on memory of an owner, with the results, as bits, whose gradients read them."""
    run_once_nodes: dict[int, bool] = attrs.field(factory=dict)
    """Sets of results, as bits, whose gradients pass a node that may run once only (SAV-1); True
    if one such node saves tensors (CKP-1)."""

    def note_saved(self, node: TapeNode, saved: SavedTensor, bits: int) -> None:
        """Notes that a node unpacks a saved tensor; an error if it was written since.
        Eager unpacks it in all these nodes, also in those that lead to no input."""
        storage = saved.tensor.storage
        if storage.version != saved.version:
            try:
                saved.unpack(node)
            except AutogradError as error:
                for result in these_of(tuple(self.edges), bits):
                    self.errors.setdefault(result, error)
        if storage in self.owners:
            merged(self.reads, [(SavedOf(self.owners[storage], saved.tensor.meta), bits)])


def gradient_paths(captured: Captured, meta: FunctionMeta, results: JointResults) -> GradientPaths:
    """The paths from each differentiable result of a captured function.
    Raises UnsupportedError for a gradient that would be that of a leaf made inside and returned."""
    edges, errors = _edges(meta, results)
    nodes = passed(list(edges.values()))
    sinks = {e[0]: source.role for source in captured.sources for e, _ in sinks_of(source)}
    paths = GradientPaths(
        edges,
        sinks,
        owners_of(captured, meta),
        [(n, 0) for n in nodes if type(n) is AccumulateGrad and n not in sinks],
        new_leaves(captured.inputs, nodes),
        runs_user_code(nodes),
        errors,
    )
    _walk(paths, nodes, captured)
    return paths


def _edges(
    meta: FunctionMeta, results: JointResults
) -> tuple[dict[ResultRole, Edge | None], dict[ResultRole, Exception]]:
    """The edge of each differentiable result, and the errors of those that have none (JNT-15)."""
    edges: dict[ResultRole, Edge | None] = dict.fromkeys(meta.tangents)
    errors: dict[ResultRole, Exception] = {}
    for result in edges:
        try:
            edges[result] = results.edge(result)
        except AutogradError as error:
            errors[result] = error
    return edges, errors


def _walk(paths: GradientPaths, nodes: Mapping[TapeNode, int], captured: Captured) -> None:
    """Fills in the paths from the nodes, each with the bits of the results that pass it."""
    results = tuple(paths.edges)
    reach: dict[ResultRole, set[Any]] = {result: set() for result in results}
    ends = {**paths.sinks, **captured.recorder.hooks.ends()}
    tensors = [r for r in captured.results if isinstance(r, Tensor)]
    returned = {id(tensor) for r in tensors for tensor in (r, r._base)}
    for node, bits in nodes.items():
        saved = node.kept_tensors()
        if saved or node.is_spent_once():
            paths.run_once_nodes[bits] = bool(saved) or paths.run_once_nodes.get(bits, False)
        if node in ends:
            for result in these_of(results, bits):
                reach[result].add(ends[node])
        elif type(node) is AccumulateGrad:
            refuse_inner_leaf(node, returned, next(these_of(results, bits)))
        for each in saved:
            paths.note_saved(node, each, bits)
    paths.reachable_inputs.update({result: frozenset(found) for result, found in reach.items()})
