"""Walks the tape from each differentiable result: its sinks, its saved tensors, its errors.

Used by stage 4 before the backward is recorded; no node runs. Sets of results are bits of an int,
since n results may share nearly all of a tape. Rules: JNT-15, SAV-1, SAV-2, CKP-1.
Spec: `specs/s4_joint.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import attrs

from aotlite.eager.autograd.nodes.accumulate_grad import AccumulateGrad
from aotlite.eager.autograd.nodes.op_nodes import SliceAssign
from aotlite.eager.autograd.nodes.saved_tensors import SavedTensor
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.node import Edge, TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import AutogradError
from aotlite.ir.graph.role import Result as ResultRole
from aotlite.stages.records.backward.gradient_reads import SavedOf, WrittenInside, merged
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.capture_inputs import InputRole, OwnerRole, SourceRole
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
    owners: Mapping[Storage, OwnerRole]
    """The storages that outlive the call, each with the input, result or base that owns it."""
    inner_leaves: list[Edge]
    """The edges of leaves that the function made; their gradients are dropped."""
    new_leaves: frozenset[InputRole]
    """Inputs that the function made leaves: the gradient is that of the new leaf (FUN-36)."""
    has_user_code: bool
    """Users' Python runs in the backward."""
    errors: dict[ResultRole, Exception] = attrs.field(factory=dict)
    """The error that eager's backward of a result raises. Recording may find more."""
    written_inside: dict[ResultRole, WrittenInside] = attrs.field(factory=dict)
    """Of results whose error is about a saved tensor on memory of an owner."""
    reachable_inputs: dict[ResultRole, frozenset[SourceRole]] = attrs.field(factory=dict)
    """The sources to which the tape of each result leads."""
    reads: dict[SavedOf, int] = attrs.field(factory=dict)
    """Saved tensors on memory of an owner, with the results, as bits, whose gradients read them."""
    run_once_nodes: dict[int, bool] = attrs.field(factory=dict)
    """Sets of results, as bits, whose gradients pass a node that may run once only (SAV-1); True
    if one such node saves tensors (CKP-1)."""


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
    walk = TapeWalk(results, paths.owners, paths.reads, paths.errors, paths.written_inside)
    ends = {**paths.sinks, **captured.recorder.hooks.ends()}
    tensors = [r for r in captured.results if isinstance(r, Tensor)]
    returned = {id(tensor) for r in tensors for tensor in (r, r._base)}
    for node, bits, saves in walk.visits(nodes, ends):
        if saves or node.is_spent_once():
            paths.run_once_nodes[bits] = saves or paths.run_once_nodes.get(bits, False)
        if type(node) is AccumulateGrad and node not in ends:
            refuse_inner_leaf(node, returned, next(these_of(results, bits)))
    paths.reachable_inputs.update(walk.reached())


@attrs.frozen(eq=False, repr=False)
class TapeWalk:
    """A walk behind the roots of a backward: the ends that it reaches, and the memory it reads."""

    results: tuple[ResultRole, ...]
    owners: Mapping[Storage, OwnerRole]
    """The storages that may be written after the call, each with the role that owns it."""
    reads: dict[SavedOf, int]
    """Saved tensors on memory of an owner, with the results, as bits, whose gradients read them."""
    errors: dict[ResultRole, Exception]
    written_inside: dict[ResultRole, WrittenInside] = attrs.field(factory=dict)
    """The results whose error is about a saved tensor on memory of an owner."""
    _reach: dict[ResultRole, set[SourceRole]] = attrs.field(init=False)

    @_reach.default
    def _nothing(self) -> dict[ResultRole, set[SourceRole]]:
        return {result: set() for result in self.results}

    def visits(
        self, nodes: Mapping[TapeNode, int], ends: Mapping[TapeNode, SourceRole]
    ) -> Iterator[tuple[TapeNode, int, bool]]:
        """Each node, the results, as bits, that pass it, and whether it has saved tensors.

        `ends` are the nodes at which gradients are collected, each with the role of its source.
        """
        for node, bits in nodes.items():
            if node in ends:
                for result in these_of(self.results, bits):
                    self._reach[result].add(ends[node])
            saved = node.kept_tensors()
            for each in saved:
                self._note_saved(node, each, bits)
            yield node, bits, bool(saved)

    def reached(self) -> dict[ResultRole, frozenset[SourceRole]]:
        """The sources to which the tape of each result leads, after the visits."""
        return {result: frozenset(found) for result, found in self._reach.items()}

    def _note_saved(self, node: TapeNode, saved: SavedTensor, bits: int) -> None:
        """Notes that a node unpacks a saved tensor; an error if it was written since.
        Eager unpacks it in all these nodes, also in those that lead to no input."""
        storage = saved.tensor.storage
        if storage.version != saved.version:
            try:
                saved.unpack(node.written if isinstance(node, SliceAssign) else node)
            except AutogradError as error:
                self._note_error(error, saved, these_of(self.results, bits))
        if storage in self.owners:
            merged(self.reads, [(SavedOf(self.owners[storage], saved.tensor.meta), bits)])

    def _note_error(
        self, error: AutogradError, saved: SavedTensor, results: Iterable[ResultRole]
    ) -> None:
        """Notes the error of results that have none yet, and of which owner's memory it speaks."""
        storage = saved.tensor.storage
        for result in results:
            if result not in self.errors and storage in self.owners:
                behind = storage.version - saved.version
                inside = WrittenInside(self.owners[storage], storage.version, behind)
                self.written_inside[result] = inside
            self.errors.setdefault(result, error)
