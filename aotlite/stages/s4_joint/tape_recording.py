"""Runs the engine on a tape of fakes, from fake tangents to the edges that collect gradients.

Every op that the engine runs is recorded. A recording can be repeated, for other results, or for
results that fail together (`result_sets.py`). It is used for

    UserCodeRecording        the backward of a captured function, which stage 4 records
    TapeRecording            that backward again, with a tape of its own (create_graph), and
    DerivativeRecording      the backward of this tape (both in `replay/double_backward.py`)

Rules: JNT-3, SEQ-1, TEN-24. Spec: `specs/s4_joint.md`.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from aotlite.eager.autograd.engine import BackwardPass, Sinks
from aotlite.eager.base.tape.node import Edge
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import AutogradError
from aotlite.ir.graph import Phase
from aotlite.ir.graph.role import Result
from aotlite.stages.records.backward.joint import ArrivalChoice
from aotlite.stages.records.trace import Trace
from aotlite.stages.s4_joint.recording_blocks import in_grad_mode, in_phase
from aotlite.stages.shared.gradient_sinks import GradientSource, sinks_of, sum_at_entry

Root = tuple[Result, Edge | None, Tensor]
"""A result, the tape edge at which its gradient enters, and its fake tangent."""


@attrs.define(eq=False, repr=False)
class TapeRecording:
    """Records the backward of one tape, if need be several times."""

    recorder: Trace
    sources: Sequence[GradientSource]
    """Where gradients are collected: inputs, bases of families, tangents of earlier orders."""
    errors: dict[Result, Exception] = attrs.field(factory=dict)
    """The error that eager's backward of a result raises (JNT-15)."""
    creates_graph: bool = attrs.field(kw_only=True, default=False)
    """Whether the gradients get a tape of their own: they are values to differentiate, and the
    recorded nodes are of the forward phase."""
    roots: list[Root] = attrs.field(init=False, factory=list)
    """All differentiable results, with edges and tangents."""
    started: list[Result] = attrs.field(init=False, factory=list)
    """The results from which the last run started."""
    choices: list[ArrivalChoice] | None = attrs.field(init=False, default=None)
    """If each subset of results is recorded: the subsets so far. All tangents of the present one
    arrive (TAN-8)."""
    sequence: int = attrs.field(init=False)
    """The sequence number of nodes that no forward op led to (SEQ-1)."""

    @sequence.default
    def _last_sequence(self) -> int:
        return max(self.recorder.sequence - 1, 0)

    def healthy(self) -> list[Root]:
        """The roots whose backward is not known to raise."""
        return [root for root in self.roots if root[0] not in self.errors]

    def gradients(self, roots: Sequence[Root]) -> list[Tensor | None]:
        """Records the backward from `roots`; the gradient of each source, as it was at entry."""
        recorder, sinks = self.recorder, [sinks_of(source) for source in self.sources]
        recorder.sequence = self.sequence
        recorder.hooks.clear()
        self.started = [result for result, _, _ in roots]
        phase = Phase.FORWARD if self.creates_graph else Phase.BACKWARD
        with in_grad_mode(self.creates_graph), in_phase(recorder, phase):
            edges = [edge for each in sinks for edge, _ in each]
            found = iter(self._arriving(edges, [(edge, tangent) for _, edge, tangent in roots]))
            return [
                recorder.summed(sum_at_entry, source, [(next(found), moves) for _, moves in each])
                for source, each in zip(self.sources, sinks, strict=True)
            ]

    def _arriving(
        self, edges: Sequence[Edge], pairs: Sequence[tuple[Edge | None, Tensor]]
    ) -> list[Tensor | None]:
        """The gradients at these edges, of a run from these pairs; further ones may follow."""
        return BackwardPass(Sinks(edges, cut=True), retain=True, recorder=self.recorder)(pairs)

    # --- which results fail, or have to be recorded apart (`result_sets.py`)
    def expected_errors(self) -> tuple[type[Exception], ...]:
        """The errors that eager's backward raises too; the compiled one raises them by then."""
        return (AutogradError,)

    def may_differ(self) -> bool:
        """Whether the ops of the backward may depend on which tangents arrive (TAN-8)."""
        return bool(self.recorder.wrapped)

    def note_error(self, error: Exception, start: int) -> bool:
        """Notes the error of a run for the results that meet it. False if they are unknown.

        `start` is the number of the first node that the run has recorded.
        """
        return False
