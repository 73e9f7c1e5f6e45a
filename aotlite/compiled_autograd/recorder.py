"""The tracer of a tape: ops of open nodes become graph nodes; saved values and gradients, inputs.

Each saved value is an input of its own, even if two nodes saved one tensor: the next tape may have
two. Used by `execution`. Rules: CAG-2, CAG-4, CAG-22, CAG-23. Spec: `specs/compiled_autograd.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

from aotlite.compiled_autograd.node_graphs import Fragment, fragment_of, key_of
from aotlite.compiled_autograd.node_signatures import (
    Form,
    records_of,
    saved_roles,
    saver_of,
    slots_read,
    twin_of,
)
from aotlite.eager.autograd.anomaly import known_notes
from aotlite.eager.autograd.nodes.op_nodes import OpNode, SliceAssign
from aotlite.eager.autograd.nodes.saved_tensors import SavedTensor
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.storage import Storage
from aotlite.eager.base.tape.node import TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.base.unsupported import note_refusal
from aotlite.ir.effects import EffectOp
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.geometry.sizes import same_shape
from aotlite.ir.graph import Constant, Graph, Node, Phase, map_nodes, output_node
from aotlite.ir.graph.role import Gradient, Lifted, Output, Saved
from aotlite.ir.meta import TensorMeta, table_in
from aotlite.ir.meta.symbolic import always_same_meta
from aotlite.ir.op import Op, RandomOp
from aotlite.ir.provenance.scope import SUM, TAPE_NODE, Scope
from aotlite.stages.records.metadata.subclass_meta import gradient_of
from aotlite.stages.s1_capture.hooks.dry_run import HookDryRun
from aotlite.stages.s1_capture.recorder import CaptureRecorder
from aotlite.stages.s10_runtime.backward.node import CompiledBackward
from aotlite.stages.s10_runtime.backward.plan import NOTHING_ABSENT
from aotlite.stages.s10_runtime.backward.undefined_tangents import without_tangents
from aotlite.stages.s10_runtime.subclass_code import dense_gradients

Place = tuple[Any, ...]
"""The source of an input: ("saved", node, slot), ("at", node, result) or ("sink", index)."""


class Closed(BaseException):
    """Raised by a node that no graph can express: its formula draws, or has an effect."""


class _NoStreams:
    """Replaces the recorder's generator state: a node that uses it is closed."""

    def __getattr__(self, name: str) -> Any:
        raise note_refusal(Closed(), STATE.recorder)


