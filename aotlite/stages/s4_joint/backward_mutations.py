"""Reads and writes of a backward on memory of the forward: inputs, results, bases.

A custom function that keeps a tensor on its context, without `save_for_backward`, reads it in the
backward as it is by then, and may write it. A value computed in the forward would be outdated:

    forward ──> x ....... the caller writes x ....... backward
                          Current(x) ──> read, write ──> Rewritten(x) ──> copied into x

So the joint graph gets an input `Current` for such memory, and an output `Rewritten` if the
backward writes it, which the runtime copies back. Used by stage 4.
Rules: FUN-31, FUN-32, FUN-33, SAV-3, TAN-8. Spec: `specs/rules/fun.md`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import attrs

from aotlite.eager.autograd.nodes.saved_tensors import computed_again
from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import inner_tensors, is_wrapper
from aotlite.ir.dtypes import bool_
from aotlite.ir.errors import AliasError, UnsupportedError, noted
from aotlite.ir.geometry.overlap import overlaps_bytes
from aotlite.ir.graph import Graph, Node, Phase, map_nodes
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.role import (
    FROM_BACKWARD,
    Arrived,
    Current,
    Gradient,
    IntermediateBase,
    Output,
    Part,
    Rewritten,
    Tangent,
)
from aotlite.ir.graph.role import Result as ResultRole
from aotlite.ir.meta import tensor_meta
from aotlite.ir.op import OPS, GeometryOp, InplaceOp
from aotlite.ir.ops.shape.copies import CLONE, COPY_
from aotlite.ir.ops.views.view_ops import DETACH
from aotlite.stages.records.backward.gradient_reads import SavedOf
from aotlite.stages.records.backward.joint import BackwardMemory, Joint
from aotlite.stages.records.capture import Captured
from aotlite.stages.records.capture_inputs import CapturedInput, OwnerRole
from aotlite.stages.records.metadata.function_facts import BaseMeta, InputMeta, Plain
from aotlite.stages.records.metadata.function_meta import FunctionMeta
from aotlite.stages.records.trace import RngTrace, Trace
from aotlite.stages.s4_joint.instrumented_runs import NodeVisit
from aotlite.stages.shared.memory.view_analysis import ViewAnalysis, layout_of
from aotlite.stages.shared.subclass_rebuild import input_subclass_metas
from aotlite.stages.shared.user_frames import describe

WHERE = OPS["where"]


# -------------------------------------------------------------------------------- graph to graph
@attrs.frozen(eq=False, repr=False)
class BackwardMutations:
    """A joint graph whose backward takes memory of the forward as inputs, and facts on these."""

    graph: Graph
    bases: tuple[BaseMeta, ...] = ()
    """Intermediates that the backward writes: further bases, which the forward returns."""
    memory: tuple[BackwardMemory, ...] = ()
    arrivals: tuple[frozenset[ResultRole], ...] = ()
    """For each `Arrived` input of the graph: the results of which one's tangent has to arrive."""
    reads: tuple[tuple[SavedOf, frozenset[ResultRole]], ...] = ()
    """The saved tensors on memory of `bases`, and the results whose gradients read them."""


@attrs.frozen(eq=False, repr=False)
class BackwardRecording:
    """How a backward was recorded."""

    turns: Sequence[NodeVisit]
    results: Sequence[ResultRole]
    """The results that the bits of `turns` stand for."""
    recorder: Trace
    """Its random state has `Arrived` inputs of its own (RNG-5)."""


def with_backward_mutations(
    graph: Graph,
    meta: FunctionMeta,
    inputs: Sequence[CapturedInput],
    backward: BackwardRecording,
    wrappers: dict[Node, Any],
) -> BackwardMutations:
    """The joint graph with `Current` inputs, for memory that its backward reads late or writes.

    Nodes of `wrappers` have no memory; those that are rebuilt are added to it. Raises
    UnsupportedError if the backward changes the geometry of a forward tensor, or writes a tangent.
    """
    return _MutationFinder(graph, meta, inputs, backward, wrappers).run()


@attrs.define(eq=False, repr=False)
class _Found:
    """A storage that the backward writes, or reads without a version check."""

    owner: OwnerRole
    current: Node
    writes: list[int] = attrs.field(factory=list)
    """For each write: the results, as bits, of which one's tangent has to arrive for it."""


