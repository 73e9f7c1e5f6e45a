"""Context managers that set the recorder's state for a block, and restore it.

Used by stage 4 alone; it changes modes, phase and position of the recorder through these only.
Spec: `specs/s4_joint.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from aotlite.eager.autograd.anomaly import known_notes
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.base.unsupported import raising_refusals
from aotlite.eager.tracked_objects import observing
from aotlite.ir.errors import noted
from aotlite.ir.graph import Node, Phase
from aotlite.stages.records.trace import OuterFakes, Trace


@contextmanager
def recording_engine(recorder: Trace, *, create_graph: bool) -> Iterator[None]:
    """A block that records what the engine does; hooks on ops of the user's do not see it.

    With `create_graph` in grad mode, so that the engine builds a tape of what it does.
    """
    outer, mode, watch = STATE.recorder, STATE.grad_mode, STATE.watch
    STATE.recorder, STATE.grad_mode, STATE.watch = recorder, create_graph, None
    try:
        with raising_refusals(recorder):
            yield
    finally:
        STATE.recorder, STATE.grad_mode, STATE.watch = outer, mode, watch
        recorder.origin, recorder.phase = None, Phase.FORWARD


@contextmanager
def recording_backwards(recorder: Trace) -> Iterator[None]:
    """A block that records backwards, in grad mode off.

    Attributes of Modules that users' Python reads are guarded (CAP-5). An error that leaves the
    block has a note with the line of the forward op (JNT-8).
    """
    recorder.failed = None
    try:
        with recording_engine(recorder, create_graph=False), observing():
            yield
    except Exception as error:
        if recorder.failed is not None:
            noted(error, *known_notes(recorder.failed))
        raise


@contextmanager
def in_phase(recorder: Trace, phase: Phase) -> Iterator[None]:
    """A block that records nodes of this phase; at its end no origin is set."""
    before, recorder.phase = recorder.phase, phase
    try:
        yield
    finally:
        recorder.phase, recorder.origin = before, None


@contextmanager
def at_node(recorder: Trace, node: Node) -> Iterator[None]:
    """A block that records nodes with this node's location and scope (JNT-8)."""
    before, recorder.origin = recorder.origin, node
    try:
        yield
    finally:
        recorder.origin = before


@contextmanager
def in_grad_mode(mode: bool) -> Iterator[None]:
    """A block in this grad mode, which recorded nodes store."""
    before, STATE.grad_mode = STATE.grad_mode, mode
    try:
        yield
    finally:
        STATE.grad_mode = before


@contextmanager
def nothing_kept(recorder: Trace) -> Iterator[None]:
    """A block whose recorded nodes are dropped at its end."""
    start = len(recorder.nodes)
    try:
        yield
    finally:
        recorder.drop_from(start)


@contextmanager
def continuing(
    recorder: Trace,
    nodes: Sequence[Node],
    wrappers: dict[Node, Tensor | None],
    outer_fakes: OuterFakes,
) -> Iterator[None]:
    """A block that records after the nodes of a kept tape; then the recorder is as before."""
    before = recorder.nodes, recorder.sequence
    wrapped, state = recorder.wrapped.nodes, recorder.streams.state
    recorder.nodes, recorder.wrapped.nodes = list(nodes), wrappers
    recorder.outer_fakes = outer_fakes
    try:
        yield
    finally:
        recorder.nodes, recorder.sequence = before
        recorder.outer_fakes = {}
        recorder.wrapped.nodes, recorder.streams.state = wrapped, state
