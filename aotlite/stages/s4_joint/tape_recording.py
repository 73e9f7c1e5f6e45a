"""Recordings of the engine's run backwards from results to the sources of their gradients.

Used by stage 4 alone. This is the plain case; what users' Python in a backward and wrapper
subclasses add is in `user_code_recording.py`. Rules: JNT-3, SEQ-1, TEN-24.
Spec: `specs/s4_joint.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

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
"""A result, where its gradient enters the tape, and the fake tangent."""


@attrs.define(eq=False)
class TapeRecording:
    """Records backwards of one captured function, perhaps several times."""

    captured: Captured
    meta: FunctionMeta
    paths: GradientPaths
    roots: list[Root] = attrs.field(init=False, factory=list)
    """All that the backward starts from, unless one's gradient raises."""
    started: list[ResultRole] = attrs.field(init=False, factory=list)
    """The results whose gradients the last run started from."""
    arrived: Sequence[TapeNode] = attrs.field(init=False, default=())
    """Where gradients are collected, in the order in which they arrive (CAG-10)."""
    recorder: Trace = attrs.field(init=False)
    sequence: int = attrs.field(init=False)
    """The number of the forward's last tape node (SEQ-1)."""

    @recorder.default
    def _recorder(self) -> Any:
        return self.captured.recorder

    @sequence.default
    def _last_sequence(self) -> int:
        return max(self.captured.recorder.sequence - 1, 0)

    def healthy(self) -> list[Root]:
        """The roots whose backward does not raise, as far as is known."""
        return [root for root in self.roots if root[0] not in self.paths.errors]

    def gradients(self, roots: Sequence[Root]) -> list[Tensor | None]:
        """The gradient of each source, in its geometry at entry."""
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
        """The gradients that arrive at these edges, and then those of leaves made inside."""
        self.started = [result for result, _, _ in roots]
        run = self._engine_run([*edges, *self.paths.inner_leaves])
        found = run.begin([(edge, tangent) for _, edge, tangent in roots])
        self.arrived = run.arrived
        return found

    def _engine_run(self, ends: Sequence[Edge]) -> EngineRun:
        return EngineRun(ends, True, False, True, self.recorder)
