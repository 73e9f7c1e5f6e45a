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
from typing import Any

import attrs

from aotlite.eager.autograd.differentiable_views import edge_of
from aotlite.eager.autograd.engine import BackwardPass, Sinks
from aotlite.eager.autograd.nodes.op_nodes import InputNode
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.node import Edge
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import gradient_form, is_wrapper, leaves_of
from aotlite.ir.errors import AutogradError
from aotlite.ir.graph import Graph, Node, Phase, output_node
from aotlite.ir.graph.role import Incoming, Output, Result, Role, Tangent, is_given
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.views.view_ops import DETACH
from aotlite.stages.records.backward.gradient_reads import GradientReads, SavedOf
from aotlite.stages.records.backward.joint import BackwardFacts, BackwardMemory
from aotlite.stages.records.base import Record
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.capture_inputs import CapturedFamily, OwnerRole, SourceRole
from aotlite.stages.records.metadata.subclass_meta import SubclassMeta
from aotlite.stages.records.trace import OuterFakes, Trace
from aotlite.stages.s4_joint.backward_effects import what_happens
from aotlite.stages.s4_joint.gradient_paths import TapeWalk
from aotlite.stages.s4_joint.instrumented_runs import (
    Flows,
    InstrumentedRun,
    flows_of,
    forget_arrivals,
    handlers_of,
    runs_user_code,
    sees_absence,
)
from aotlite.stages.s4_joint.recording_blocks import (
    at_node,
    continuing,
    in_grad_mode,
    in_phase,
    recording_engine,
)
from aotlite.stages.s4_joint.replay.context_attributes import ContextAttributes
from aotlite.stages.s4_joint.result_sets import recorded_gradients
from aotlite.stages.s4_joint.subclasses.tangents import (
    FakeTangent,
    dense_all_through,
    fake_tangent,
    stand_in,
)
from aotlite.stages.s4_joint.tape_recording import Root, TapeRecording
from aotlite.stages.shared.double_backward import double_backward_refusal, owner_at_next_order
from aotlite.stages.shared.gradient_sinks import GradientSource, sinks_of
from aotlite.stages.shared.subclass_rebuild import subclass_meta_of
from aotlite.stages.shared.tape_queries import passed, passed_at_some_order


@attrs.frozen(eq=False, repr=False)
class Start(Record):
    """A differentiable result: the tape edge at which its gradient enters, and the form of that."""

    role: Result
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
    sources: tuple[GradientSource, ...]
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
    outer_fakes: OuterFakes = attrs.field(factory=dict)
    """The fakes of tensors from outside, which users' code may read again."""
    contexts: ContextAttributes = attrs.field(factory=ContextAttributes)
    """What each recording finds on the contexts of custom functions."""
    higher_order_inputs: frozenset[SourceRole] = frozenset()
    """The sources that derivatives of some order, the first or a later one, may reach."""

    def recorded(self) -> KeptTape:
        """Itself. The tape of a kept entry is recorded when it is asked for (CACHE-14)."""
        return self

    def incoming(self, result: Role) -> Incoming:
        """The role of this result's tangent as an input: wrapped once more at each order."""
        role = Incoming(result)
        for _ in range(1, self.order):
            role = Incoming(role)
        return role


