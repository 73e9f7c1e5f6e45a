"""Records a backward whose outputs are all gradients within it, for anomaly mode (JNT-8).

Eager's anomaly mode checks every gradient that a tape node computes for NaN. A compiled backward
has fused them away. So when one first runs in anomaly mode, the engine runs the kept tape again on
fakes, and each node's gradients become outputs of a graph, with the node that computed them.
Used by the pipeline. Spec: `specs/anomaly.md`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

import attrs

from aotlite.eager.autograd.engine import BackwardPass, Nodes, Sinks
from aotlite.eager.autograd.nodes.accumulate_grad import AccumulateGrad
from aotlite.eager.autograd.nodes.op_nodes import name_of
from aotlite.eager.base.tape.node import TapeNode
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.ir.errors import AutogradError, GraphError, UnsupportedError
from aotlite.ir.graph import Graph, Node, Phase, output_node
from aotlite.ir.graph.role import Output, Role
from aotlite.ir.ops.views.view_ops import DETACH
from aotlite.stages.records.backward.gradient_reads import SavedOf
from aotlite.stages.records.base import Record
from aotlite.stages.records.trace import Trace
from aotlite.stages.s4_joint.instrumented_runs import EngineRun
from aotlite.stages.s4_joint.recording_blocks import (
    at_node,
    continuing,
    in_phase,
    recording_backwards,
)
from aotlite.stages.s4_joint.replay.double_backward import KeptTape, Start
from aotlite.stages.s4_joint.subclasses.tangents import stand_in
from aotlite.stages.shared.gradient_sinks import sinks_of
from aotlite.stages.shared.tape_queries import passed


@attrs.frozen(eq=False, repr=False)
class CheckedGradient(Record):
    """The `index`-th gradient that a tape node computed."""

    node: TapeNode
    index: int
    value: Node


@attrs.frozen(eq=False, repr=False)
class AnomalyTrace(Record):
    """The gradients to check in a backward, in the engine's order."""

    graph: Graph
    """From the function's inputs and the incoming gradients to the checked gradients."""
    readings: tuple[CheckedGradient, ...]
    failure: tuple[TapeNode | None, Exception] | None
    """The node and error at which eager's backward stops, if it raises (JNT-15)."""
    reads: tuple[tuple[TapeNode, SavedOf], ...]
    """Saved tensors on memory that others may write, with the node that unpacks them (SAV-2)."""
    within: Mapping[TapeNode, TapeNode]
    """For a node made during a backward: the node that ran then."""
    order: int
    """The order of the derivatives that the backward computes."""


def anomaly_trace(
    kept_tape: KeptTape, arriving: Container[Any], wanted: Container[Any] | None
) -> AnomalyTrace:
    """The trace of a backward from the results `arriving` to the sources `wanted` (None: all)."""
    recorder = kept_tape.recorder
    with (
        continuing(recorder, kept_tape.nodes, recorder.wrapped.nodes),
        recording_backwards(recorder),
        in_phase(recorder, Phase.BACKWARD),
    ):
        return _recorded(kept_tape, arriving, wanted)


def _recorded(
    kept_tape: KeptTape, arriving: Container[Any], wanted: Container[Any] | None
) -> AnomalyTrace:
    recorder = kept_tape.recorder
    starts = [start for start in kept_tape.starts if start.role in arriving]
    made = [stand_in(recorder, s.role, kept_tape.incoming, s.meta, None) for s in starts]
    run = _run(kept_tape, starts, wanted)
    failure = None
    try:
        run.begin([(s.edge, each.tensor) for s, each in zip(starts, made, strict=True)])
    except AutogradError as error:
        if isinstance(error, (UnsupportedError, GraphError)):
            raise
        failure = recorder.failed, error
    outputs: list[tuple[Role, Node]] = [(Output(k), r.value) for k, r in enumerate(run.readings)]
    closing = output_node([value for _, value in outputs], [role for role, _ in outputs])
    inputs = (*kept_tape.inputs, *[each.tensor.value for each in made])
    graph = Graph((*inputs, *recorder.nodes, closing), f"{kept_tape.name}_watched")
    within, reads = _within(run.ran), _reads(kept_tape, run.ran)
    return AnomalyTrace(graph, tuple(run.readings), failure, reads, within, kept_tape.order)