class _MutationFinder:
    def __init__(
        self,
        graph: Graph,
        meta: FunctionMeta,
        inputs: Sequence[CapturedInput],
        backward: BackwardRecording,
        wrappers: dict[Node, object],
    ) -> None:
        self.wrappers = wrappers
        self.graph = graph
        self.meta = meta
        self.turns = backward.turns
        self.starts = [turn.start for turn in self.turns]
        self.results = backward.results
        self.streams: RngTrace = backward.recorder.streams
        self.here: Callable[[Tensor], Tensor] = backward.recorder.here
        self.every = (1 << len(self.results)) - 1
        self.sights = ViewAnalysis(graph)
        self.inputs = {given.placeholder: given for given in inputs}
        self.owners: dict[Node, Any] = {n: given.role for n, given in self.inputs.items()}
        self.parts: dict[Node, int] = {}
        """Storages of which the forward returns a copy of a part, by the node that made them."""
        self.bases = list(meta.bases)
        self.private: dict[Node, IntermediateBase] = {}
        self.found: dict[Node, _Found] = {}
        self.masks: dict[Node, int] = {}
        """For each write: the results, as bits, of which one's tangent has to arrive for it."""
        self.counted: dict[Node, _Found] = {}
        """Input wrappers that are written."""
        self._own_results()

    def _own_results(self) -> None:
        values = dict(zip(self.graph.output_roles, self.graph.outputs, strict=True))
        for index, base in enumerate(self.meta.bases):
            if base.node is not None:
                self.owners.setdefault(base.node, IntermediateBase(index))
        for index, output in enumerate(self.meta.outputs):
            role = self.meta.role_of(index)
            value = values.get(role)
            if isinstance(output, Plain) and type(value) is Node:
                sight = self.sights[value.args[0]]  # the final read is a detach of the result
                is_whole = sight.object is sight.root
                (self.owners if is_whole else self.parts).setdefault(sight.root, role)  # type: ignore[arg-type]

    def run(self) -> BackwardMutations:
        offset = len(self.graph.placeholders)
        for place, node in enumerate(self.graph.nodes):
            if node.op == "call" and node.phase is Phase.BACKWARD:
                turn = self.turns[bisect_right(self.starts, place - offset) - 1]
                (self._count if node in self.wrappers else self._look_at)(node, turn)
        for _, value in self.graph.outputs_with(Gradient):
            if type(value) is Node:
                self._read(value, ())
        if not self.found:
            return BackwardMutations(self.graph, arrivals=self.streams.arrivals())
        _refuse_overlap(self.found, self.inputs)
        rewriting = _Rewriting(self)
        graph = rewriting.graph()
        masks = [*self.streams.arrivals(), *[self._roles(mask) for mask in rewriting.flags]]
        bases = tuple(self.bases[len(self.meta.bases) :])
        memory = tuple([self._memory(root, each) for root, each in self.found.items()])
        wrappers = [self._memory(root, each) for root, each in self.counted.items()]
        memory += tuple([attrs.evolve(each, is_counted_alone=True) for each in wrappers])
        return BackwardMutations(graph, bases, memory, tuple(masks), self._reads())

    # --- the nodes of the backward
    def _count(self, node: Node, turn: NodeVisit) -> None:
        """Counts a write of a wrapper; the writes of its parts are nodes of their own (SUB-15)."""
        if isinstance(node.target, InplaceOp):
            root = self.root(node.args[0])
            if root in self.inputs:
                found = self.counted.setdefault(root, _Found(self.owners[root], root))
                found.writes.append(self._arrived(node, turn))

    def _arrived(self, node: Node, turn: NodeVisit) -> int:
        return turn.arrived if node.recompute is not True else self._asking(turn)

    def _look_at(self, node: Node, turn: NodeVisit) -> None:
        if isinstance(node.target, (InplaceOp, GeometryOp)):
            root = self.root(node.args[0])
            if isinstance(root.role, Tangent):
                raise _refused(
                    node,
                    f"{node.target.name} in a backward on the gradient that it is given",
                    "Make a new tensor of it: grad * 2 instead of grad.mul_(2). (TEN-31)",
                )
            if isinstance(node.target, InplaceOp) and root.phase is Phase.FORWARD:
                arrived = self._arrived(node, turn)
                self._find(root, node).writes.append(arrived)
                self.masks[node] = arrived
            elif self.sights[node.args[0]].object.phase is Phase.FORWARD:
                raise _refused(
                    node,
                    f"{node.target.name} in a backward on a tensor of the forward",
                    "Change the geometry of a view of it, made in the backward. (FUN-31)",
                )
        checked = None
        for value in node.inputs():
            if value.phase is Phase.FORWARD and value.op != "get_attr":
                if checked is None:
                    kept = [v for s in turn.node.kept_tensors() for v in self._kept(s.tensor)]
                    checked = {self.root(value) for value in kept}
                self._read(value, checked)

    def _kept(self, tensor: Tensor) -> list[Node]:
        """The node of a saved tensor; of a wrapper the nodes of its parts."""
        parts = inner_tensors(tensor).values() if is_wrapper(tensor) else ()
        found = [value for part in parts for value in self._kept(part)]
        return found or [self.here(tensor).value]

    def _asking(self, turn: NodeVisit) -> int:
        """The results, as bits, whose backward needs the checkpoint regions recomputed here."""
        regions = set(computed_again(turn.node.kept_records()))
        mask = 0
        for each in self.turns:
            if not regions.isdisjoint(computed_again(each.node.kept_records())):
                mask |= each.arrived
        return mask

    def _read(self, value: Node, checked: Iterable[Node]) -> None:
        """Notes a read of memory that the caller may write meanwhile.

        A saved tensor is exempt: a write to it is an error.
        """
        root = self.root(value)
        if root in self.owners and root not in checked:
            self._find(root, value)

    def root(self, value: Node) -> Node:
        return self.sights[value].root

    def _find(self, root: Node, node: Node) -> _Found:
        found = self.found.get(root)
        if found is None:
            if root in self.parts:
                raise _refused(
                    node,
                    f"a backward writes memory of which {self.parts[root]} is a part",
                    "Return a clone() of the part. (FUN-33)",
                )
            owner = self.owners.get(root)
            if owner is None:
                owner = self.private[root] = IntermediateBase(len(self.bases))
                self.bases.append(BaseMeta(root, root.meta, False, -1))  # type: ignore[arg-type]
            role: Any = Current(owner)
            current = Node("placeholder", role, meta=root.meta, role=role, phase=Phase.BACKWARD)
            found = self.found[root] = _Found(owner, current)
        return found

    # --- the facts
    def _roles(self, mask: int) -> frozenset[ResultRole]:
        return frozenset([role for k, role in enumerate(self.results) if mask >> k & 1])

    def _memory(self, root: Node, found: _Found) -> BackwardMemory:
        given = self.inputs.get(root)
        return BackwardMemory(
            owner=found.owner,
            meta=root.meta,  # type: ignore[arg-type]
            place=str(found.owner) if given is None else given.place,
            writes=tuple([self._roles(mask) for mask in found.writes]),
            requires_grad=self._requires_grad(found.owner, given),
        )

    def _requires_grad(self, owner: Any, given: CapturedInput | None) -> bool:
        if given is not None:
            return given.fake.requires_grad_outside()
        if isinstance(owner, (Output, Part)):
            output = self.meta.outputs[self.meta.index_of(owner)]
            return output.requires_grad  # type: ignore[union-attr]
        return self.bases[owner.index].requires_grad

    def _reads(self) -> tuple[tuple[SavedOf, frozenset[ResultRole]], ...]:
        """The saved tensors on intermediates that the backward writes, and who reads them."""
        reads: list[tuple[SavedOf, frozenset[ResultRole]]] = []
        for turn in self.turns:
            for saved in turn.node.kept_tensors() if self.private else ():
                owner = self.private.get(self.root(saved.tensor.value))
                if owner is not None:
                    reads.append((SavedOf(owner, saved.tensor.meta), self._roles(turn.arrived)))
        return tuple(reads)


