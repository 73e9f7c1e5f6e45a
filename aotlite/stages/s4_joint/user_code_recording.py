"""Records the backward of every function; instrumented where users' Python runs in it.

Users' Python (custom functions, hooks) has effects, draws random numbers, reads and writes memory,
and may return None. All of this happens only if its tape node runs, which depends on the tangents
that arrive; so do sums of wrappers. For these an `InstrumentedRun` tracks the results from which
each gradient comes. `joint` builds no other recording than `UserCodeRecording`.
Rules: FUN-31, TAN-8, TOK-4, RNG-5. Spec: `specs/s4_joint.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs

from aotlite.eager.autograd.engine import Sinks
from aotlite.eager.base.tape.node import Edge
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph import Graph, Node
from aotlite.stages.records.backward.joint import ArrivalChoice, BackwardEffect, BackwardMemory
from aotlite.stages.records.capture_inputs import CapturedInput
from aotlite.stages.s4_joint.backward_effects import (
    ArrivalConditions,
    backward_effects,
    has_backward_effects,
    has_observable_effects,
)
from aotlite.stages.s4_joint.backward_mutations import (
    BackwardMutations,
    BackwardRecording,
    with_backward_mutations,
)
from aotlite.stages.s4_joint.instrumented_runs import (
    ArrivalHandlers,
    EngineRun,
    Flows,
    InstrumentedRun,
    NodeVisit,
    flows_of,
)
from aotlite.stages.s4_joint.replay.double_backward import KeptTape, kept_tape
from aotlite.stages.s4_joint.subclasses.accumulation import joined, note_required_arrivals
from aotlite.stages.s4_joint.tangent_variants import turns_among
from aotlite.stages.s4_joint.tape_recording import Root, TapeRecording
from aotlite.stages.shared.gradient_sinks import sinks_of


@attrs.define(eq=False, repr=False)
class UserCodeRecording(TapeRecording):
    """The recording of every function: plain, or instrumented where users' Python needs it."""

    user_code: bool = attrs.field(init=False)
    """Users' Python runs in the backward, or ops in it have effects or draw."""
    run: InstrumentedRun | None = attrs.field(init=False, default=None)
    """The last instrumented run."""
    choice_visits: list[NodeVisit] | None = attrs.field(init=False, default=None)
    """If each subset of results is recorded: the visits of all runs, with common bits."""
    receiving_inputs: Flows = attrs.field(init=False, factory=dict)
    """For each result the sources that its gradient reached (TAN-8)."""
    arrival_choices: list[ArrivalChoice] = attrs.field(init=False, factory=list)

    @user_code.default
    def _has_user_code(self) -> bool:
        return self.paths.has_user_code

    @property
    def visits(self) -> list[NodeVisit]:
        """The node visits of the last run, or of the runs of all subsets of results."""
        assert self.run is not None
        return self.run.visits if self.choice_visits is None else self.choice_visits

    # --- the run
    def _arriving(self, roots: Sequence[Root], edges: Sequence[Edge]) -> list[Tensor | None]:
        recorder = self.recorder
        recorder.wrapped.required_arrivals.clear()
        recorder.wrapped.unlike = False
        recorder.streams.flags.clear()
        if not self.user_code:
            start = len(recorder.nodes)
            found = super()._arriving(roots, edges)
            if not has_backward_effects(recorder.nodes[start:]):
                return found  # ops' formulas give gradients wherever the tape leads
            self.user_code = True  # some op has effects, or draws: run again, instrumented
            recorder.drop_from(start)
        for given in recorder.inputs:
            given.fake.storage.writable = True  # checked on the real tensor when the backward runs
        self.started = [result for result, _, _ in roots]
        ends = [*edges, *self.paths.inner_leaves]
        self.run = run = self._instrumented_run(ends, recorder.nodes)
        self.arrived = run.arrived
        pairs = [(edge, tangent) for _, edge, tangent in roots]
        if self.choice_visits is None:
            return self._begin(run, pairs)
        recorder.streams.begin_backward()  # all tangents of the subset arrive: no conditions
        found = run.begin(pairs)
        healthy = [result for result, _, _ in self.healthy()]
        self.choice_visits += turns_among(run.visits, self.started, healthy)
        return found

    def _begin(
        self, run: InstrumentedRun, pairs: Sequence[tuple[Edge | None, Any]]
    ) -> list[Tensor | None]:
        """The gradients of a run in which users' code depends on which tangents arrive."""
        recorder, paths = self.recorder, self.paths
        every = frozenset[Any]().union(*paths.reachable_inputs.values())
        conditions = ArrivalConditions(run, recorder, self.started, paths.sinks, every)
        run.on_arrival.guard = conditions.guarded
        run.on_arrival.tell = partial(note_required_arrivals, recorder, tuple(self.started))
        recorder.streams.begin_backward(conditions.now)
        found = run.begin(pairs)
        collected = {s.role: [e for e, _ in sinks_of(s)] for s in self.captured.sources}
        self.receiving_inputs = flows_of(run, self.started, collected | recorder.hooks.edges())
        return found

    def _engine_run(self, ends: Sequence[Edge]) -> EngineRun:
        if len(self.started) > 1 and self._join() is not None:
            return self._instrumented_run(ends, ())
        return super()._engine_run(ends)

    def _instrumented_run(self, ends: Sequence[Edge], nodes: Sequence[Node]) -> InstrumentedRun:
        sinks, handlers = Sinks(ends, cut=True), ArrivalHandlers(self._join())
        return InstrumentedRun(sinks, True, self.recorder, recorded=nodes, on_arrival=handlers)

    def _join(self) -> Callable[..., Any] | None:
        """The function that adds wrapper gradients that may be absent; None for plain sums."""
        if self.choice_visits is not None or not self.recorder.wrapped:
            return None
        return partial(joined, self.recorder, tuple(self.started))

    # --- the facts for `Joint`
    def late_inputs(self) -> tuple[CapturedInput, ...]:
        """The hidden inputs that only the backward reaches."""
        known = len(self.captured.inputs)
        return tuple([attrs.evolve(i, entry=None) for i in self.recorder.inputs[known:]])

    def is_observable(self, start: int) -> bool:
        """Whether the backward recorded from node `start` on gives gradients, or has effects."""
        return self.meta.training or has_observable_effects(
            self.recorder, start, self.late_inputs()
        )

    def drop(self, start: int) -> None:
        """Drops the backward that was recorded from node `start` on."""
        self.recorder.drop_from(start)
        self.recorder.streams.drop_backward()
        self.recorder.wrapped.required_arrivals.clear()
        self.run, self.roots, self.arrival_choices = None, [], []

    def mutations(self, graph: Graph) -> BackwardMutations:
        """The graph whose backward reads and writes memory of the forward as it is by then."""
        if self.run is None:
            return BackwardMutations(graph, arrivals=self.recorder.streams.arrivals())
        backward = BackwardRecording(self.visits, self.started, self.recorder)
        wrappers = self.recorder.wrapped.nodes
        return with_backward_mutations(graph, self.meta, self.recorder.inputs, backward, wrappers)

    def effects(self) -> tuple[BackwardEffect, ...]:
        """The effects of the backward, in order, with their conditions (TOK-4)."""
        if self.run is None:
            return ()
        nodes, wrappers = self.recorder.nodes, self.recorder.wrapped.nodes
        noted = backward_effects(nodes, self.visits, self.started, self.paths.sinks, wrappers)
        return (*noted, *self.recorder.streams.moments)

    def kept_tape(
        self, memory: Sequence[BackwardMemory], effects: Sequence[BackwardEffect]
    ) -> KeptTape | None:
        """The tape from which a double backward is recorded (DBL-2); None if there can be none."""
        recorder = self.recorder
        draws = recorder.streams.after_backward() is not None
        happens = draws or effects or any(each.writes for each in memory)
        passed = recorder.hooks.kept or recorder.hooks.come_back
        if not self.roots or happens or self.late_inputs() or passed:
            return None
        users = self.user_code or bool(recorder.wrapped)
        return kept_tape(self.captured, self.roots, self.paths.owners, memory, users=users)