def _run(
    kept_tape: KeptTape, starts: Sequence[Start], wanted: Container[Any] | None
) -> _WatchedRun:
    sources = [s for s in kept_tape.sources if wanted is None or s.role in wanted]
    ends = [edge for source in sources for edge, _ in sinks_of(source)]
    if wanted is None:  # and at leaves that the function made, whose gradients are dropped
        known = {edge[0] for edge in ends}
        way = passed([start.edge for start in starts])
        ends += [(n, 0) for n in way if type(n) is AccumulateGrad and n not in known]
    sinks, enters_all = Sinks(ends, cut=True), wanted is None
    trace = kept_tape.recorder
    return _WatchedRun(sinks, True, trace, trace=trace, enters_all=enters_all)


def _within(ran: Sequence[TapeNode]) -> dict[TapeNode, TapeNode]:
    """For each node that was made in a backward, the node that ran then.

    A backward's op has as its `origin` the forward op that it differentiates.
    """
    places = {node.origin: node for node in ran if node.origin is not None}
    found: dict[TapeNode, TapeNode] = {}
    line = [node for node in ran if node.origin is not None]
    for node in line:  # which grows
        place = node.origin.origin
        if place is not None and not node.origin.is_sum:
            outer = found[node] = places.setdefault(place, _Past(place))
            if type(outer) is _Past:
                line.append(outer)
    return found


class _Past(TapeNode):
    """A placeholder for the tape node of an op that does not run again."""

    __slots__ = ()

    def __init__(self, origin: Node) -> None:
        self.edges, self.sequence, self.origin, self.extra = (), origin.sequence, origin, None

    def name(self) -> str:
        return name_of(self.origin.target.name)


def _reads(kept_tape: KeptTape, ran: Sequence[TapeNode]) -> tuple[tuple[TapeNode, SavedOf], ...]:
    owned = [(node, each.tensor) for node in ran for each in node.kept_tensors()]
    owners = kept_tape.owners
    return tuple(
        [
            (node, SavedOf(owners[tensor.storage], tensor.meta))
            for node, tensor in owned
            if tensor.storage in owners
        ]
    )


@attrs.define(eq=False, repr=False)
class _WatchedRun(EngineRun):
    """A run of the engine that records every gradient that a node computes."""

    trace: Trace = attrs.field(kw_only=True)
    """The recorder, in which gradients are read."""
    enters_all: bool = attrs.field(kw_only=True)
    """Runs all nodes, as `backward()` does; `grad()` runs those that lead to its inputs."""
    readings: list[CheckedGradient] = attrs.field(init=False, factory=list)
    ran: list[TapeNode] = attrs.field(init=False, factory=list)

    def _nodes_to_run(self, wanted: Nodes, order: list[TapeNode], ends: Nodes) -> set[TapeNode]:
        if self.enters_all:
            return super()._nodes_to_run(wanted, order, ends)
        return BackwardPass._nodes_to_run(self, wanted, order, ends)

    def _run(self, node: TapeNode, grads: list[Any]) -> Sequence[Any]:
        self.ran.append(node)
        found = super()._run(node, grads)
        for index, grad in enumerate(found):
            if grad is not None and not is_wrapper(grad):
                self.readings.append(CheckedGradient(node, index, self._read(grad)))
        return found

    def _read(self, grad: Any) -> Node:
        """A detach of the gradient: users' Python may write it later."""
        with at_node(self.trace, grad.value):
            return self.trace.add_node(DETACH, (grad.value,), grad.meta)