class _Rewriting:
    """One rewriting of a joint graph: the backward's nodes read forward memory from `Current`s."""

    def __init__(self, facts: _MutationFinder) -> None:
        self.facts = facts
        self.build = Builder(facts.graph.name)
        self.new: dict[Node, Node] = {}
        self.flags: dict[int, Node] = {}

    def graph(self) -> Graph:
        facts, build = self.facts, self.build
        build.nodes = [*facts.graph.placeholders, *[f.current for f in facts.found.values()]]
        flag = tensor_meta((), None, bool_)
        first = len(facts.streams.flags)
        masks = [m for m in facts.masks.values() if m != facts.every]
        self.flags = {
            mask: build.placeholder(flag, Arrived(number)).node
            for number, mask in enumerate(dict.fromkeys(masks), first)
        }
        own: list[tuple[Any, Node]] = []
        for node in facts.graph.nodes[len(facts.graph.placeholders) : -1]:
            if node.op != "call" or node.phase is Phase.FORWARD:
                build.add(node)
            if node.phase is Phase.FORWARD or node.op != "call" or node in facts.wrappers:
                continue  # wrappers' nodes are read by each other, and taken out by stage 5
            own = own or [(role, self._final(root)) for root, role in facts.private.items()]
            self._add(node)
        return self._closed(own)

    def _final(self, root: Node) -> Node:
        """The final value of an intermediate that the backward writes: a new forward output."""
        self.build.source = root
        return self.build.emit(DETACH, (root,))

    def _closed(self, own: list[tuple[Any, Node]]) -> Graph:
        graph = self.facts.graph
        pairs = list(zip(graph.output_roles, graph.outputs, strict=True))
        results = [(role, v) for role, v in pairs if type(role) not in FROM_BACKWARD]
        found = [
            (role, self._value(value) if type(value) is Node else value)
            for role, value in pairs
            if type(role) in FROM_BACKWARD
        ]
        gradients = [each for each in found if type(each[0]) is Gradient]
        left = [
            (Rewritten(each.owner), each.current)
            for each in self.facts.found.values()
            if each.writes
        ]
        outputs = [*results, *own, *gradients, *left, *found[len(gradients) :]]
        self.build.source = None
        return self.build.finish([value for _, value in outputs], [role for role, _ in outputs])

    # --- one node
    def _add(self, node: Node) -> None:
        args = map_nodes(node.args, self._value)
        made = node
        if args is not node.args and any(a is not b for a, b in zip(args, node.args, strict=True)):
            made = self.new[node] = node.with_args(args, node.meta)
            if node in self.facts.wrappers:
                self.facts.wrappers[made] = self.facts.wrappers[node]
        mask = self.facts.masks.get(node, self.facts.every)
        if mask == self.facts.every:
            self.build.add(made)
        else:
            self.new[node] = self._conditional(made, self.flags[mask])

    def _conditional(self, write: Node, flag: Node) -> Node:
        """A write, followed by `copy_(where(flag, written, old))`: undone if no tangent arrived."""
        build = self.build
        build.source = write
        old = build.emit(CLONE, (write.args[0],))
        build.add(write)
        return build.emit(COPY_, (write, build.emit(WHERE, (flag, write, old))))

    def _value(self, value: Node) -> Node:
        found = self.new.get(value)
        if found is None and value.phase is Phase.FORWARD:
            root = self.facts.root(value)
            if root in self.facts.found:
                found = self.new[value] = self._seen(value, self.facts.found[root].current)
        return value if found is None else found

    def _seen(self, value: Node, current: Node) -> Node:
        """The view of `current` through the view chain of the forward value `value`."""
        self.build.source = attrs.evolve(value, phase=Phase.BACKWARD)
        for step in self.facts.sights[value].chain:
            current = self.build.emit(step.op, (current, *step.args))
        return current