class TapeRecorder(CaptureRecorder):
    """Records one segment of a tape."""

    def __init__(self, place_of: Callable[[Tensor], Place]) -> None:
        super().__init__(None, [], HookDryRun)
        self.places: list[Place] = []
        """The source of each placeholder."""
        self.pending: list[tuple[int, Any]] = []
        """(number of a leaf's node, its gradient), in the order of accumulation (CAG-10)."""
        self.place_of = place_of
        self.kept: dict[int, frozenset[int]] = {}
        """Nodes with saved values; for a compiled call also its absent tangents."""
        self.streams: Any = _NoStreams()
        self.grads: Any = self
        self.origin = self.marker = Node("call", None)
        """The origin of recorded nodes: it has a scope, and no line, which would be `backward`'s.
        """
        self._number = 0
        """The number of the node that runs."""
        self._scopes: dict[Scope | None, Scope | None] = {}
        """Scope of a node of a compiled backward -> the scope of its copy, with the tape node."""
        self._fragments: dict[Hashable, Fragment | None] = {}
        """Fragments by `key_of`; None for one that cannot be copied."""

    # --- inputs
    def lift(self, place: Place, meta: TensorMeta, name: str) -> Tensor:
        """The fake of a tensor that the segment reads."""
        return self._fake(self._input(place, meta, name))

    def _input(self, place: Place, meta: TensorMeta, name: str) -> Node:
        role = Lifted(len(self.places), name)
        node = Node("placeholder", role, (), meta, role, False)
        self.placeholders.append(node)
        self.places.append(place)
        return node

    def _lift(self, tensor: Tensor) -> Tensor:
        """The fake of a gradient that arrived from before the segment: a new input."""
        fake = self.lift(self.place_of(tensor), tensor.meta, f"grad_{len(self.places)}")
        self._met.fakes[id(tensor)] = fake
        self._met.reals[id(fake)] = tensor
        self._met.alive.append(tensor)
        return fake

    def here(self, tensor: Tensor) -> Tensor:
        if tensor.storage.capture is self:
            return tensor
        known = self._met.fakes.get(id(tensor))
        return self._lift(tensor) if known is None else known

    def place_in(self, fake: Tensor) -> Place | None:
        """The source of a gradient that passes through; None for one that is computed here."""
        real = self._met.reals.get(id(fake))
        return None if real is None else self.place_of(real)

    def add(self, leaf: Tensor, grads: list[Tensor | None]) -> None:
        """Notes the gradient of a leaf; the engine calls it (`capture_protocol.Grads`)."""
        self.pending.append((self._number, grads[0]))

    # --- nodes
    def record(self, op: Op, args: tuple[object, ...], meta: object) -> Any:
        if isinstance(op, (EffectOp, RandomOp)):
            raise note_refusal(Closed(), self)
        return super().record(op, args, meta)

    def scope_of(self, node: TapeNode, number: int) -> Scope:
        """The scope of the nodes that a tape node records (CAG-22)."""
        return Scope("", {TAPE_NODE: node_note(node, number)})

    def run_before(self, node: TapeNode) -> None:
        """Does nothing: `run` sets the scope."""

    def run(
        self,
        node: TapeNode,
        number: int,
        grads: list[Tensor | None],
        wanted: Sequence[bool] | None,
        form: Form,
        run: Callable[[TapeNode], object],
    ) -> Any:
        """The gradients of a node, recorded: by running its twin on fakes, or from a fragment."""
        self._number = number
        self.marker.scope = self.scope_of(node, number)
        if type(node) is CompiledBackward:
            return self._pasted(node, number, grads)
        saver = saver_of(node)
        if saver is None:
            return run(node)
        if saver.plan.operands or saver.saved_results:
            self.kept[number] = NOTHING_ABSENT
        records = list(records_of(saver))
        if type(node) is SliceAssign:
            wanted = None  # it runs what was written as a whole
        is_whole = wanted is None or all(wanted)
        for record in records:
            is_whole = is_whole and record.tensor.storage.version == record.version
        if not is_whole:
            return run(twin_of(node, iter(self._some_saved(saver, number, wanted, records))))
        inputs = self._saved(saver, number, records)
        if type(node) is OpNode:
            return self._of_form(node, grads, form, inputs, run)
        return run(twin_of(node, iter(map(self._fake, inputs))))

    def _of_form(
        self,
        node: OpNode,
        grads: list[Any],
        form: Form,
        inputs: list[Node],
        run: Callable[[TapeNode], Any],
    ) -> Sequence[Tensor | None]:
        """The gradients of an op node; its fragment is copied if one of its form was recorded."""
        key = key_of(node, form, grads, inputs)
        fragment = None if key is None else self._fragments.get(key)
        if fragment is not None:
            return self._copied_fragment(fragment, grads, inputs)
        arrived, start = list(grads), len(self.nodes)
        found: Sequence[Any] = run(twin_of(node, iter(map(self._fake, inputs))))
        if key is not None and key not in self._fragments:
            new = self.nodes[start:]
            self._fragments[key] = fragment_of(new, arrived, inputs, found)
        return found

    def _copied_fragment(
        self, fragment: Fragment, grads: list[Any], inputs: list[Node]
    ) -> list[Tensor | None]:
        values: list[Any] = [None if grad is None else grad.value for grad in grads]
        values += inputs
        self.nodes += fragment.copied(values, self.marker)
        made = {k: self._fake(values[k]) for k in fragment.made}
        for view in fragment.views:
            source = made[view.source] if view.source in made else grads[view.source]
            made[view.number] = view.of(source, values)
        return [None if k is None else made[k] if k in made else grads[k] for k in fragment.results]

    def _saved(self, saver: OpNode, number: int, records: list[SavedTensor]) -> list[Node]:
        """The placeholders of the slots."""
        name = f"{saver.op.name}_{number}"
        return [
            self._input(("saved", number, slot), record.tensor.meta, f"{name}_{slot}")
            for slot, record in enumerate(records)
        ]

    def _some_saved(
        self,
        saver: OpNode,
        number: int,
        wanted: Sequence[bool] | None,
        records: list[SavedTensor],
    ) -> list[Tensor]:
        """Fakes for the slots; a slot that no wanted formula reads is neither unpacked nor read."""
        read = slots_read(saver, wanted)
        for slot in read:
            records[slot].unpack(saver)
        name = f"{saver.op.name}_{number}"
        return [
            self.lift(("saved", number, slot), record.tensor.meta, f"{name}_{slot}")
            if slot in read
            else Tensor(Storage(None, capture=self), record.tensor.meta)
            for slot, record in enumerate(records)
        ]

    def _pasted(
        self, node: CompiledBackward, number: int, grads: list[Any], sized: Graph | None = None
    ) -> list[Tensor | None]:
        """Inlines the graph of a compiled backward; returns its gradients (CAG-11, CAG-23).
        `sized` is the graph with symbols for its sizes."""
        plan = node.plan
        assert plan.variants is not None
        if STATE.wrappers:
            grads = dense_gradients(grads, plan.tangents, plan.wrapped)
        absent = node.absent(grads)
        node.check(absent)
        self.kept[number] = absent
        graph = plan.variants.graph if sized is None else sized
        if absent:
            graph = without_tangents(graph, absent, plan.reached(absent))
        values = self._given(node, number, graph, grads)
        self._scopes = {None: self.marker.scope, SUM: SUM}
        for each in graph.nodes:
            if each.op == "get_attr":
                values[each] = self._constant(each)
            elif each.op == "call":
                values[each] = self._copied(each, values)
        found = [value for _, value in graph.outputs_with(Gradient)]
        return [None if value is None else self._fake(values[value]) for value in found]

    def _given(
        self, node: CompiledBackward, number: int, graph: Graph, grads: list[Any]
    ) -> dict[Node, Node]:
        metas = dict(node.plan.tangents)
        arrived = {role: g for (role, _), g in zip(node.plan.tangents, grads, strict=True)}
        slots = {role: slot for slot, role in enumerate(saved_roles(node))}
        found: dict[Node, Any] = {}
        for each in graph.placeholders:
            role: Any = each.role
            meta: Any = each.meta
            if isinstance(role, Saved):
                slot = slots[role]
                name = f"{node.name().lower()}_{number}_{role.name or slot}"
                fake = self.lift(("saved", number, slot), meta, name)
            else:
                of = gradient_of(role.of)
                fake = self.here(arrived[of])
                wanted = metas[of] if table_in((meta,)) is None else meta
                if wanted is meta and not same_shape(fake.meta.shape, meta.shape):
                    raise UnsupportedError(f"the gradient is {fake.meta}, expected {meta}")
                if not always_same_meta(fake.meta, wanted):
                    fake = fake.detach().restride(wanted.stride)
            found[each] = fake.value
        return found

    def _copied(self, each: Node, values: dict[Node, Node]) -> Node:
        copied = each.with_args(map_nodes(each.args, values.__getitem__), each.meta)
        copied.origin, copied.phase = self.origin, Phase.FORWARD
        copied.scope = self._scopes.get(each.scope)
        if copied.scope is None:
            copied.scope = self._scopes[each.scope] = _joined(each.scope, self.marker.scope)
        self.nodes.append(copied)
        return copied

    def _constant(self, each: Node) -> Node:
        name = f"constant_{len(self.nodes)}"
        made = Node("get_attr", Constant(name, each.target.value), meta=each.meta)
        self.nodes.append(made)
        return made

    def _fake(self, value: Node) -> Tensor:
        meta: Any = value.meta
        fake = Tensor(Storage(None, capture=self), meta)
        fake.value = value
        return fake

    # --- the end
    def mark(self) -> tuple[int, int]:
        """The numbers of nodes and inputs so far, for `back_to`."""
        return len(self.nodes), len(self.places)

    def back_to(self, mark: tuple[int, int], number: int) -> None:
        """Drops all nodes and inputs since `mark`: the node that recorded them raised."""
        self.drop_from(mark[0])
        del self.places[mark[1] :], self.placeholders[mark[1] :]
        self.kept.pop(number, None)

    def graph(self, results: Sequence[Tensor], name: str) -> Graph:
        """The recorded graph with these results."""
        values = [result.value for result in results]
        closing = output_node(values, [Output(k) for k in range(len(values))])
        return Graph((*self.placeholders, *self.nodes, closing), name)


def _joined(inner: Any, outer: Any) -> Scope:
    """The Module and tags of a node of a compiled backward, and its tape node."""
    return Scope(inner.module, {**inner.tags, **outer.tags}, inner.is_backward)


def node_note(node: TapeNode, number: int) -> str:
    """The name of a tape node in graphs and notes (CAG-22)."""
    return f"{node.name()} (NodeCall {number})"


def note_forward(error: Exception, nodes: Iterable[tuple[int, TapeNode]]) -> None:
    """Adds to a kernel's error the forward line of the tape node that it was running."""
    notes = getattr(error, "__notes__", ())
    for number, node in nodes:
        if f"for {node_note(node, number)}" in notes:
            noted(error, *known_notes(node))
            return
