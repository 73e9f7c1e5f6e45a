"""The backward of a compiled call, recorded again so that it can be differentiated (DBL-2).

Used by the pipeline when a compiled backward runs under grad mode for the first time. The tape of
the captured run, which is kept, is continued: the engine runs it on fake gradients while it builds
a graph of what it does, and then runs back through that. So whatever decides about gradients at
the first order decides at each further one: `detach`, `no_grad`, writes, users' own backwards.
Each result is a `Taped` again, from which the next order is recorded.
Spec: `specs/higher_orders.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from aotlite.eager.autograd.engine import run_backward
from aotlite.eager.autograd.history import edge_of
from aotlite.eager.autograd.node import Edge, TapeNode
from aotlite.eager.autograd.tape import InputNode
from aotlite.eager.state import STATE
from aotlite.eager.storage import Storage
from aotlite.eager.tensor import Tensor
from aotlite.ir.errors import AutogradError, GraphError, UnsupportedError
from aotlite.ir.graph import Graph, Node, Phase, output_node
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.views import DETACH
from aotlite.ir.overlap import has_internal_overlap
from aotlite.ir.role import Gradient, Incoming, Output, Role, Tangent
from aotlite.stages.facts import Captured, CapturedFamily, SavedOf
from aotlite.stages.histories import passed
from aotlite.stages.record import Record
from aotlite.stages.sinks import sinks_of, sum_at_entry


@attrs.frozen(repr=False)
class Earlier(Record):
    """The memory of a result of an earlier order: who owns what a later one reads."""

    of: Any

    def __str__(self) -> str:
        return str(self.of)


@attrs.frozen(eq=False, repr=False)
class Start(Record):
    """Where gradients of a differentiable result go, and in which form they are expected."""

    role: Any
    edge: Edge | None
    meta: TensorMeta


@attrs.frozen(eq=False, repr=False)
class IncomingInput(Record):
    """A gradient that arrived at an earlier order, which is an input of the later ones."""

    role: Incoming
    placeholder: Node
    fake: Tensor

    @property
    def entries(self) -> tuple[Edge, ...]:
        """The edge at which its own gradient is collected."""
        return ((self.fake._node, 0),)


@attrs.frozen(eq=False, repr=False)
class Taped(Record):
    """A recorded run with its tape alive, of which no tensor of the caller's is a part."""

    recorder: Any
    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    """The placeholders."""
    sources: tuple[Any, ...]
    """Where gradients are collected: inputs, the bases of families, and gradients that arrived."""
    starts: tuple[Start, ...]
    owners: Mapping[Storage, Any]
    """Whose memory each storage is that somebody else may write."""
    order: int = 1
    """Of the derivatives that a backward through it gives."""

    def incoming(self, result: Any) -> Any:
        """The input that the gradient of this result becomes: one level more for each order."""
        role = result
        for _ in range(self.order):
            role = Incoming(role)
        return role


def taped(
    captured: Captured, roots: Sequence[tuple[Any, Edge | None, Tensor]], owners: Mapping[Any, Any]
) -> Taped:
    """What is kept of a captured function: `roots` as stage 4 ran its backward from them."""
    recorder = captured.recorder
    return Taped(
        recorder,
        captured.graph.name,
        tuple([node for node in recorder.nodes if node.phase is Phase.FORWARD]),
        (*recorder.placeholders, *recorder.streams.placeholders()),
        (
            *[given for given in captured.inputs if given.entries],
            *[_alone(family) for family in captured.families if family.entries],
        ),
        tuple([Start(role, edge, tangent.meta) for role, edge, tangent in roots]),
        owners,
    )


@attrs.frozen(eq=False, repr=False)
class Differentiated(Record):
    """A backward as a function that has a backward itself."""

    graph: Graph
    """The joint graph: its results are the gradients."""
    gradients: tuple[tuple[Any, TensorMeta | None], ...]
    """For each source of the earlier order the meta of its gradient, None where none comes."""
    errors: dict[Any, Exception]
    reach: dict[Any, frozenset[Any]]
    reads: dict[Any, tuple[SavedOf, ...]]
    taped: Taped


