"""A backward with `create_graph=True` as one graph: a compiled function of what the tape has saved.

    tape ──record──> graph ──as a function──> al.compile ──called with saved values──> gradients

The saved values are passed with their history. So the gradients have a history, too, through the
function's own backward, and derivatives of any order follow (DBL-2). The engine runs a tape with
hooks, users' functions, or compiled functions, and the reason is counted.
Rules: CAG-16, CAG-27. Spec: `specs/one_tape.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import attrs

from aotlite.api import compile
from aotlite.compiled_autograd.dynamic.templates import Templates
from aotlite.compiled_autograd.execution import Tape, TapeRun, order_of
from aotlite.compiled_autograd.one_tape.program import NotOneGraph
from aotlite.compiled_autograd.segment import Delivered, SegmentCompiler, SegmentRecording
from aotlite.compiled_autograd.segment_recording import SegmentRecorder
from aotlite.eager.autograd.nodes.accumulate_grad import AccumulateGrad
from aotlite.eager.autograd.nodes.op_nodes import OpNode, result_of
from aotlite.eager.autograd.nodes.saved_tensors import SavedTensor
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.dispatch import dispatch
from aotlite.ir.errors import AutogradError
from aotlite.ir.graph import Graph
from aotlite.ir.run.interpreter import Interpreter
from aotlite.pipeline.options import Options
from aotlite.stages.s6_functionalize import functionalize

_MOST = 64
"""The largest number of functions that are kept."""


@attrs.frozen(eq=False)
class _Recorded:
    """A tape, and its graph as a compiled function; None if gradients only pass through."""

    recording: SegmentRecording
    function: Callable[..., Any] | None


class TapesWithHistory:
    """The functions of one compiler, by structure of the tape."""

    def __init__(self) -> None:
        self._known: dict[Hashable, _Recorded] = {}

    def run(self, tape: Tape, compiler: SegmentCompiler, options: Options) -> list[Tensor | None]:
        """The gradients of the sinks, with history. Raises NotOneGraph before anything happened."""
        if not tape.look.nodes:
            raise NotOneGraph("create_graph=True: the tape is empty")
        run = TapeRun(tape, compiler, Templates())
        for node in tape.look.nodes:
            kind = type(node)
            if not (kind is OpNode or (kind is AccumulateGrad and not node.edges)):
                raise NotOneGraph(f"create_graph=True: no formula of {node.name()} is recorded")
            if node.extra is not None and (not node.extra.is_idle or node.extra.forms):
                raise NotOneGraph("create_graph=True: the tape has hooks")
        if not all(map(tape.look.is_open, range(len(tape.look.nodes)))):
            raise NotOneGraph("create_graph=True: the tape has hooks or packed values")
        known = self._known.get(tape.look.key)
        try:
            saved = [_saved_by(node) if type(node) is OpNode else [] for node in tape.look.nodes]
        except AutogradError as error:  # the engine raises it when the node's turn has come
            raise NotOneGraph("create_graph=True: a saved value was written") from error
        if known is None:
            if len(self._known) >= _MOST:
                del self._known[next(iter(self._known))]
            known = self._known[tape.look.key] = _recorded(run, options)
        return _delivered(run, known, saved)


def _saved_by(node: OpNode) -> list[Tensor]:
    """The saved values of a node by slot, with their history."""
    found: list[Tensor] = []
    for value in node.kept or ():
        if type(value) is SavedTensor:
            found.append(value.unpack(node))
        elif type(value) is list:
            found += [each.unpack(node) for each in value]
    return found + [result_of(node, [], place) for place in node.saved_results]


def _recorded(run: TapeRun, options: Options) -> _Recorded:
    mode, STATE.grad_mode = STATE.grad_mode, False
    try:
        segment = SegmentRecorder(run)
        for number in order_of(run.tape.look, run.tape.roots):
            if not segment.take(number):
                raise NotOneGraph("create_graph=True: a formula draws or has an effect")
        recording = segment.recording()
        segment.give_up()
    finally:
        STATE.grad_mode = mode
    if recording.graph is None:
        return _Recorded(recording, None)
    function = compile(
        _as_function(functionalize(recording.graph)),
        backend=options.backend,
        verify=options.verify,
        passes=options.passes,
    )
    return _Recorded(recording, function)


def _as_function(graph: Graph) -> Callable[..., list[Tensor]]:
    """The graph as a function of tensors."""

    def tape(*values: Tensor) -> list[Tensor]:
        return list(Interpreter(graph, dispatch).run(*values))

    return tape


def _delivered(
    run: TapeRun, known: _Recorded, saved: Sequence[Sequence[Tensor]]
) -> list[Tensor | None]:
    """Calls the function, and gives its results to sinks and leaves."""
    recording = known.recording
    found: list[Tensor | None] = []
    if known.function is not None:
        places = recording.places
        values = [saved[p[1]][p[2]] if p[0] == "saved" else run.at(p) for p in places]
        found = list(known.function(*values))
    delivered = Delivered(found, run)
    collected = [None if of is Ellipsis else delivered.at(of) for of in recording.collected]
    for number, of in recording.leaves:
        run.nodes[number].run([delivered.at(of)])
    return collected
