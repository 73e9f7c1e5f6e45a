"""Stage 4, joint: runs the captured tape on fake tangents, and records forward and backward as one.

    (primals, tangents) -> (updated inputs, outputs, bases, gradients)

Input: `Captured` (its tape alive) and `FunctionMeta`. Output: `Joint`, an imperative graph. There
is one autograd engine, the eager one: it runs here on fakes, while the recorder is on. In order:

    results.py               reads the final values of results and updated inputs
    gradient_paths.py        walks the tape: reachable inputs, saved tensors, errors
    result_sets.py           chooses which results' backwards are recorded together, and asks
    user_code_recording.py   of every function: adds users' Python, effects and wrappers to
    tape_recording.py        runs the engine, which records the backward

Gradients are collected at the edges that inputs had before the function ran, and not beyond
(JNT-3). Rules: JNT-1..JNT-15. Spec: `specs/s4_joint.md`.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from aotlite.ir.graph import Graph, Node, Phase, output_node
from aotlite.ir.graph.role import Role, Tangent
from aotlite.stages.records.backward.gradient_reads import GradientReads
from aotlite.stages.records.backward.joint import BackwardFacts, Joint
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.records.metadata.subclass_meta import SubclassMeta
from aotlite.stages.s4_joint.gradient_paths import gradient_paths
from aotlite.stages.s4_joint.recording_blocks import in_phase, recording_backwards
from aotlite.stages.s4_joint.result_sets import recorded_gradients
from aotlite.stages.s4_joint.results import JointResults
from aotlite.stages.s4_joint.subclasses.tangents import fake_tangent, wrapper_of
from aotlite.stages.s4_joint.user_code_recording import UserCodeRecording


def joint(captured: Captured, meta: FunctionMeta) -> Joint:
    """The imperative joint graph `(primals, tangents) -> (results, gradients)`.
    If the backward of a result raises an AutogradError, as it would in eager, the result has no
    gradients in the graph, and the error is kept for the run-time backward (JNT-15)."""
    with recording_backwards(captured.recorder):
        captured.recorder.counts = False  # tape nodes: the backward's take the forward's (SEQ-1)
        results = JointResults(captured, meta)
        paths = gradient_paths(captured, meta, results)
        recording = UserCodeRecording.of(results, paths)
        backward = _backward(recording, results) if paths.edges else _Backward()
        return _joint(results, recording, backward)


@attrs.frozen(eq=False, repr=False)
class _Backward:
    """The inputs and outputs that the backward adds to the joint graph."""

    exists: bool = False
    """It computes gradients, or has effects that a program can observe (TOK-4)."""
    tangents: tuple[Node, ...] = ()
    gradients: tuple[tuple[Role, Node | None], ...] = ()
    subclass_metas: Mapping[Role, SubclassMeta] = attrs.field(factory=dict)
    """How tangents and gradients that are wrappers are made, by role."""


def _backward(recording: UserCodeRecording, results: JointResults) -> _Backward:
    """Records the engine's run from fake tangents; drops it if it computes and does nothing."""
    recorder, start = recording.recorder, len(recording.recorder.nodes)
    tangents: list[Node] = []
    wrappings: dict[Role, SubclassMeta | None] = {}
    for result, edge in recording.paths.edges.items():
        like = wrapper_of(results.captured, results.meta, result)
        tangent = fake_tangent(recorder, result, results.layout(result), like)
        tangents += tangent.inputs
        wrappings[Tangent(result)] = tangent.wrapping
        recording.roots.append((result, edge, tangent.tensor))
    gradients, made = recorded_gradients(recording)
    if recording.user_code:
        recorder.guard_surroundings()  # users' backwards may change what the function can reach
    gradients += recorder.hooks.gradients()
    with in_phase(recorder, Phase.BACKWARD):
        gradients += recorder.streams.outputs(Phase.BACKWARD)
    if not recording.is_observable(start):
        recording.drop(start)
        return _Backward()
    known = {role: how for role, how in (wrappings | made).items() if how is not None}
    return _Backward(True, tuple(tangents), tuple(gradients), known)


def _joint(results: JointResults, recording: UserCodeRecording, backward: _Backward) -> Joint:
    """The `Joint` of all nodes recorded: the graph, and the facts on its backward."""
    paths, streams = recording.paths, recording.recorder.streams
    mutations = recording.mutations(_graph(results, recording, backward))
    effects = recording.effects()
    facts = BackwardFacts(
        errors=paths.errors,
        reachable_inputs=paths.reachable_inputs,
        receiving_inputs={**paths.reachable_inputs, **recording.receiving_inputs},
        reads=GradientReads(tuple(paths.edges), paths.reads).with_late(mutations.reads),
        memory=mutations.memory,
        arrivals=mutations.arrivals,
        new_leaves=paths.new_leaves,
        subclass_metas=backward.subclass_metas,
        effects=effects,
        final_rng_state=streams.after_backward(),
        required_arrivals=tuple(recording.recorder.wrapped.required_arrivals),
        arrival_choices=tuple(recording.choices or ()),
        run_once_nodes=tuple(paths.run_once_nodes.items()),
        written_inside=paths.written_inside,
    )
    return Joint(
        mutations.graph,
        facts,
        late_inputs=recording.late_inputs(),
        late_bases=mutations.bases,
        layouts={result: results.layout(result) for result in paths.edges},
        kept_tape=recording.kept_tape(mutations.memory, effects),
        runs_user_code=recording.user_code,
        has_backward=backward.exists,
        order=tuple([paths.sinks[n] for n in recording.arrived if n in paths.sinks]),
    )


def _graph(results: JointResults, recording: UserCodeRecording, backward: _Backward) -> Graph:
    """One graph of the captured nodes and those of the backward."""
    recorder = recording.recorder
    outputs = [*results.outputs, *backward.gradients]
    closing = output_node([value for _, value in outputs], [role for role, _ in outputs])
    inputs = (*recorder.placeholders, *backward.tangents, *recorder.streams.placeholders())
    return Graph((*inputs, *recorder.nodes, closing), results.captured.graph.name)