def differentiated(taped: Taped, arriving: Mapping[Any, bool]) -> Differentiated:
    """The backward for these gradients; of each it is said whether it has a history itself.

    Raises UnsupportedError for what cannot be captured.
    """
    recorder = taped.recorder
    outer, mode, watch = STATE.recorder, STATE.grad_mode, STATE.watch
    before = recorder.nodes, recorder.sequence
    STATE.recorder, STATE.grad_mode, STATE.watch = recorder, True, None
    try:
        return _Recording(taped, arriving).run()
    finally:
        STATE.recorder, STATE.grad_mode, STATE.watch = outer, mode, watch
        recorder.nodes, recorder.sequence = before
        recorder.origin, recorder.phase = None, Phase.FORWARD


class _Recording:
    def __init__(self, taped: Taped, arriving: Mapping[Any, bool]) -> None:
        self.taped = taped
        self.recorder = taped.recorder
        self.recorder.nodes = list(taped.nodes)
        self.arriving = arriving
        self.errors: dict[Any, Exception] = {}
        self.owners = {storage: earlier(owner) for storage, owner in taped.owners.items()}

    def run(self) -> Differentiated:
        incoming = [self._incoming(start) for start in self._arrived()]
        sources = (*self.taped.sources, *[i for i in incoming if i.fake._node is not None])
        gradients = self._gradients(incoming)
        given = [grad for grad in gradients if grad is not None]
        results = {Output(k): grad for k, grad in enumerate(given)}
        outputs: list[tuple[Role, Any]] = [(r, self._read(grad)) for r, grad in results.items()]
        nodes = tuple(self.recorder.nodes)
        inputs = (*self.taped.inputs, *[i.placeholder for i in incoming])
        starts = tuple([Start(r, edge_of(g), _dense(g.meta)) for r, g in results.items()])
        starts = tuple([start for start in starts if start.edge is not None])
        for role, grad in results.items():
            self.owners.setdefault(grad.storage, role)
        taped = Taped(
            self.recorder,
            self.taped.name,
            nodes,
            inputs,
            sources,
            starts,
            self.owners,
            self.taped.order + 1,
        )
        reach, reads = self._look_behind(taped)
        tangents = [_tangent(self.recorder, Tangent(s.role), s.meta) for s in starts]
        found = self._second(taped, tangents, reach)
        outputs += [
            (Gradient(s.role), None if g is None else g.value)
            for s, g in zip(sources, found, strict=True)
        ]
        closing = output_node([v for _, v in outputs], [role for role, _ in outputs])
        placeholders = (*inputs, *[t.value for t in tangents])
        graph = Graph((*placeholders, *self.recorder.nodes, closing), f"{taped.name}_backward")
        pairs = zip(self.taped.sources, gradients, strict=True)
        metas = tuple([(s.role, None if g is None else g.meta) for s, g in pairs])
        return Differentiated(graph, metas, self.errors, reach, reads, taped)

    # --- the backward itself
    def _arrived(self) -> list[Start]:
        return [start for start in self.taped.starts if start.role in self.arriving]

    def _incoming(self, start: Start) -> IncomingInput:
        role = self.taped.incoming(start.role)
        fake = _tangent(self.recorder, role, start.meta)
        if self.arriving[start.role]:
            fake._node = InputNode()
        self.owners[fake.storage] = role
        return IncomingInput(role, fake.value, fake)

    def _gradients(self, incoming: list[IncomingInput]) -> list[Any]:
        pairs = zip(self._arrived(), incoming, strict=True)
        roots = [(start.edge, given.fake) for start, given in pairs]
        return self._through(roots, self.taped.sources, create_graph=True)

    def _through(self, roots: Any, sources: Any, *, create_graph: bool) -> list[Any]:
        sinks, summed = [sinks_of(source) for source in sources], self.recorder.summed
        found = run_backward(
            roots,
            sinks=[edge for each in sinks for edge, _ in each],
            cut=True,
            retain_graph=True,
            create_graph=create_graph,
            recorder=self.recorder,
        )
        rest = iter(found)
        STATE.grad_mode = create_graph
        try:
            return [
                summed(sum_at_entry, source, [(next(rest), moves) for _, moves in each])
                for source, each in zip(sources, sinks, strict=True)
            ]
        finally:
            STATE.grad_mode = True
            self.recorder.origin = None

    def _read(self, grad: Tensor) -> Node:
        value: Any = grad.value
        self.recorder.origin, STATE.grad_mode = value, False
        node: Node = self.recorder._add(DETACH, (value,), grad.meta)
        self.recorder.origin, STATE.grad_mode = None, True
        return node

    # --- and its backward
    def _look_behind(self, taped: Taped) -> tuple[Any, Any]:
        """The sources that each result's gradient reaches, and the memory that it reads."""
        sinks: dict[TapeNode, Any] = {}
        for source in taped.sources:
            for edge, _ in sinks_of(source):
                sinks[edge[0]] = source.role
        roles = [start.role for start in taped.starts]
        reach: dict[Any, set[Any]] = {role: set() for role in roles}
        reads: dict[Any, dict[SavedOf, None]] = {role: {} for role in roles}
        for node, bits in passed([start.edge for start in taped.starts]).items():
            of = [role for k, role in enumerate(roles) if bits >> k & 1]
            for role in of:
                if node in sinks:
                    reach[role].add(sinks[node])
            if node in sinks:
                continue
            for each in node.kept_tensors():
                owner = self.owners.get(each.tensor.storage)
                if each.tensor.storage.version != each.version:
                    self._note_written(node, each, of)
                if owner is not None:
                    for role in of:
                        reads[role][SavedOf(owner, each.tensor.meta)] = None
        return (
            {role: frozenset(found) for role, found in reach.items()},
            {role: tuple(found) for role, found in reads.items()},
        )

    def _note_written(self, node: TapeNode, saved: Any, results: list[Any]) -> None:
        try:
            saved.unpack(node)
        except AutogradError as error:
            for result in results:
                self.errors.setdefault(result, error)

    def _second(self, taped: Taped, tangents: list[Tensor], reach: Any) -> list[Any]:
        """The gradients of the sources; a result whose backward fails is left out (JNT-15)."""
        self.recorder.phase = Phase.BACKWARD
        pairs = list(zip(taped.starts, tangents, strict=True))
        start = len(self.recorder.nodes)
        try:
            return self._of_healthy(taped, pairs)
        except AutogradError as error:
            _check_is_eagers(error)
        self.recorder.drop_from(start)
        for pair in pairs:
            if pair[0].role not in self.errors:
                try:
                    self._of_healthy(taped, [pair])
                except AutogradError as error:
                    _check_is_eagers(error)
                    self.errors[pair[0].role] = error
                self.recorder.drop_from(start)
        return self._of_healthy(taped, pairs)

    def _of_healthy(self, taped: Taped, pairs: list[tuple[Start, Tensor]]) -> list[Any]:
        roots = [(s.edge, tangent) for s, tangent in pairs if s.role not in self.errors]
        return self._through(roots, taped.sources, create_graph=False)


def _check_is_eagers(error: Exception) -> None:
    if isinstance(error, (UnsupportedError, GraphError)):
        raise error
    error.__traceback__ = error.__context__ = None


def _alone(family: CapturedFamily) -> CapturedFamily:
    """The family without the caller's root."""
    nobody: Any = None
    return attrs.evolve(family, outside=nobody)


def earlier(owner: Any) -> Any:
    """The owner of memory as a later order names it."""
    return Earlier(owner) if isinstance(owner, (Output, Earlier)) else owner


def _dense(meta: TensorMeta) -> TensorMeta:
    return meta.as_contiguous() if has_internal_overlap(meta.shape, meta.stride) else meta


def _tangent(recorder: Any, role: Any, meta: TensorMeta) -> Tensor:
    fake = Tensor(Storage(None, capture=recorder), _dense(meta))
    phase = Phase.BACKWARD if type(role) is Tangent else Phase.FORWARD
    fake.value = Node(
        "placeholder", role, meta=fake.meta, role=role, phase=phase, grad_mode=False
    )
    return fake
