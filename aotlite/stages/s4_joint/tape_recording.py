"""Runs the engine on the captured tape, from the results' fake tangents to the inputs' edges.

Every op that the engine runs is recorded with phase BACKWARD. Stage 4 builds the subclass
`UserCodeRecording`, which adds users' Python and wrappers and else runs what is here.
Rules: JNT-3, SEQ-1, TEN-24. Spec: `specs/s4_joint.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from aotlite.eager.autograd.engine import Sinks
from aotlite.eager.base.tape.node import Edge, TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph import Phase
from aotlite.ir.graph.role import Result as ResultRole
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.records.trace import Trace
from aotlite.stages.s4_joint.gradient_paths import GradientPaths
from aotlite.stages.s4_joint.instrumented_runs import EngineRun
from aotlite.stages.s4_joint.recording_blocks import in_phase
from aotlite.stages.shared.gradient_sinks import sinks_of, sum_at_entry

Root = tuple[ResultRole, Edge | None, Tensor]
"""A result, the tape edge at which its gradient enters, and its fake tangent."""


@attrs.define(eq=False, repr=False)
class TapeRecording:
    """Records the backward of one captured function, if need be several times."""

    captured: Captured
    meta: FunctionMeta
    paths: GradientPaths
    roots: list[Root] = attrs.field(init=False, factory=list)
    """All differentiable results, with edges and tangents."""
    started: list[ResultRole] = attrs.field(init=False, factory=list)
    """The results from which the last run started."""
    arrived: Sequence[TapeNode] = attrs.field(init=False, default=())
    """The sinks, in the order in which gradients arrived (CAG-10)."""
    recorder: Trace = attrs.field(init=False)
    sequence: int = attrs.field(init=False)
    """The sequence number of the forward's last tape node (SEQ-1)."""

    @recorder.default
    def _recorder(self) -> Any:
        return self.captured.recorder

    @sequence.default
    def _last_sequence(self) -> int:
        return max(self.captured.recorder.sequence - 1, 0)

    def healthy(self) -> list[Root]:
        """The roots whose backward is not known to raise."""
        return [root for root in self.roots if root[0] not in self.paths.errors]

    def gradients(self, roots: Sequence[Root]) -> list[Tensor | None]:
        """Records the backward from `roots`; the gradient of each source, as it was at entry."""
        sources, recorder = self.captured.sources, self.recorder
        sinks = [sinks_of(source) for source in sources]
        recorder.sequence = self.sequence
        recorder.hooks.clear()
        with in_phase(recorder, Phase.BACKWARD):
            edges = [edge for each in sinks for edge, _ in each]
            found = iter(self._arriving(roots, edges))
            return [
                recorder.summed(sum_at_entry, source, [(next(found), moves) for _, moves in each])
                for source, each in zip(sources, sinks, strict=True)
            ]

    def _arriving(self, roots: Sequence[Root], edges: Sequence[Edge]) -> list[Tensor | None]:
        """The gradients at these edges, followed by those of leaves that the function made."""
        self.started = [result for result, _, _ in roots]
        run = self._engine_run([*edges, *self.paths.inner_leaves])
        found = run.begin([(edge, tangent) for _, edge, tangent in roots])
        self.arrived = run.arrived
        return found

    def _engine_run(self, ends: Sequence[Edge]) -> EngineRun:
        return EngineRun(Sinks(ends, cut=True), retain=True, recorder=self.recorder)