def kept_tape(
    captured: Captured,
    roots: Sequence[Root],
    owners: Mapping[Storage, OwnerRole],
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
    facts: BackwardFacts
    """Facts of its backward half, the second backward."""
    incoming: frozenset[Any]
    """The roles of the inputs that are tangents of the first backward, or parts of such."""
    gradients: tuple[tuple[SourceRole, TensorMeta | None], ...]
    """For each source of the earlier order the meta of its gradient; None if it gets none."""
    kept_tape: KeptTape
    runs_user_code: bool
    """Users' Python, or a wrapper's class, computed some gradient."""
    why: str
    """Why the gradients cannot be differentiated; empty if they can."""
    wrapped: dict[Node, Tensor | None]
    """The nodes whose values are wrappers."""
    layouts: dict[Result, TensorMeta]
    """The meta of each gradient that can be differentiated."""


def derivative_joint(kept_tape: KeptTape, arriving: Mapping[Role, bool]) -> DerivativeJoint:
    """Records the backward of the results `arriving`, and the backward of that.

    `arriving` says of each tangent whether it requires grad. Raises UnsupportedError for a
    backward that cannot be captured.
    """
    recorder = kept_tape.recorder
    with (
        continuing(recorder, kept_tape.nodes, dict(kept_tape.wrapped), kept_tape.outer_fakes),
        recording_engine(recorder, create_graph=True),
    ):
        return _Order(kept_tape, arriving).joint()


@attrs.define(eq=False, repr=False)
class DerivativeRecording(TapeRecording):
    """Records the second backward. Which tangents arrive in it is not known, as in stage 4: sums
    of wrappers are selected by flags, or each subset of results is recorded."""

    contexts: ContextAttributes = attrs.field(kw_only=True)
    """What each recording finds on the contexts of custom functions."""
    sees_absence: bool = attrs.field(init=False, default=False)
    """A custom function on the tape gets None for a gradient that does not arrive."""
    receiving_inputs: Flows = attrs.field(init=False, factory=dict)
    """For each result the sources that its gradient reached."""

    def _arriving(
        self, edges: Sequence[Edge], pairs: Sequence[tuple[Edge | None, Tensor]]
    ) -> list[Tensor | None]:
        recorder = self.recorder
        forget_arrivals(recorder)
        self.contexts.put_back([edge for _, edge, _ in self.roots])
        handlers = handlers_of(recorder, self.started, all_arrive=self.choices is not None)
        sinks = Sinks(edges, cut=True)
        run = _SinkRun(sinks, True, recorder, recorded=recorder.nodes, on_arrival=handlers)
        found = run(pairs)
        ends = {source.role: [edge for edge, _ in sinks_of(source)] for source in self.sources}
        self.receiving_inputs = flows_of(run, self.started, ends)
        return found

    def expected_errors(self) -> tuple[type[Exception], ...]:
        return (Exception,) if self.may_differ() else (AutogradError,)  # a class may raise any

    def may_differ(self) -> bool:
        return super().may_differ() or self.sees_absence


@attrs.define(eq=False, repr=False)
class _SinkRun(InstrumentedRun):
    """An instrumented run of only the nodes that lead to a sink."""

    _nodes_to_run = BackwardPass._nodes_to_run


class _Order:
    """Records one order: the backward from the tangents that arrive, and the backward of that."""

    def __init__(self, kept_tape: KeptTape, arriving: Mapping[Role, bool]) -> None:
        self.kept_tape = kept_tape
        self.recorder = kept_tape.recorder
        self.arriving = arriving
        self.owners = {
            storage: owner_at_next_order(owner) for storage, owner in kept_tape.owners.items()
        }
        self.memory = tuple(
            [attrs.evolve(each, owner=owner_at_next_order(each.owner)) for each in kept_tape.memory]
        )
        self.subclass_metas: dict[Role, SubclassMeta] = {}
        self.user_code = bool(self.recorder.wrapped)
        self.state = self.recorder.streams.state

    def joint(self) -> DerivativeJoint:
        """The joint graph of the order."""
        incoming = [self._incoming(start) for start in self._arrived()]
        sources = (*self.kept_tape.sources, *[i for i in incoming if i.fake._node is not None])
        start = len(self.recorder.nodes)
        gradients = self._gradients(incoming)
        refusal = self._refusal(start)
        if refusal:
            raise double_backward_refusal(refusal)
        there = [grad for grad in gradients if grad is not None]
        results: dict[Output, Tensor] = {Output(k): grad for k, grad in enumerate(there)}
        outputs: list[tuple[Role, Node | None]] = []
        for role, grad in results.items():
            outputs += self._read(role, grad)
        inputs = (*self.kept_tape.inputs, *[node for i in incoming for node in i.placeholders])
        tangents: dict[Result, FakeTangent] = {}
        for role, grad in results.items():
            tangents[role] = self._tangent(role, grad)
        contexts = self.kept_tape.contexts.of_next_order()
        second = DerivativeRecording(self.recorder, sources, contexts=contexts)
        for role, grad in results.items():
            if (edge := edge_of(grad)) is not None:
                second.roots.append((role, edge, tangents[role].tensor))
        given = [node for of, _, _ in second.roots for node in tangents[of].inputs]
        kept_tape = self._taped(inputs, second)
        reads, reached = self._look_behind(second)
        with in_grad_mode(False), in_phase(self.recorder, Phase.BACKWARD):
            found, metas = recorded_gradients(second)
        given += self.recorder.streams.flags.values()
        why = self._refusal(len(kept_tape.nodes)) or self._unchecked(len(kept_tape.nodes), reads)
        facts = BackwardFacts(second.errors, reached, reached, reads)
        if why:
            given = []
        else:
            outputs += found
            self.subclass_metas |= {role: how for role, how in metas.items() if how is not None}
            facts = self._facts(facts, second)
        closing = output_node([v for _, v in outputs], [role for role, _ in outputs])
        nodes = (*inputs, *given, *self.recorder.nodes, closing)
        pairs = zip(self.kept_tape.sources, gradients, strict=True)
        return DerivativeJoint(
            Graph(nodes, f"{kept_tape.name}_backward"),
            attrs.evolve(facts, subclass_metas=self.subclass_metas),
            frozenset([node.role for each in incoming for node in each.placeholders]),
            tuple([(s.role, None if g is None else g.meta) for s, g in pairs]),
            attrs.evolve(kept_tape, wrapped=dict(self.recorder.wrapped.nodes)),
            self.user_code,
            why,
            dict(self.recorder.wrapped.nodes),
            {start.role: start.meta for start in kept_tape.starts},
        )

    def _facts(self, facts: BackwardFacts, second: DerivativeRecording) -> BackwardFacts:
        """The facts with what the second backward's gradients depend on."""
        return attrs.evolve(
            facts,
            receiving_inputs={**facts.reachable_inputs, **second.receiving_inputs},
            arrivals=self.recorder.streams.arrivals(),
            required_arrivals=tuple(self.recorder.wrapped.required_arrivals),
            arrival_choices=tuple(second.choices or ()),
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

    def _taped(self, inputs: tuple[Node, ...], second: DerivativeRecording) -> KeptTape:
        return attrs.evolve(
            self.kept_tape,
            nodes=tuple(self.recorder.nodes),
            inputs=inputs,
            sources=tuple(second.sources),
            starts=starts_of(second.roots),
            owners=self.owners,
            memory=self.memory,
            order=self.kept_tape.order + 1,
            contexts=second.contexts,
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

    def _gradients(self, incoming: list[IncomingInput]) -> list[Tensor | None]:
        tape, pairs = self.kept_tape, zip(self._arrived(), incoming, strict=True)
        tape.contexts.put_back([start.edge for start in tape.starts])
        first = TapeRecording(self.recorder, tape.sources, creates_graph=True)
        return first.gradients([(start.role, start.edge, given.fake) for start, given in pairs])

    def _read(self, role: Output, grad: Tensor) -> list[tuple[Role, Node]]:
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
    def _look_behind(
        self, second: DerivativeRecording
    ) -> tuple[GradientReads, dict[Result, frozenset[SourceRole]]]:
        """The memory that the gradient of each result reads, and the sources that it reaches."""
        results = tuple([role for role, _, _ in second.roots])
        ends = {edge[0]: source.role for source in second.sources for edge, _ in sinks_of(source)}
        reads = dict.fromkeys(self.memory, (1 << len(results)) - 1) if results else {}
        walk = TapeWalk(results, self.owners, reads, second.errors)
        for node, _, _ in walk.visits(passed([edge for _, edge, _ in second.roots]), ends):
            self.user_code = self.user_code or runs_user_code([node])
            second.sees_absence = second.sees_absence or sees_absence(node)
        return GradientReads(results, reads), walk.reached()

    def _tangent(self, role: Output, grad: Tensor) -> FakeTangent:
        like = grad if is_wrapper(grad) else None
        tangent = fake_tangent(self.recorder, role, grad.meta, like)
        if tangent.wrapping is not None:
            self.subclass_metas[Tangent(role)] = tangent.wrapping
        return tangent


def _alone(family: CapturedFamily) -> CapturedFamily:
    """The family without the caller's root."""
    nobody: Any = None
    return attrs.evolve(family, outside=nobody)
