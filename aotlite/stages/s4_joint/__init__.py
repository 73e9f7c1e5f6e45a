"""Stage 4, joint: continues the captured run's own tape, so that forward and backward are one
graph.

Input: `Captured` (its tape alive) and `FunctionMeta`. Output: `Joint`. Final values of results and
of updated inputs are read first, then the engine runs backwards on fake tangents while the recorder
goes on. Gradients are collected at the edges taken before the function ran, and not beyond them
(JNT-3). One engine, the eager one, decides everything about gradients. Rules: JNT-1..JNT-15.
Spec: `specs/s4_joint.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import attrs

from aotlite.eager.autograd.differentiable_views import edge_of
from aotlite.eager.autograd.nodes.accumulate_grad import AccumulateGrad
from aotlite.eager.autograd.nodes.saved_tensors import SavedTensor
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.node import Edge, TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.ir.errors import AutogradError, ShapeError
from aotlite.ir.graph import Graph, Node, Phase, output_node
from aotlite.ir.graph.role import (
    Family,
    IntermediateBase,
    MutatedInput,
    Output,
    Part,
    Role,
    Tangent,
)
from aotlite.ir.graph.role import Result as ResultRole
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.views.view_ops import AS_STRIDED, DETACH
from aotlite.stages.records.capture import Captured, CapturedInput, InputRole, SourceRole
from aotlite.stages.records.function_facts import Plain
from aotlite.stages.records.function_meta import FunctionMeta
from aotlite.stages.records.gradient_reads import GradientReads, SavedOf, merged
from aotlite.stages.records.joint import (
    ArrivalChoice,
    BackwardEffect,
    BackwardMemory,
    Joint,
    JointBackward,
)
from aotlite.stages.s4_joint.backward_effects import (
    ArrivalConditions,
    backward_effects,
    can_be_told,
    has_backward_effects,
    refuse_again,
)
from aotlite.stages.s4_joint.backward_mutations import BackwardMutations, Recorded, settled
from aotlite.stages.s4_joint.double_backward import KeptTape, kept_tape
from aotlite.stages.s4_joint.instrumented_runs import (
    EngineRun,
    Flows,
    InstrumentedRun,
    NodeVisit,
    flows_of,
    recording_backwards,
    runs_user_code,
)
from aotlite.stages.s4_joint.leaf_inputs import new_leaves, refuse_shapes
from aotlite.stages.s4_joint.subclass_accumulation import joined, told_apart
from aotlite.stages.s4_joint.subclass_tangents import fake_tangent, flat_gradients
from aotlite.stages.s4_joint.tangent_variants import (
    MOST,
    Flat,
    can_repeat,
    check_is_eagers,
    recorded_choices,
    turns_among,
)
from aotlite.stages.shared.extents import extent_view
from aotlite.stages.shared.gradient_sinks import first_form, sinks_of, sum_at_entry, whole_edge
from aotlite.stages.shared.memory_owners import owners_of
from aotlite.stages.shared.tape_queries import passed, refuse_inner_leaf, these_of


def joint(captured: Captured, meta: FunctionMeta) -> Joint:
    """The imperative joint graph `(primals, tangents) -> (results, gradients)`.

    Where recording the backward of a result raises an AutogradError, as eager's backward would, the
    forward is kept and the error is noted for that result (JNT-15).
    """
    with recording_backwards(captured.recorder, create_graph=False):
        return _Recording(captured, meta).joint()


Root = tuple[ResultRole, Edge | None, Tensor]
"""A result, where its gradient goes, and the tangent that arrives."""


class _Recording:
    """The recording of one joint graph."""

    def __init__(self, captured: Captured, meta: FunctionMeta) -> None:
        self.captured = captured
        self.meta = meta
        self.recorder = captured.recorder
        self.recorder.counts = False
        self.count = self.recorder.sequence  # of tape nodes that the forward made (SEQ-1)
        self.fakes = {given.role: given.fake for given in captured.inputs}
        self.families = {family.role: family for family in captured.families}
        self.results: list[tuple[Role, Any]] = []
        self.values: dict[Role, Any] = {}
        self.errors: dict[ResultRole, Exception] = {}
        self.reach: dict[ResultRole, frozenset[SourceRole]] = {}
        self.flows: Flows = {}
        self.reads: dict[SavedOf, int] = {}
        self.asks: dict[int, bool] = {}
        self.user_code = False  # users' Python runs in the backward
        self.inner: list[Edge | None] = []  # where gradients of leaves made inside end
        self.run: InstrumentedRun | None = None
        self.arrived: Sequence[TapeNode] = ()
        """Where gradients are collected, in the order in which they arrive (CAG-10)."""
        self.ran: list[ResultRole] = []
        """The results whose gradients `run` starts from."""
        self.turns: list[NodeVisit] | None = None
        """Where each choice of results is recorded, the turns of all, with `ran` as bits."""
        self.new_leaves: frozenset[InputRole] = frozenset()
        self.wrapped = captured.recorder.wrapped.nodes
        self.hooks = captured.recorder.hooks
        self.wrappings: dict[Any, Any] = {}
        self.choices: list[ArrivalChoice] = []
        self.roots: list[Root] = []
        self.owners: dict[Storage, Any] = {}  # whose memory it is, once the call has returned

    def joint(self) -> Joint:
        self._read_results()
        self.values |= self.results
        gradients: list[tuple[Role, Any]] = []
        tangents: list[Node] = []
        edges = self._edges()
        start, happens = len(self.recorder.nodes), False
        if edges:
            tangents, gradients = self._backward(edges)
            happens = self.meta.training or can_be_told(self.recorder, start, self._late_inputs)
            if not happens:
                tangents, gradients = self._drop_backward(start)
        outputs = [*self.results, *gradients]
        closing = output_node([value for _, value in outputs], [role for role, _ in outputs])
        inputs = (*self.recorder.placeholders, *tangents, *self.recorder.streams.placeholders())
        graph = Graph((*inputs, *self.recorder.nodes, closing), self.captured.graph.name)
        late = self._late(graph)
        reads = GradientReads(tuple(edges), self.reads).with_late(late.reads)
        backward = JointBackward(
            errors=self.errors,
            reachable_inputs=self.reach,
            receiving_inputs={**self.reach, **self.flows},
            reads=reads,
            memory=late.memory,
            arrivals=late.arrivals,
            new_leaves=self.new_leaves,
            subclass_metas={role: m for role, m in self.wrappings.items() if m is not None},
            effects=self._late_effects(),
            final_rng_state=self.recorder.streams.after_backward(),
            required_arrivals=tuple(self.recorder.wrapped.required_arrivals),
            arrival_choices=tuple(self.choices),
            run_once_nodes=tuple(self.asks.items()),
        )
        return Joint(
            late.graph,
            backward,
            late_inputs=self._late_inputs,
            late_bases=late.bases,
            layouts={result: self._meta_of(result) for result in edges},
            kept_tape=self._taped(late.memory),
            runs_user_code=self.user_code,
            has_backward=happens,
            order=self._order(),
        )

    def _drop_backward(self, start: int) -> tuple[list[Node], list[tuple[Role, Any]]]:
        """The inputs and outputs of no backward; what was recorded of one is forgotten."""
        self.recorder.drop_from(start)
        self.recorder.streams.drop_backward()
        self.recorder.wrapped.required_arrivals.clear()
        self.run, self.roots, self.wrappings, self.choices = None, [], {}, []
        return [], []

    def _taped(self, late: Sequence[BackwardMemory]) -> KeptTape | None:
        """What derivatives of the backward are recorded from (DBL-2)."""
        draws = self.recorder.streams.after_backward() is not None
        happens = draws or self._late_effects() or any(each.writes for each in late)
        passed = self.hooks.kept or self.hooks.come_back
        known = self.roots and not (happens or self._late_inputs or passed)
        if not known:
            return None
        users = self.user_code or bool(self.wrapped)
        return kept_tape(self.captured, self.roots, self.owners, late, users=users)

    # --- users' Python on the tape
    def _late(self, graph: Graph) -> BackwardMutations:
        """The graph whose backward finds what users' Python reads and writes in memory."""
        if self.run is None:
            return BackwardMutations(graph, arrivals=self.recorder.streams.arrivals())
        turns = self.run.turns if self.turns is None else self.turns
        backward = Recorded(turns, self.ran, self.recorder)
        return settled(graph, self.meta, self.recorder.inputs, backward, self.wrapped)

    def _late_effects(self) -> tuple[BackwardEffect, ...]:
        """What happens in the backward, and when (TOK-4)."""
        if self.run is None:
            return ()
        nodes, ends = self.recorder.nodes, self._ends()
        noted = backward_effects(nodes, self.run.turns, self.ran, ends, self.wrapped)
        return (*noted, *self.recorder.streams.moments)

    def _ends(self) -> dict[TapeNode, SourceRole]:
        """Whose gradient each node collects."""
        return {e[0]: source.role for source in self.captured.sources for e, _ in sinks_of(source)}

    def _order(self) -> tuple[SourceRole, ...]:
        ends = self._ends()
        return tuple([ends[node] for node in self.arrived if node in ends])

    @property
    def _late_inputs(self) -> tuple[CapturedInput, ...]:
        """Tensors from outside that only the backward reaches."""
        known = len(self.captured.inputs)
        return tuple([attrs.evolve(i, entry=None) for i in self.recorder.inputs[known:]])

    # --- results
    def _read_results(self) -> None:
        """Final reads, recorded before anything of the backward (a hook could write later).

        Updated inputs are read whole, in their geometry at entry: after a geometry op the object
        may show less than what was written. Results likewise.
        """
        placeholders = {given.role: given.placeholder for given in self.captured.inputs}
        for each in self.meta.updated:
            node = placeholders[each.role]
            if each.extent is not None:
                node = self.recorder._add(AS_STRIDED, *extent_view(node, each.extent))
            self._read(MutatedInput(each.role), node)
        for index, output in enumerate(self.meta.outputs):
            if isinstance(output, Plain):
                value = self.captured.results[index].value
                role = self.meta.role_of(index)
                self._read(role, first_form(value) if output.geometry_steps else value)
        for index, base in enumerate(self.meta.bases):
            assert base.node is not None
            self._read(IntermediateBase(index), base.node)
        self.results += self.recorder.streams.outputs(Phase.FORWARD)

    def _read(self, role: Role, node: Node) -> None:
        if node in self.wrapped:  # its parts are read
            self.values[role] = node
            return
        self.recorder.origin = node
        value = self.recorder._add(DETACH, (node,), node.meta)
        self.recorder.origin = None
        self.results.append((role, value))

    # --- backward
    def _edges(self) -> dict[ResultRole, Edge | None]:
        """Where the gradient of each result goes, with notes of what it meets there."""
        edges: dict[ResultRole, Edge | None] = dict.fromkeys(self.meta.tangents)
        for result in edges:
            try:
                edges[result] = self._edge(result)
            except AutogradError as error:
                self.errors[result] = error
        self._look_behind(edges)
        return edges

    def _look_behind(self, edges: dict[ResultRole, Edge | None]) -> None:
        """Notes the inputs that each result's gradient reaches, and what it reads on its way."""
        owners = self.owners = owners_of(self.captured, self.meta)
        sinks = self._ends()
        reach: dict[ResultRole, set[SourceRole]] = {result: set() for result in edges}
        results = tuple(edges)
        own = [r for r in self.captured.results if isinstance(r, Tensor)]
        shown = {id(tensor) for r in own for tensor in (r, r._base)}
        way = passed(list(edges.values()))
        self.user_code = runs_user_code(way)
        self.inner = [(n, 0) for n in way if type(n) is AccumulateGrad and n not in sinks]
        self.new_leaves = new_leaves(self.captured.inputs, way)
        sinks = sinks | self.hooks.ends()
        for node, bits in way.items():
            saved = node.kept_tensors()
            if saved or node.is_spent_once():
                self.asks[bits] = bool(saved) or self.asks.get(bits, False)
            if node in sinks:
                for result in these_of(results, bits):
                    reach[result].add(sinks[node])
            elif type(node) is AccumulateGrad:
                refuse_inner_leaf(node, shown, next(these_of(results, bits)))
            for each in saved:
                storage = each.tensor.storage
                if storage.version != each.version:
                    self._note_written(node, each, these_of(results, bits))
                if storage in owners:
                    merged(self.reads, [(SavedOf(owners[storage], each.tensor.meta), bits)])
        self.reach = {result: frozenset(found) for result, found in reach.items()}

    def _note_written(
        self, node: TapeNode, saved: SavedTensor, results: Iterator[ResultRole]
    ) -> None:
        """Eager's backward raises: it runs all these nodes, also those to no input."""
        try:
            saved.unpack(node)
        except AutogradError as error:
            for result in results:
                self.errors.setdefault(result, error)

    def _backward(
        self, edges: dict[ResultRole, Edge | None]
    ) -> tuple[list[Node], list[tuple[Role, Any]]]:
        nodes, roots = list[Node](), list[Root]()
        for result, edge in edges.items():
            like = self._wrapper_of(result) if self.wrapped else None
            tangent = fake_tangent(self.recorder, result, self._meta_of(result), like)
            nodes += tangent.inputs
            self.wrappings[Tangent(result)] = tangent.wrapping
            roots.append((result, edge, tangent.tensor))
        self.roots = roots
        start = len(self.recorder.nodes)
        found = flat_gradients(self.recorder, self.captured.sources, self._run(roots))
        if self._has_choices(roots) and can_repeat(self.recorder.nodes[start:]):
            self.recorder.drop_from(start)
            self.turns, healthy = [], [root for root in roots if root[0] not in self.errors]
            found = recorded_choices(self.recorder, healthy, self._flat, self.choices)
            self.ran = self._healthy()
        gradients, wrappings = found
        self.wrappings |= wrappings
        gradients += self.hooks.gradients()
        self.recorder.phase = Phase.BACKWARD
        gradients += self.recorder.streams.outputs(Phase.BACKWARD)
        return nodes, gradients

    def _has_choices(self, roots: list[Root]) -> bool:
        """Whether gradients are other ones for each choice of results, and are so few."""
        draws = self.recorder.streams.after_backward() is not None
        few = 1 < sum(root[0] not in self.errors for root in roots) <= MOST
        return few and self.recorder.wrapped.unlike and not (draws or self.hooks.kept)

    def _healthy(self) -> list[ResultRole]:
        return [root[0] for root in self.roots if root[0] not in self.errors]

    def _flat(self, roots: Sequence[Root]) -> Flat:
        """The gradients of a choice, and how those are made that are wrappers."""
        grads = self._record(roots, joins=False)
        return flat_gradients(self.recorder, self.captured.sources, grads)

    def _wrapper_of(self, result: ResultRole) -> Tensor | None:
        """The wrapper whose gradient arrives for a result, if it is one."""
        match result:
            case MutatedInput(Family() as family):
                member = self.recorder.real_of(self.fakes[self.families[family].members[0]])
                found: Tensor = member if member._base is None else member._base
            case MutatedInput(of):
                found = self.fakes[of]  # type: ignore[index]
            case IntermediateBase(index):
                return self.wrapped.get(self.meta.bases[index].node)
            case _:
                found = self.captured.results[self.captured.index_of(result)]
        return found if is_wrapper(found) else None

    def _run(self, roots: list[Root]) -> list[Any]:
        """The gradients of all healthy results; which ones are poisoned is found one by one."""
        start = len(self.recorder.nodes)
        healthy = [r for r in roots if r[0] not in self.errors]
        expected = self._expected_errors()
        try:
            return self._record(healthy)
        except expected as error:
            check_is_eagers(error)
            if self.run is not None:
                return self._run_without(self.run.now or 0, error, healthy, start)
            self.recorder.drop_from(start)
        for root in healthy:
            try:
                self._record([root])
            except expected as error:
                check_is_eagers(error)
                self.errors[root[0]] = error
            self.recorder.drop_from(start)
        try:
            return self._record([r for r in healthy if r[0] not in self.errors])
        except Exception as error:
            if not isinstance(error, (ShapeError, *expected)):
                raise
            self.recorder.wrapped.unlike = bool(self.wrapped)  # none of them fails alone
            if not self._has_choices(roots):
                if isinstance(error, ShapeError):
                    raise refuse_shapes() from error
                raise
            check_is_eagers(error)
            return [None] * len(self.captured.sources)

    def _expected_errors(self) -> tuple[type[Exception], ...]:
        """The errors that are those of eager's backward, and come when the compiled one runs."""
        if self.wrapped or not self.meta.training:
            return (Exception,)  # what classes of wrappers raise, or what few have asked for
        # A leaf that is put onto other memory may get gradients of two shapes (TEN-26).
        put = self.meta.count_plan is not None
        return (AutogradError, ShapeError) if put else (AutogradError,)

    def _run_without(self, bits: int, error: Exception, roots: list[Root], start: int) -> list[Any]:
        """The gradients of the results that do not lead to where users' Python has failed."""
        if len(roots) > 1:  # which of them fail, together or alone, is not known
            refuse_again(self.recorder.nodes[start:])
        left = []
        for k, root in enumerate(roots):
            if bits >> k & 1:
                self.errors[root[0]] = error
            else:
                left.append(root)
        self.recorder.drop_from(start)
        return self._run(left)

    def _record(self, roots: Sequence[Root], *, joins: bool = True) -> list[Any]:
        """The gradient of each input and family, in its geometry at entry."""
        sources = self.captured.sources
        sinks = [sinks_of(source) for source in sources]
        recorder = self.recorder
        recorder.phase, recorder.sequence = Phase.BACKWARD, max(self.count - 1, 0)
        self.hooks.clear()
        try:
            found = self._backward_through(
                roots, [e for each in sinks for e, _ in each], joins=joins
            )
            rest = iter(found)
            return [
                recorder.summed(sum_at_entry, source, [(next(rest), moves) for _, moves in each])
                for source, each in zip(sources, sinks, strict=True)
            ]
        finally:
            recorder.phase, recorder.origin = Phase.FORWARD, None

    def _backward_through(
        self, roots: Sequence[Root], sinks: list[Edge | None], *, joins: bool
    ) -> list[Any]:
        """The gradients that arrive at the sinks."""
        recorder, pairs = self.recorder, [(edge, tangent) for _, edge, tangent in roots]
        self.ran = [result for result, _, _ in roots]
        recorder.wrapped.required_arrivals.clear()
        recorder.wrapped.unlike = False
        recorder.streams.flags.clear()
        ends = [*sinks, *self.inner]
        join = partial(joined, recorder, tuple(self.ran)) if self.wrapped and joins else None
        if not self.user_code:
            start = len(recorder.nodes)
            run = EngineRun(ends, True, False, True, recorder)
            if join is not None and len(pairs) > 1:
                run = InstrumentedRun(ends, True, False, True, recorder, recorded=(), join=join)
            self.arrived, found = run.arrived, run.begin(pairs)[: len(sinks)]
            if not has_backward_effects(recorder.nodes[start:]):
                return found  # formulas give gradients wherever the tape leads
            self.user_code = True  # formulas or classes have effects, or draw: again, with notes
            recorder.drop_from(start)
        for given in recorder.inputs:
            given.fake.storage.writable = True  # whether it is, is asked when the backward runs
        self.run = InstrumentedRun(
            ends, True, False, True, recorder, recorded=recorder.nodes, join=join
        )
        self.arrived = self.run.arrived
        if self.turns is not None:  # all that is asked for arrives, and nothing happens
            self.recorder.streams.begin_backward()
            found = self.run.begin(pairs)[: len(sinks)]
            self.turns += turns_among(self.run.turns, self.ran, self._healthy())
            return found
        every = frozenset[Any]().union(*self.reach.values())
        moments = ArrivalConditions(self.run, recorder, self.ran, self._ends(), every)
        self.run.guard = moments.guarded
        self.run.tell = partial(told_apart, recorder, tuple(self.ran))
        self.recorder.streams.begin_backward(moments.now)
        found = self.run.begin(pairs)[: len(sinks)]
        collected = {each.role: [e for e, _ in sinks_of(each)] for each in self.captured.sources}
        self.flows = flows_of(self.run, self.ran, collected | self.hooks.edges())
        return found

    def _edge(self, result: ResultRole) -> Edge | None:
        match result:
            case MutatedInput(Family() as family):
                return self.families[family].root.edge()
            case MutatedInput(of):
                return whole_edge(self.fakes[of])  # type: ignore[index]
            case Output() | Part():
                tensor = self.captured.results[self.captured.index_of(result)]
                output = self.meta.outputs[self.captured.index_of(result)]
                moved = isinstance(output, Plain) and output.geometry_steps
                return whole_edge(tensor) if moved else edge_of(tensor)
            case IntermediateBase(index):
                holder = self.meta.bases[index].holder
                if holder is not None:
                    return whole_edge(self.fakes[holder])
                root = self.captured.results[self.meta.bases[index].witness]._root
                edge: Edge | None = root.edge()
                return edge

    def _meta_of(self, result: ResultRole) -> TensorMeta:
        if isinstance(result, (Output, Part)) and result not in self.values:  # a view of what is
            rebuilt: TensorMeta = self.captured.results[self.captured.index_of(result)].meta
            return rebuilt
        if isinstance(result, MutatedInput) and isinstance(result.of, Family):
            return self.families[result.of].root.meta
        meta: TensorMeta = self.values[result].meta
        return meta
