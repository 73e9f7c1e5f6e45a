"""Double backward: records a backward with `create_graph=True`, then the backward of that (DBL-2).

    kept tape of f ──engine, create_graph=True, fake tangents dy──> dx, and a tape of dx
    tape of dx     ──engine, fake tangents ddx───────────────────> gradients of x and of dy

Both runs are recorded into one joint graph: (x, dy, ddx) -> (dx; gradients). The eager engine
decides about gradients here as at the first order: `detach`, `no_grad`, writes, custom backwards.
The tape of dx is the `KeptTape` of the next order. Used by the pipeline when a compiled backward
first runs in grad mode. Spec: `specs/higher_orders.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from aotlite.eager.autograd.differentiable_views import edge_of
from aotlite.eager.autograd.engine import run_backward
from aotlite.eager.autograd.nodes.op_nodes import InputNode
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.node import Edge, TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import gradient_form, is_wrapper, leaves_of
from aotlite.ir.errors import AutogradError
from aotlite.ir.graph import Graph, Node, Phase, output_node
from aotlite.ir.graph.role import Gradient, Incoming, Output, Role, Tangent, is_given
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.views.view_ops import DETACH
from aotlite.stages.records.backward.gradient_reads import GradientReads, SavedOf, merged
from aotlite.stages.records.backward.joint import BackwardMemory
from aotlite.stages.records.base import Record
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.capture_inputs import CapturedFamily
from aotlite.stages.records.metadata.subclass_meta import SubclassMeta
from aotlite.stages.records.trace import Trace
from aotlite.stages.s4_joint.backward_effects import what_happens
from aotlite.stages.s4_joint.instrumented_runs import Flows, runs_user_code, sees_absence
from aotlite.stages.s4_joint.recording_blocks import (
    at_node,
    continuing,
    in_grad_mode,
    in_phase,
    recording_engine,
)
from aotlite.stages.s4_joint.replay.subclass_double_backward import (
    Root,
    Second,
    gradients_of,
    wrapped_second,
)
from aotlite.stages.s4_joint.subclasses.tangents import (
    FakeTangent,
    dense_all_through,
    fake_tangent,
    stand_in,
)
from aotlite.stages.s4_joint.tangent_variants import check_is_eagers, note_failing
from aotlite.stages.shared.double_backward import double_backward_refusal, owner_at_next_order
from aotlite.stages.shared.gradient_sinks import sinks_of, sum_at_entry
from aotlite.stages.shared.subclass_rebuild import subclass_meta_of
from aotlite.stages.shared.tape_queries import passed, passed_at_some_order, these_of


@attrs.frozen(eq=False, repr=False)
class Start(Record):
    """A differentiable result: the tape edge at which its gradient enters, and the form of that."""

    role: Any
    edge: Edge | None
    meta: TensorMeta
    like: Tensor | None = None
    """A wrapper with the form of its gradients; None for dense ones."""


@attrs.frozen(eq=False, repr=False)
class IncomingInput(Record):
    """The tangent of an earlier order, which is an input to differentiate at later orders."""

    role: Incoming
    placeholders: tuple[Node, ...]
    """Its placeholder; of a wrapper those of its parts, then its own."""
    fake: Tensor

    @property
    def entries(self) -> tuple[Edge, ...]:
        """The edge at which its gradient is collected."""
        return ((self.fake._node, 0),)


@attrs.frozen(eq=False, repr=False)
class KeptTape(Record):
    """The live tape of a recorded run; it holds fakes only, and none of the caller's tensors."""

    recorder: Trace
    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    """The placeholders."""
    sources: tuple[Any, ...]
    """Where gradients are collected: inputs, bases of families, tangents of earlier orders."""
    starts: tuple[Start, ...]
    owners: Mapping[Storage, Any]
    """The storages that code outside the graph may write, each with the role that owns it."""
    wrapped: Mapping[Node, Tensor | None]
    """The nodes whose values are wrappers (`SubclassFakes.nodes`)."""
    memory: tuple[SavedOf, ...]
    """Memory of such storages that users' Python reads, and no tape node saves."""
    order: int = 1
    """The order of the derivatives that a backward through this tape gives."""
    higher_order_inputs: frozenset[Any] = frozenset()
    """The sources that derivatives of some order, the first or a later one, may reach."""

    def incoming(self, result: Any) -> Any:
        """The role of this result's tangent as an input: wrapped once more at each order."""
        role = result
        for _ in range(self.order):
            role = Incoming(role)
        return role


