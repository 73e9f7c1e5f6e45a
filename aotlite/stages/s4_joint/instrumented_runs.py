"""The engine runs that stage 4 records: the plain one, and one that tracks which tangents arrive.

`EngineRun` runs what eager's `backward()` runs, also nodes that lead to no input (TOK-4).
`InstrumentedRun` notes for each node the results from whose tangents its gradients come, as bits.
Users' Python, and sums of wrappers, depend on which tangents arrive; ops' formulas do not.
Rules: FUN-31, TAN-8, TOK-4. Spec: `specs/s4_joint.md`.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from functools import partial
from typing import Any, TypeGuard

import attrs

from aotlite.eager.autograd.custom_function.node import CustomNode
from aotlite.eager.autograd.engine import BackwardPass, Nodes
from aotlite.eager.autograd.nodes.saved_tensors import computed_again
from aotlite.eager.base.tape.node import Edge, TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.graph import Node
from aotlite.ir.graph.role import Result, Role
from aotlite.stages.records.capture_inputs import SourceRole
from aotlite.stages.records.trace import Trace
from aotlite.stages.s4_joint.subclasses.accumulation import Given, joined, note_required_arrivals

Flows = dict[Result, frozenset[SourceRole]]
"""For each result the sources that get a gradient if its tangent arrives."""


def runs_user_code(nodes: Iterable[TapeNode]) -> bool:
    """Whether users' Python runs in a backward through these nodes."""
    return any(map(_runs_user_code, nodes))


def _runs_user_code(node: TapeNode) -> bool:
    return _has_user_code(node) or bool(computed_again(node.kept_records()))


def _has_user_code(node: TapeNode) -> bool:
    """Whether users' code computes a node's gradients: of zeros it may make something else."""
    is_users = type(node) is CustomNode and not node.is_formula
    return is_users or (node.extra is not None and not node.extra.is_idle)


def sees_absence(node: TapeNode) -> TypeGuard[CustomNode]:
    """Whether a node is a user's backward that gets None, not zeros, for an absent gradient."""
    return type(node) is CustomNode and not (node.is_formula or node.ctx._materialize_grads)


