"""The engine runs that stage 4 records: the plain one, and one that tracks which tangents arrive.

`EngineRun` runs what eager's `backward()` runs, also nodes that lead to no input (TOK-4).
`InstrumentedRun` notes for each node the results from whose tangents its gradients come, as bits.
Users' Python, and sums of wrappers, depend on which tangents arrive; ops' formulas do not.
Rules: FUN-31, TAN-8, TOK-4. Spec: `specs/s4_joint.md`.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Container,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from typing import Any, TypeGuard

import attrs

from aotlite.eager.autograd.custom_function.node import CustomNode
from aotlite.eager.autograd.engine import BackwardPass
from aotlite.eager.autograd.nodes.saved_tensors import computed_again
from aotlite.eager.base.tape.node import Edge, TapeNode
from aotlite.ir.graph import Node
from aotlite.stages.s4_joint.recording_blocks import in_grad_mode

Result = Hashable
Flows = dict[Any, frozenset[Any]]
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
        if node in self._wanted:
            self.arrived.append(node)
        super()._step(node)

    def begin(self, roots: Sequence[tuple[Edge | None, Any]]) -> list[Any]:
        """Runs the pass in grad mode off; returns the gradients of the sinks."""
        with in_grad_mode(False):
            return self(roots)

    def _run(self, node: TapeNode, grads: list[Any]) -> Sequence[Any]:
        try:
            return super()._run(node, grads)
        except Exception:
            assert self.recorder is not None
            self.recorder.failed = node
            raise

    def _leading_to_sinks(self, order: list[TapeNode], ends: Container[TapeNode]) -> set[TapeNode]:
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
    run: InstrumentedRun, results: Sequence[Result], ends: Mapping[Any, Sequence[Edge]]
) -> Flows:
    """For each result the sources that its gradient reached in a run.

    These can be fewer than the tape leads to: a user's backward may return None. `ends` are the
    edges at which each source's gradient is collected.
    """
    given = {source: run.given(edges) for source, edges in ends.items()}
    return {
        result: frozenset([source for source, bits in given.items() if bits >> k & 1])
        for k, result in enumerate(results)
    }


@attrs.define(eq=False, repr=False)
class InstrumentedRun(EngineRun):
    """A backward pass that tracks, as bits, from which tangents each gradient comes."""

    recorded: Sequence[Node] = attrs.field(kw_only=True)
    turns: list[NodeVisit] = attrs.field(init=False, factory=list)
    _bits: dict[int, int] = attrs.field(init=False, factory=dict)
    """The bit of each tangent, by its id."""
    _arrived: dict[TapeNode, int] = attrs.field(init=False, factory=dict)
    now: int | None = attrs.field(init=False, default=None)
    """The bits of the node that runs now."""
    guard: Callable[[Any, int], Any] = attrs.field(kw_only=True, default=lambda grad, bits: grad)
    """Called with a gradient of users' code, and the results of which one has to arrive for it;
    returns the gradient to use. Note [no gradient is not zeros]."""
    _guards: bool = attrs.field(init=False, default=False)
    """Whether the gradients of the node that runs now are guarded."""
    join: Callable[[Any, Any], Any] | None = attrs.field(kw_only=True, default=None)
    """Adds two gradients, each given with its bits; None for the engine's own sum."""
    tell: Callable[[CustomNode, tuple[int, int]], None] | None = attrs.field(
        kw_only=True, default=None
    )
    """Called where a custom function can see which tangents arrive, since it gets None for an
    absent gradient: with the bits of all its gradients, and those of one of them."""
    _slots: dict[Edge, int] = attrs.field(init=False, factory=dict)
    """The bits of the gradients that each edge has received."""

    def given(self, edges: Iterable[Edge]) -> int:
        """The bits of the gradients that these edges have received."""
        found = 0
        for edge in edges:
            found |= self._slots.get(edge, 0)
        return found

    def begin(self, roots: Sequence[tuple[Edge | None, Any]]) -> list[Any]:
        self._bits = {id(grad): 1 << k for k, (_, grad) in enumerate(roots)}
        return super().begin(roots)

    def _step(self, node: TapeNode) -> None:
        self.now = self._arrived.get(node, 0)
        self.turns.append(NodeVisit(len(self.recorded), node, self.now))
        some = self.now != (1 << len(self._bits)) - 1
        self._guards = some and _has_user_code(node)
        if self.tell is not None and sees_absence(node):
            slots = {self._slots.get((node, k), 0) for k in range(node.results())} - {0}
            for bits in sorted(slots) if len(slots) > 1 else ():
                self.tell(node, (self.now, bits))
        super()._step(node)

    def _give(self, edge: Edge, grad: Any) -> None:
        bits = self._bits[id(grad)] if self.now is None else self.now
        self._arrived[edge[0]] = self._arrived.get(edge[0], 0) | bits
        if self._guards:
            grad = self.guard(grad, bits)
        grad = edge[0].formed(edge[1], grad)
        buffer, before = self._buffers.get(edge[0]), self._slots.get(edge, 0)
        self._slots[edge] = before | bits
        if self.join is None or buffer is None or before in (0, bits):
            super()._give(edge, grad)
        else:
            given = (buffer[edge[1]], before), (grad, bits)
            buffer[edge[1]] = self.recorder.summed(self.join, *given)  # type: ignore[union-attr]