def kept_tape(
    captured: Captured,
    roots: Sequence[Root],
    owners: Mapping[Any, Any],
    memory: Sequence[BackwardMemory],
    *,
    users: bool,
) -> KeptTape:
    """The tape that is kept of a captured function; `roots` are those of its backward.

    The backward reads `memory`, and does not write it. With `users` users' Python runs in it, and
    may compute with any tensor that it holds.
    """
    recorder = captured.recorder
    sources = [source for source in captured.sources if source.entries]
    if not users:
        met = passed_at_some_order([edge for _, edge, _ in roots])
        sources = [s for s in sources if any(edge[0] in met for edge, _ in sinks_of(s))]
    return KeptTape(
        recorder,
        captured.graph.name,
        tuple([node for node in recorder.nodes if node.phase is Phase.FORWARD]),
        (*recorder.placeholders, *recorder.streams.inputs.values()),
        (
            *[given for given in captured.inputs if given.entries],
            *[_alone(family) for family in captured.families if family.entries],
        ),
        starts_of(roots),
        owners,
        dict(recorder.wrapped.nodes),
        tuple([SavedOf(each.owner, each.meta) for each in memory]),
        higher_order_inputs=frozenset([source.role for source in sources]),
    )


def starts_of(roots: Sequence[Root]) -> tuple[Start, ...]:
    """The roots without their tangents, of which only the form is kept."""
    return tuple(
        [Start(role, edge, t.meta, t if is_wrapper(t) else None) for role, edge, t in roots]
    )


@attrs.frozen(eq=False, repr=False)
class DerivativeJoint(Record):
    """The joint graph of a double backward: the first backward is its forward half."""

    graph: Graph
    """Its outputs are the first-order gradients, then the gradients of these. Wrappers' nodes are
    still in it."""
    incoming: frozenset[Any]
    """The roles of the inputs that are tangents of the first backward, or parts of such."""
    gradients: tuple[tuple[Any, TensorMeta | None], ...]
    """For each source of the earlier order the meta of its gradient; None if it gets none."""
    errors: dict[Any, Exception]
    reachable_inputs: dict[Any, frozenset[Any]]
    reads: GradientReads
    kept_tape: KeptTape
    subclass_metas: Mapping[Any, SubclassMeta]
    """How results, tangents and gradients that are wrappers are made, by role."""
    second: Second
    runs_user_code: bool
    """Users' Python, or a wrapper's class, computed some gradient."""
    why: str
    """Why the gradients cannot be differentiated; empty if they can."""


def derivative_joint(kept_tape: KeptTape, arriving: Mapping[Any, bool]) -> DerivativeJoint:
    """Records the backward of the results `arriving`, and the backward of that.

    `arriving` says of each tangent whether it requires grad. Raises UnsupportedError for a
    backward that cannot be captured.
    """
    recorder = kept_tape.recorder
    with (
        continuing(recorder, kept_tape.nodes, dict(kept_tape.wrapped)),
        recording_engine(recorder, create_graph=True),
    ):
        return _Recording(kept_tape, arriving).run()


