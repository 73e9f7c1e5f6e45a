"""Records the backward of every function; instrumented where users' Python runs in it.

Users' Python (custom functions, hooks) has effects, draws random numbers, reads and writes memory,
and may return None. All of this happens only if its tape node runs, which depends on the tangents
that arrive; so do sums of wrappers. For these an `InstrumentedRun` tracks the results from which
each gradient comes. `joint` builds no other recording than `UserCodeRecording`.
Rules: FUN-31, TAN-8, TOK-4, RNG-5. Spec: `specs/s4_joint.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from aotlite.eager.autograd.engine import Sinks
from aotlite.eager.base.tape.node import Edge, TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import AutogradError, ShapeError
from aotlite.ir.graph import Graph, Node
from aotlite.stages.records.backward.joint import BackwardEffect, BackwardMemory
from aotlite.stages.records.capture_inputs import CapturedInput, SourceRole
from aotlite.stages.s4_joint.backward_effects import (
    ArrivalConditions,
    backward_effects,
    has_backward_effects,
    has_observable_effects,
    refuse_repeated_writes,
)
from aotlite.stages.s4_joint.backward_mutations import (
    BackwardMutations,
    BackwardRecording,
    with_backward_mutations,
)
from aotlite.stages.s4_joint.gradient_paths import GradientPaths
from aotlite.stages.s4_joint.instrumented_runs import (
    EngineRun,
    Flows,
    InstrumentedRun,
    NodeVisit,
    flows_of,
    forget_arrivals,
    handlers_of,
)
from aotlite.stages.s4_joint.replay.context_attributes import ContextAttributes
from aotlite.stages.s4_joint.replay.double_backward import KeptTape, kept_tape
from aotlite.stages.s4_joint.results import JointResults
from aotlite.stages.s4_joint.tangent_variants import turns_among
from aotlite.stages.s4_joint.tape_recording import TapeRecording
from aotlite.stages.shared.gradient_sinks import sinks_of


@attrs.define(eq=False, repr=False)
class UserCodeRecording(TapeRecording):
    """The recording of every function: plain, or instrumented where users' Python needs it."""

    results: JointResults = attrs.field(kw_only=True)
    paths: GradientPaths = attrs.field(kw_only=True)
    user_code: bool = attrs.field(init=False)
    """Users' Python runs in the backward, or ops in it have effects or draw."""
    last_run: EngineRun | None = attrs.field(init=False, default=None)
    choice_visits: list[NodeVisit] = attrs.field(init=False, factory=list)
    """If each subset of results is recorded: the visits of all runs, with common bits."""
    contexts: ContextAttributes = attrs.field(init=False)
    """What each recording finds on the contexts of custom functions."""

    @classmethod
    def of(cls, results: JointResults, paths: GradientPaths) -> UserCodeRecording:
        """The recording of the backward of a captured function."""
        captured = results.captured
        return cls(captured.recorder, captured.sources, paths.errors, results=results, paths=paths)

    @user_code.default
    def _has_user_code(self) -> bool:
        return self.paths.has_user_code

    @contexts.default
    def _of_forward(self) -> ContextAttributes:
        return ContextAttributes.among(user_code=self.paths.has_user_code)

    @property
    def receiving_inputs(self) -> Flows:
        """For each result the sources that its gradient reached, where users' code ran (TAN-8)."""
        if self.run is None or self.choices is not None:
            return {}
        ends: list[tuple[SourceRole, list[Edge]]] = [
            (source.role, [edge for edge, _ in sinks_of(source)]) for source in self.sources
        ]
        ends += self.recorder.hooks.edges().items()
        return flows_of(self.run, self.started, dict(ends))

    @property
    def run(self) -> InstrumentedRun | None:
        """The last run, if users' code ran in it."""
        return self.last_run if self.user_code else None  # type: ignore[return-value]

    @property
    def arrived(self) -> Sequence[TapeNode]:
        """The sinks, in the order in which gradients arrived (CAG-10)."""
        return () if self.last_run is None else self.last_run.arrived

    @property
    def visits(self) -> list[NodeVisit]:
        """The node visits of the last run, or of the runs of all subsets of results."""
        assert self.run is not None
        return self.run.visits if self.choices is None else self.choice_visits

    # --- the run
    def _arriving(
        self, edges: Sequence[Edge], pairs: Sequence[tuple[Edge | None, Tensor]]
    ) -> list[Tensor | None]:
        recorder, ends = self.recorder, [*edges, *self.paths.inner_leaves]
        forget_arrivals(recorder)
        self.contexts.put_back([edge for _, edge, _ in self.roots])
        if not self.user_code:
            start, plain = len(recorder.nodes), self._plain_run(ends)
            found = plain(pairs)
            self.last_run = plain
            if not has_backward_effects(recorder.nodes[start:]):
                return found  # ops' formulas give gradients wherever the tape leads
            self.user_code = True  # some op has effects, or draws: run again, instrumented
            recorder.drop_from(start)
        for given in recorder.inputs:
            given.fake.storage.writable = True  # checked on the real tensor when the backward runs
        self.last_run = run = self._instrumented_run(ends, recorder.nodes)
        if self.choices is None:
            return self._begin(run, pairs)
        recorder.streams.begin_backward()  # all tangents of the subset arrive: no conditions
        found = run(pairs)
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
        recorder.streams.begin_backward(conditions.now)
        return run(pairs)

    def _plain_run(self, ends: Sequence[Edge]) -> EngineRun:
        if len(self.started) > 1 and self.recorder.wrapped and self.choices is None:
            return self._instrumented_run(ends, ())
        return EngineRun(Sinks(ends, cut=True), retain=True, recorder=self.recorder)

    def _instrumented_run(self, ends: Sequence[Edge], nodes: Sequence[Node]) -> InstrumentedRun:
        all_arrive = self.choices is not None
        handlers = handlers_of(self.recorder, self.started, all_arrive=all_arrive)
        sinks = Sinks(ends, cut=True)
        return InstrumentedRun(sinks, True, self.recorder, recorded=nodes, on_arrival=handlers)

    # --- errors
    def expected_errors(self) -> tuple[type[Exception], ...]:
        if self.recorder.wrapped or not self.results.meta.training:
            # A wrapper's class may raise any; without training few need the gradients.
            return (Exception,)
        # A leaf that set_ moved to another storage may get gradients of two shapes (TEN-26).
        put = self.results.meta.count_plan is not None
        return (AutogradError, ShapeError) if put else (AutogradError,)

    def note_error(self, error: Exception, start: int) -> bool:
        """Notes the error for the results that lead to the node at which users' Python failed."""
        if self.run is None:
            return False
        if len(self.started) > 1:  # unknown whether they fail together or alone: recorded again
            refuse_repeated_writes(self.recorder.nodes[start:])
        bits = self.run.bits.now or 0
        self.errors.update(
            {result: error for k, result in enumerate(self.started) if bits >> k & 1}
        )
        return True

    # --- the facts for `Joint`
    def late_inputs(self) -> tuple[CapturedInput, ...]:
        """The hidden inputs that only the backward reaches."""
        known = len(self.results.captured.inputs)
        return tuple([attrs.evolve(i, entry=None) for i in self.recorder.inputs[known:]])

    def is_observable(self, start: int) -> bool:
        """Whether the backward recorded from node `start` on gives gradients, or has effects."""
        return self.results.meta.training or has_observable_effects(
            self.recorder, start, self.late_inputs()
        )

    def drop(self, start: int) -> None:
        """Drops the backward that was recorded from node `start` on."""
        self.recorder.drop_from(start)
        self.recorder.streams.drop_backward()
        self.recorder.wrapped.required_arrivals.clear()
        self.last_run, self.roots, self.choices = None, [], None

    def mutations(self, graph: Graph) -> BackwardMutations:
        """The graph whose backward reads and writes memory of the forward as it is by then."""
        if self.run is None:
            return BackwardMutations(graph, arrivals=self.recorder.streams.arrivals())
        backward = BackwardRecording(self.visits, self.started, self.recorder)
        wrappers, meta = self.recorder.wrapped.nodes, self.results.meta
        return with_backward_mutations(graph, meta, self.recorder.inputs, backward, wrappers)

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
        captured, owners = self.results.captured, self.paths.owners
        tape = kept_tape(captured, self.roots, owners, memory, users=users)
        fakes = recorder.weak_fakes() if users else {}
        return attrs.evolve(tape, contexts=self.contexts, outer_fakes=fakes)
