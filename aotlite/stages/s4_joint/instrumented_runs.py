"""The runs of the tape that stage 4 records, and what they note of each tape node.

They run what eager's backward runs, also the nodes that lead to no input (TOK-4). Where users'
Python runs in the backward, and where gradients are wrappers, they note whose gradients each node
is given, and when its turn is. Rules: FUN-31, TAN-8, TOK-4. Spec: `specs/s4_joint.md`.
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
"""For each result the sources of which one gets a gradient where a gradient of it arrives."""


def runs_user_code(nodes: Iterable[TapeNode]) -> bool:
    """Whether users' Python runs in a backward through these nodes."""
    return any(map(_runs_user_code, nodes))


def _runs_user_code(node: TapeNode) -> bool:
    return _has_user_code(node) or bool(computed_again(node.kept_records()))


def _has_user_code(node: TapeNode) -> bool:
    """Whether its gradients are what users' code says: perhaps not zeros where none arrives."""
    is_users = type(node) is CustomNode and not node.is_formula
    return is_users or (node.extra is not None and not node.extra.is_idle)


def sees_absence(node: TapeNode) -> TypeGuard[CustomNode]:
    """Whether it is a user's backward that is given None, not zeros, for what does not arrive."""
    return type(node) is CustomNode and not (node.is_formula or node.ctx._materialize_grads)


@attrs.define
class EngineRun(BackwardPass):
    """A run of the tape up to its sinks that enters all nodes, whether they lead to a sink or not.

    What stands for a history outside of the capture is not entered.
    """

    arrived: list[TapeNode] = attrs.field(init=False, factory=list)
    """The nodes of the sinks, in the order of their turns."""

    def _step(self, node: TapeNode) -> None:
        if node in self._wanted:
            self.arrived.append(node)
        super()._step(node)

    def begin(self, roots: Sequence[tuple[Edge | None, Any]]) -> list[Any]:
        """The gradients of the sinks, in grad mode off."""
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


@attrs.frozen(eq=False)
class NodeVisit:
    """One tape node's turn in a recorded backward."""

    start: int
    """The number of nodes that were recorded before."""
    node: TapeNode
    arrived: int
    """The results, as bits, whose gradients it was given."""


def flows_of(
    run: InstrumentedRun, results: Sequence[Result], ends: Mapping[Any, Sequence[Edge]]
) -> Flows:
    """The sources to which a gradient of each result has flowed in a run that started from these.

    The tape leads to more where users' backwards give None. `ends` are where each one's gradient is
    collected.
    """
    given = {source: run.given(edges) for source, edges in ends.items()}
    return {
        result: frozenset([source for source, bits in given.items() if bits >> k & 1])
        for k, result in enumerate(results)
    }


@attrs.define
class InstrumentedRun(EngineRun):
    """A run of the tape that notes whose gradients each node is given, and when its turn is."""

    recorded: Sequence[Node] = attrs.field(kw_only=True)
    turns: list[NodeVisit] = attrs.field(init=False, factory=list)
    _bits: dict[int, int] = attrs.field(init=False, factory=dict)
    """The bit of each gradient that the run starts from, by its id."""
    _arrived: dict[TapeNode, int] = attrs.field(init=False, factory=dict)
    now: int | None = attrs.field(init=False, default=None)
    """The results whose gradients the node was given whose turn it is."""
    guard: Callable[[Any, int], Any] = attrs.field(kw_only=True, default=lambda grad, bits: grad)
    """What is made of gradients that users' code gives if any of these results' arrived."""
    _guards: bool = attrs.field(init=False, default=False)
    """Whether those of this turn are such."""
    join: Callable[[Any, Any], Any] | None = attrs.field(kw_only=True, default=None)
    """The sum of two gradients, each with the results, as bits, that it comes of."""
    tell: Callable[[CustomNode, tuple[int, int]], None] | None = attrs.field(
        kw_only=True, default=None
    )
    """Told of each gradient by which a custom function knows what arrives: the results, as bits,
    that its backward runs for, and those of the gradient."""
    _slots: dict[Edge, int] = attrs.field(init=False, factory=dict)
    """The results, as bits, whose gradients each slot of a node has been given."""

    def given(self, edges: Iterable[Edge]) -> int:
        """The results, as bits, of which one's gradient has to arrive for any at these edges."""
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