class _Recording:
    def __init__(self, kept_tape: KeptTape, arriving: Mapping[Any, bool]) -> None:
        self.kept_tape = kept_tape
        self.recorder = kept_tape.recorder
        self.arriving = arriving
        self.errors: dict[Any, Exception] = {}
        self.owners = {
            storage: owner_at_next_order(owner) for storage, owner in kept_tape.owners.items()
        }
        self.memory = tuple(
            [attrs.evolve(each, owner=owner_at_next_order(each.owner)) for each in kept_tape.memory]
        )
        self.subclass_metas: dict[Any, SubclassMeta] = {}
        self.user_code = bool(self.recorder.wrapped)
        self.sees_absence = False
        self.state = self.recorder.streams.state

    def run(self) -> DerivativeJoint:
        incoming = [self._incoming(start) for start in self._arrived()]
        sources = (*self.kept_tape.sources, *[i for i in incoming if i.fake._node is not None])
        start = len(self.recorder.nodes)
        gradients = self._gradients(incoming)
        refusal = self._refusal(start)
        if refusal:
            raise double_backward_refusal(refusal)
        there = [grad for grad in gradients if grad is not None]
        results = {Output(k): grad for k, grad in enumerate(there)}
        outputs = [pair for role, grad in results.items() for pair in self._read(role, grad)]
        inputs = (*self.kept_tape.inputs, *[node for i in incoming for node in i.placeholders])
        tangents = {role: self._tangent(role, grad) for role, grad in results.items()}
        roots = [(role, edge_of(grad), tangents[role].tensor) for role, grad in results.items()]
        roots = [root for root in roots if root[1] is not None]
        given = [node for role, _, _ in roots for node in tangents[role].inputs]
        kept_tape = self._taped(inputs, sources, roots)
        reach, reads = self._look_behind(kept_tape)
        second = self._second(kept_tape, roots)
        why = self._refusal(len(kept_tape.nodes)) or self._unchecked(len(kept_tape.nodes), reads)
        if why:
            second, given = Second([], {}), []
        self.subclass_metas |= second.subclass_metas
        outputs += second.outputs
        closing = output_node([v for _, v in outputs], [role for role, _ in outputs])
        nodes = (*inputs, *given, *second.flags, *self.recorder.nodes, closing)
        pairs = zip(self.kept_tape.sources, gradients, strict=True)
        return DerivativeJoint(
            Graph(nodes, f"{kept_tape.name}_backward"),
            frozenset([node.role for each in incoming for node in each.placeholders]),
            tuple([(s.role, None if g is None else g.meta) for s, g in pairs]),
            self.errors,
            reach,
            reads,
            attrs.evolve(kept_tape, wrapped=dict(self.recorder.wrapped.nodes)),
            self.subclass_metas,
            second,
            self.user_code,
            why,
        )

    def _refusal(self, start: int) -> str:
        """Why the nodes from `start` on cannot be run: effects, or draws. They are dropped then."""
        what = what_happens(self.recorder.nodes, start)
        if self.recorder.streams.state is not self.state:
            what = "draws"
        if what:
            self.recorder.drop_from(start)
        return what and f"Its backward {what} at order {self.kept_tape.order + 1}."

    def _unchecked(self, start: int, reads: GradientReads) -> str:
        """Why the nodes from `start` on cannot be run: users' Python reads an input that no node
        saved, so no version check covers it. They are dropped then."""
        if not self.user_code or self.recorder.wrapped:
            return ""
        known = {each.owner for each in reads}
        for node in self.recorder.nodes[start:]:
            for value in node.inputs():
                role = storage_root(value).role
                if is_given(role) and role not in known:
                    self.recorder.drop_from(start)
                    return (
                        f"Its backward reads {role} unchecked at order {self.kept_tape.order + 1}."
                    )
        return ""

    def _taped(
        self, inputs: tuple[Node, ...], sources: tuple[Any, ...], roots: Sequence[Root]
    ) -> KeptTape:
        return KeptTape(
            self.recorder,
            self.kept_tape.name,
            tuple(self.recorder.nodes),
            inputs,
            sources,
            starts_of(roots),
            self.owners,
            self.kept_tape.wrapped,
            self.memory,
            self.kept_tape.order + 1,
            self.kept_tape.higher_order_inputs,
        )

    # --- the backward itself
    def _arrived(self) -> list[Start]:
        return [start for start in self.kept_tape.starts if start.role in self.arriving]

    def _incoming(self, start: Start) -> IncomingInput:
        given = stand_in(self.recorder, start.role, self.kept_tape.incoming, start.meta, start.like)
        fake, role = given.tensor, self.kept_tape.incoming(start.role)
        if self.arriving[start.role]:
            fake._node = InputNode(gradient_form(fake))
        self.owners[fake.storage] = role
        if given.wrapping is not None:
            leaves = zip(given.wrapping.leaves(), leaves_of(fake), strict=True)
            for (_, of), leaf in leaves:
                self.owners[leaf.storage] = self.kept_tape.incoming(of)
        return IncomingInput(role, given.inputs, fake)

    def _gradients(self, incoming: list[IncomingInput]) -> list[Any]:
        pairs = zip(self._arrived(), incoming, strict=True)
        roots = [(start.edge, given.fake) for start, given in pairs]
        return self._through(roots, self.kept_tape.sources)

    def _through(self, roots: Any, sources: Any) -> list[Any]:
        found = run_backward(
            roots,
            sinks=[edge for source in sources for edge, _ in sinks_of(source)],
            cut=True,
            retain_graph=True,
            create_graph=True,
            recorder=self.recorder,
        )
        return self._sums(sources, found, create_graph=True)

    def _sums(self, sources: Any, found: list[Any], *, create_graph: bool) -> list[Any]:
        """The gradient of each source: the sum of those at its edges, as it was at entry."""
        sinks, summed = [sinks_of(source) for source in sources], self.recorder.summed
        rest = iter(found)
        with in_grad_mode(create_graph), in_phase(self.recorder, self.recorder.phase):
            return [
                summed(sum_at_entry, source, [(next(rest), moves) for _, moves in each])
                for source, each in zip(sources, sinks, strict=True)
            ]

    def _read(self, role: Output, grad: Tensor) -> list[tuple[Role, Any]]:
        """The outputs for a gradient; its storage is noted as owned by that result."""
        self.owners.setdefault(grad.storage, role)
        if not is_wrapper(grad):
            return [(role, self._value(grad))]
        roles = [of for _, of in subclass_meta_of(grad, role, {}).leaves()]
        for of, leaf in zip(roles, leaves_of(grad), strict=True):
            self.owners.setdefault(leaf.storage, of)
        with in_grad_mode(False):
            whole = dense_all_through(self.recorder, grad)
        self.subclass_metas[role] = subclass_meta_of(whole, role, {})
        leaves = [self.recorder.here(leaf) for leaf in leaves_of(whole)]
        return [(of, self._value(leaf)) for of, leaf in zip(roles, leaves, strict=True)]

    def _value(self, grad: Tensor) -> Node:
        value: Any = grad.value
        with in_grad_mode(False), at_node(self.recorder, value):
            return self.recorder.add_node(DETACH, (value,), grad.meta)

    # --- and its backward
    def _look_behind(self, kept_tape: KeptTape) -> tuple[Any, GradientReads]:
        """Walks the tape of the gradients: the sources that each reaches, the memory it reads."""
        sinks: dict[TapeNode, Any] = {}
        for source in kept_tape.sources:
            for edge, _ in sinks_of(source):
                sinks[edge[0]] = source.role
        roles = [start.role for start in kept_tape.starts]
        reach: dict[Any, set[Any]] = {role: set() for role in roles}
        reads = dict.fromkeys(self.memory, (1 << len(roles)) - 1) if roles else {}
        way = passed([start.edge for start in kept_tape.starts])
        self.user_code = self.user_code or runs_user_code(way)
        self.sees_absence = any(map(sees_absence, way))
        for node, bits in way.items():
            if node in sinks:
                for role in these_of(roles, bits):
                    reach[role].add(sinks[node])
                continue
            for each in node.kept_tensors():
                owner = self.owners.get(each.tensor.storage)
                if each.tensor.storage.version != each.version:
                    self._note_written(node, each, list(these_of(roles, bits)))
                if owner is not None:
                    merged(reads, [(SavedOf(owner, each.tensor.meta), bits)])
        reached = {role: frozenset(found) for role, found in reach.items()}
        return reached, GradientReads(tuple(roles), reads)

    def _note_written(self, node: TapeNode, saved: Any, results: list[Any]) -> None:
        try:
            saved.unpack(node)
        except AutogradError as error:
            for result in results:
                self.errors.setdefault(result, error)

    def _tangent(self, role: Output, grad: Tensor) -> FakeTangent:
        like = grad if is_wrapper(grad) else None
        tangent = fake_tangent(self.recorder, role, grad.meta, like)
        if tangent.wrapping is not None:
            self.subclass_metas[Tangent(role)] = tangent.wrapping
        return tangent

    def _second(self, kept_tape: KeptTape, roots: Sequence[Root]) -> Second:
        """The gradients of the sources; results whose backward raises are left out (JNT-15)."""
        if self.recorder.wrapped or self.sees_absence:
            return wrapped_second(self.recorder, kept_tape.sources, roots, self.errors)
        with in_phase(self.recorder, Phase.BACKWARD):
            flows, found = self._healthy(kept_tape, roots)
        pairs = zip(kept_tape.sources, found, strict=True)
        outputs: list[tuple[Role, Any]] = [
            (Gradient(s.role), None if g is None else g.value) for s, g in pairs
        ]
        return Second(outputs, flows)

    def _healthy(self, kept_tape: KeptTape, roots: Sequence[Root]) -> tuple[Flows, list[Any]]:
        start = len(self.recorder.nodes)
        try:
            return self._of_healthy(kept_tape, roots)
        except AutogradError as error:
            check_is_eagers(error)
        self.recorder.drop_from(start)
        once = partial(self._of_healthy, kept_tape)
        healthy = [root for root in roots if root[0] not in self.errors]
        note_failing(self.recorder, healthy, once, self.errors, AutogradError)
        return self._of_healthy(kept_tape, roots)

    def _of_healthy(self, kept_tape: KeptTape, roots: Sequence[Root]) -> tuple[Flows, list[Any]]:
        healthy = [root for root in roots if root[0] not in self.errors]
        flows, found = gradients_of(self.recorder, kept_tape.sources, healthy)
        return flows, self._sums(kept_tape.sources, found, create_graph=False)


def _alone(family: CapturedFamily) -> CapturedFamily:
    """The family without the caller's root."""
    nobody: Any = None
    return attrs.evolve(family, outside=nobody)