def widened(captured: Captured, meta: FunctionMeta, both: Joint) -> tuple[Captured, FunctionMeta]:
    """The capture and metadata with the inputs and bases that only the backward reads or writes."""
    if not (both.backward.memory or both.late_inputs):
        return captured, meta
    written = {each.owner for each in both.backward.memory if each.writes}
    inputs = [*meta.inputs, *map(_unwritten, both.late_inputs)]
    inputs = [attrs.evolve(i, written_late=True) if i.role in written else i for i in inputs]
    captured = attrs.evolve(captured, inputs=(*captured.inputs, *both.late_inputs))
    wrappers = {**meta.wrappers, **input_subclass_metas(captured.recorder, both.late_inputs)}
    bases = (*meta.bases, *both.late_bases)
    return captured, attrs.evolve(meta, inputs=tuple(inputs), bases=bases, wrappers=wrappers)


def _unwritten(given: CapturedInput) -> InputMeta:
    """The metadata of an input that the forward does not touch."""
    return InputMeta(
        role=given.role,
        meta=given.entry_meta,
        final_meta=given.entry_meta,
        final_start=0,
        geometry_steps=EMPTY_CHAIN,
        place=given.place,
        is_leaf=given.is_leaf,
        requires_grad=given.requires_grad,
        requires_grad_at_exit=given.requires_grad,
        writes_data=False,
        writes_metadata=False,
        under_no_grad=False,
        changes_history=False,
        version_bumps=0,
    )


def _refused(node: Node, what: str, advice: str) -> UnsupportedError:
    return noted(
        UnsupportedError(f"joint: {what} cannot be compiled, expected a backward without it"),
        describe(node.location),
        advice,
    )


def _overlapping(found: dict[Node, Any], inputs: dict[Node, CapturedInput]) -> Iterator[Any]:
    """Pairs of inputs that overlap in memory and of which the backward writes the first."""
    for root, each in found.items():
        given = inputs.get(root)
        if given is None or not each.writes:
            continue
        for other in inputs.values():
            if other is not given and other.storage is given.storage:
                if overlaps_bytes(*layout_of(given), *layout_of(other)):
                    yield given, other


def _refuse_overlap(found: dict[Node, Any], inputs: dict[Node, CapturedInput]) -> None:
    """Refuses a backward that writes an input which overlaps another one (ALI-1)."""
    for given, other in _overlapping(found, inputs):
        raise noted(
            AliasError(
                f"joint: {given.place} and {other.place} overlap in memory and a backward writes "
                f"{given.place}, expected written inputs that overlap no other input"
            ),
            "Pass the tensor that both are views of; take the views inside the function.",
        )