@attrs.define(eq=False, repr=False)
class EngineRun(BackwardPass):
    """A backward pass up to the sinks that runs all nodes, whether they lead to a sink or not.

    Nodes that stand for the history of inputs outside the capture are not run.
    """

    arrived: list[TapeNode] = attrs.field(init=False, factory=list)
    """The nodes of the sinks, in the order in which they ran."""

    def _step(self, node: TapeNode) -> None:
        if self.sinks is not None and node in self.sinks.wanted:
            self.arrived.append(node)
        super()._step(node)

    def _run(self, node: TapeNode, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        try:
            return super()._run(node, grads)
        except Exception:
            assert self.recorder is not None
            self.recorder.failed = node
            raise

    def _nodes_to_run(self, wanted: Nodes, order: list[TapeNode], ends: Nodes) -> set[TapeNode]:
        """All nodes before the ends, whether a sink can be reached from them or not."""
        nodes = (*self._waiting, *order)
        return {node for node in nodes if node not in ends and not node.is_outside()}


@attrs.frozen(eq=False, repr=False)
class NodeVisit:
    """The run of one tape node in a recorded backward."""

    start: int
    """The number of graph nodes recorded before."""
    node: TapeNode
    arrived: int
    """The results, as bits, from whose tangents its gradients come."""


def flows_of(
    run: InstrumentedRun, results: Sequence[Result], ends: Mapping[SourceRole, Sequence[Edge]]
) -> Flows:
    """For each result the sources that its gradient reached in a run.

    These can be fewer than the tape leads to: a user's backward may return None. `ends` are the
    edges at which each source's gradient is collected.
    """
    given = {source: run.bits.at_edges(edges) for source, edges in ends.items()}
    return {
        result: frozenset([source for source, bits in given.items() if bits >> k & 1])
        for k, result in enumerate(results)
    }


@attrs.define(eq=False, repr=False)
class ArrivalBits:
    """The results, as bits, from whose tangents the gradients of a run come."""

    tangents: dict[int, int] = attrs.field(init=False, factory=dict)
    """The bit of each tangent, by its id."""
    nodes: dict[TapeNode, int] = attrs.field(init=False, factory=dict)
    """The bits of all gradients that each node has received."""
    edges: dict[Edge, int] = attrs.field(init=False, factory=dict)
    """The bits of the gradients that each edge has received."""
    now: int | None = attrs.field(init=False, default=None)
    """The bits of the node that runs now."""

    def at_edges(self, edges: Iterable[Edge]) -> int:
        """The bits of the gradients that these edges have received."""
        found = 0
        for edge in edges:
            found |= self.edges.get(edge, 0)
        return found

    def of(self, grad: Tensor) -> int:
        """The bits of a gradient on its way: of the node that runs now, or of a tangent."""
        return self.tangents[id(grad)] if self.now is None else self.now

    def arrive(self, edge: Edge, bits: int) -> int:
        """Notes that a gradient with these bits arrives; returns the edge's bits before."""
        before = self.edges.get(edge, 0)
        self.nodes[edge[0]] = self.nodes.get(edge[0], 0) | bits
        self.edges[edge] = before | bits
        return before

    @property
    def is_partial(self) -> bool:
        """Whether the node that runs now gets no gradient from some tangent."""
        return self.now != (1 << len(self.tangents)) - 1

    def unequal(self, node: TapeNode) -> list[int]:
        """The bits of the gradients of a node, each once, if they are not all the same."""
        found = {self.edges.get((node, k), 0) for k in range(node.results())} - {0}
        return sorted(found) if len(found) > 1 else []


@attrs.define(eq=False, repr=False)
class ArrivalHandlers:
    """The functions that an instrumented run calls where it matters which tangents arrive."""

    join: Callable[[Given, Given], Tensor] | None = None
    """Adds two gradients, each given with its bits; None for the engine's own sum."""
    tell: Callable[[CustomNode, tuple[int, int]], None] | None = None
    """Called where a custom function can see which tangents arrive, since it gets None for an
    absent gradient: with the bits of all its gradients, and those of one of them."""
    guard: Callable[[Tensor, int], Tensor] = lambda grad, bits: grad
    """Called with a gradient of users' code, and the results of which one has to arrive for it;
    returns the gradient to use. Note [no gradient is not zeros]."""


def handlers_of(recorder: Trace, results: Sequence[Role], *, all_arrive: bool) -> ArrivalHandlers:
    """The handlers of a run from the tangents of these results; none if all tangents arrive."""
    roles = tuple(results)
    if all_arrive:
        return ArrivalHandlers()
    join = partial(joined, recorder, roles) if recorder.wrapped else None
    return ArrivalHandlers(join, partial(note_required_arrivals, recorder, roles))


def forget_arrivals(recorder: Trace) -> None:
    """Forgets the conditions on tangents that the handlers of an earlier run have noted."""
    recorder.wrapped.required_arrivals.clear()
    recorder.wrapped.unlike = False
    recorder.streams.flags.clear()


@attrs.define(eq=False, repr=False)
class InstrumentedRun(EngineRun):
    """A backward pass that tracks, as bits, from which tangents each gradient comes."""

    recorded: Sequence[Node] = attrs.field(kw_only=True)
    on_arrival: ArrivalHandlers = attrs.field(kw_only=True)
    visits: list[NodeVisit] = attrs.field(init=False, factory=list)
    bits: ArrivalBits = attrs.field(init=False, factory=ArrivalBits)
    _guards: bool = attrs.field(init=False, default=False)
    """Whether the gradients of the node that runs now are guarded."""

    def _pass(self, roots: Sequence[tuple[Edge | None, Any]]) -> list[Any]:
        self.bits.tangents = {id(grad): 1 << k for k, (_, grad) in enumerate(roots)}
        return super()._pass(roots)

    def _step(self, node: TapeNode) -> None:
        bits, tell = self.bits, self.on_arrival.tell
        bits.now = now = bits.nodes.get(node, 0)
        self.visits.append(NodeVisit(len(self.recorded), node, now))
        self._guards = bits.is_partial and _has_user_code(node)
        if tell is not None and sees_absence(node):
            for some in bits.unequal(node):
                tell(node, (now, some))
        super()._step(node)

    def _give(self, edge: Edge, grad: Tensor) -> None:
        bits, handlers = self.bits.of(grad), self.on_arrival
        if self._guards:
            grad = handlers.guard(grad, bits)
        grad = edge[0].formed(edge[1], grad)
        buffer, before = self._buffers.get(edge[0]), self.bits.arrive(edge, bits)
        if handlers.join is None or buffer is None or before in (0, bits):
            super()._give(edge, grad)
        else:
            given = (buffer[edge[1]], before), (grad, bits)
            buffer[edge[1]] = self.recorder.summed(handlers.join, *given)  # type: ignore[union-attr]
