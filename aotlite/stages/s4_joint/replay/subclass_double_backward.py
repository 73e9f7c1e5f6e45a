"""Double backward with wrapper gradients, or custom functions that get None (DBL-2, TAN-8).

The first backward is recorded for the tangents that arrive. Which tangents arrive in the backward
of that is not known. So it is recorded as stage 4 records one: sums of wrappers are selected by
flags, or each subset of results is recorded. Used by `double_backward` alone.
Spec: `specs/higher_orders.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from aotlite.eager.autograd.engine import BackwardPass, Sinks
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph import Node, Phase
from aotlite.ir.graph.role import Role
from aotlite.stages.records.backward.joint import ArrivalChoice
from aotlite.stages.records.metadata.subclass_meta import SubclassMeta
from aotlite.stages.records.trace import Trace
from aotlite.stages.s4_joint.instrumented_runs import (
    ArrivalHandlers,
    Flows,
    InstrumentedRun,
    flows_of,
)
from aotlite.stages.s4_joint.recording_blocks import in_grad_mode, in_phase
from aotlite.stages.s4_joint.subclasses.accumulation import joined, note_required_arrivals
from aotlite.stages.s4_joint.subclasses.tangents import flat_gradients
from aotlite.stages.s4_joint.tangent_variants import (
    MOST,
    Flat,
    can_repeat,
    check_is_eagers,
    note_failing,
    recorded_choices,
)
from aotlite.stages.shared.gradient_sinks import sinks_of, sum_at_entry
from aotlite.stages.shared.required_tangents import RequiredArrivals

Root = tuple[Any, Any, Tensor]
"""A result, the tape edge at which its gradient enters, and its tangent."""


@attrs.frozen(eq=False, repr=False)
class Second:
    """The backward half of a double backward's joint graph: outputs, and facts on them.

    The fields are those of `JointBackward` (`records.backward.joint`).
    """

    outputs: list[tuple[Role, Any]]
    receiving_inputs: Flows
    """For each result the sources that its gradient reached."""
    subclass_metas: Mapping[Any, SubclassMeta] = {}
    flags: tuple[Node, ...] = ()
    """`Arrived` inputs."""
    arrivals: tuple[frozenset[Any], ...] = ()
    required_arrivals: tuple[RequiredArrivals, ...] = ()
    arrival_choices: tuple[ArrivalChoice, ...] = ()


def wrapped_second(
    recorder: Trace, sources: Sequence[Any], roots: Sequence[Root], errors: dict[Any, Exception]
) -> Second:
    """The gradients of the sources; results whose backward raises are noted in `errors`."""
    with in_grad_mode(False), in_phase(recorder, Phase.BACKWARD):
        return _Recording(recorder, sources, errors).run(roots)


class _Recording:
    def __init__(
        self, recorder: Trace, sources: Sequence[Any], errors: dict[Any, Exception]
    ) -> None:
        self.recorder = recorder
        self.sources = sources
        self.errors = errors
        self.receiving_inputs: Flows = {}

    def run(self, roots: Sequence[Root]) -> Second:
        recorder, start = self.recorder, len(self.recorder.nodes)
        choices: list[ArrivalChoice] = []
        found = self._of_healthy(roots)
        healthy = self._healthy(roots)
        if found is None or (self._has_choices(healthy) and can_repeat(recorder.nodes[start:])):
            recorder.drop_from(start)
            once = partial(self._record, joins=False)
            found = recorded_choices(recorder, healthy, once, choices)
        outputs, wrappings = found
        return Second(
            outputs,
            self.receiving_inputs,
            {role: how for role, how in wrappings.items() if how is not None},
            tuple(recorder.streams.flags.values()),
            recorder.streams.arrivals(),
            tuple(recorder.wrapped.required_arrivals),
            tuple(choices),
        )

    def _healthy(self, roots: Sequence[Root]) -> list[Root]:
        return [root for root in roots if root[0] not in self.errors]

    def _has_choices(self, roots: Sequence[Root]) -> bool:
        return self.recorder.wrapped.unlike and 1 < len(roots) <= MOST

    def _of_healthy(self, roots: Sequence[Root]) -> Flat | None:
        """The gradients of all results whose backward does not raise.

        None if they raise only together. Note [results that fail together] in `result_sets`.
        """
        recorder, start = self.recorder, len(self.recorder.nodes)
        try:
            return self._record(self._healthy(roots))
        except Exception as error:  # a wrapper's class may raise any
            check_is_eagers(error)
        recorder.drop_from(start)
        note_failing(recorder, self._healthy(roots), self._record, self.errors)
        healthy = self._healthy(roots)
        try:
            return self._record(healthy)
        except Exception as error:
            recorder.drop_from(start)
            recorder.wrapped.unlike = True  # none of them fails alone
            if not self._has_choices(healthy):
                raise
            check_is_eagers(error)
            return None

    def _record(self, roots: Sequence[Root], *, joins: bool = True) -> Flat:
        recorder, sinks = self.recorder, [sinks_of(source) for source in self.sources]
        recorder.wrapped.required_arrivals.clear()
        recorder.wrapped.unlike = False
        recorder.streams.flags.clear()
        join = partial(joined, recorder, tuple([role for role, _, _ in roots])) if joins else None
        tell = (
            partial(note_required_arrivals, recorder, tuple([r[0] for r in roots]))
            if joins
            else None
        )
        self.receiving_inputs, arrived = gradients_of(
            recorder, self.sources, roots, ArrivalHandlers(join, tell)
        )
        found = iter(arrived)
        grads = [
            recorder.summed(sum_at_entry, source, [(next(found), moves) for _, moves in each])
            for source, each in zip(self.sources, sinks, strict=True)
        ]
        recorder.origin = None
        return flat_gradients(recorder, self.sources, grads)


def gradients_of(
    recorder: Trace,
    sources: Sequence[Any],
    roots: Sequence[Root],
    handlers: ArrivalHandlers | None = None,
) -> tuple[Flows, list[Any]]:
    """The sources that the gradient of each root reaches, and the gradients at all sinks."""
    ends = {source.role: [edge for edge, _ in sinks_of(source)] for source in sources}
    edges = [edge for each in ends.values() for edge in each]
    sinks, handlers = Sinks(edges, cut=True), handlers or ArrivalHandlers()
    run = _Pass(sinks, True, recorder, recorded=recorder.nodes, on_arrival=handlers)
    found = run.begin([(edge, tangent) for _, edge, tangent in roots])
    return flows_of(run, [role for role, _, _ in roots], ends), found


@attrs.define(eq=False, repr=False)
class _Pass(InstrumentedRun):
    """An instrumented run of only the nodes that lead to a sink."""

    _nodes_to_run = BackwardPass._nodes_to_run
