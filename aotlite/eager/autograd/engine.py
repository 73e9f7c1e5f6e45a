"""The engine: passes gradients from roots back along the tape. Rules: TEN-27, TEN-28.

It is iterative, in the order of falling sequence numbers. Spec: `specs/autograd.md`.
"""

# Note [order of the engine]
#     y = x * 2; z = y.sin() + y.cos(); z.sum().backward()
# MulBackward may run only when both gradients for y have arrived. Torch counts the edges into each
# node for that. Here a node's edges always lead to nodes that were made before it (SEQ-1), so that
# falling sequence numbers are an order that works: sin and cos were made after mul, and run first.
# Only AccumulateGrad nodes are counted (`_waiting`): a leaf has one for all its uses, so that its
# position says nothing. As in PyTorch, it runs as soon as its last edge is passed (TEN-27).

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Sequence
from functools import partial
from operator import add, attrgetter

import attrs

from aotlite.eager.autograd.anomaly import run_watched
from aotlite.eager.base.capture_protocol import Recorder
from aotlite.eager.base.modes import STATE, backward_task
from aotlite.eager.base.tape.node import LAST, Edge, TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.symbols.user_code import asks_for

Nodes = Container[TapeNode]
Roots = Sequence[tuple[Edge | None, Tensor | None]]
"""The edges at which a pass starts, with the gradients that it starts with."""


@attrs.define(eq=False, repr=False)
class Sinks:
    """The edges at which a pass collects gradients, and the nodes that it runs for them."""

    edges: Sequence[Edge | None]
    cut: bool = False
    """Whether the pass ends at the nodes of sinks."""
    accumulate: bool = False
    """Whether sinks that are leaves accumulate, instead of being collected (TEN-44)."""
    wanted: dict[TapeNode, list[tuple[int, int]]] = attrs.field(init=False, factory=dict)
    """Node of a sink -> [(number of the node's result, index of the sink)]."""
    useful: Nodes = attrs.field(init=False, default=frozenset())
    """The nodes whose gradients are computed."""
    starts: frozenset[TapeNode] = attrs.field(init=False, default=frozenset())
    """The start node of a backward with one root. As in PyTorch, the hooks of its tensor run even
    if no sink is reached; with several roots they run only if one is (TEN-44)."""

    def wanted_of(self, node: TapeNode) -> list[bool]:
        """For each edge of the node, whether its gradient is needed."""
        useful, wanted = self.useful, self.wanted
        ends = [edge is not None and edge[0] for edge in node.edges]
        return [bool(end) and (end in useful or end in wanted) for end in ends]


@attrs.define(eq=False, repr=False)
class BackwardPass:
    """One backward pass over the tape: to leaves, or to the sinks if there are some."""

    sinks: Sinks | None = None
    retain: bool = False
    recorder: Recorder | None = None
    """The recorder of a capture; notified of each node before it runs, and of sums (SEQ-4)."""
    collected: list[Tensor | None] = attrs.field(init=False, factory=list)
    """The gradient of each sink; None for none."""
    _waiting: dict[TapeNode, int] = attrs.field(init=False, factory=dict)
    """AccumulateGrad node -> the number of edges into it that are not passed yet."""
    _buffers: dict[TapeNode, list[Tensor | None]] = attrs.field(init=False, factory=dict)
    _ready: deque[TapeNode] = attrs.field(init=False, factory=deque)
    """AccumulateGrad nodes whose edges are all passed: a queue."""
    _anomaly: bool = attrs.field(init=False, default=False)

    def __call__(self, roots: Roots) -> list[Tensor | None]:
        """Runs from (edge, gradient) pairs; returns the gradient of each sink, None for none."""
        with backward_task():
            return self._pass(roots)

    def _pass(self, roots: Roots) -> list[Tensor | None]:
        self._anomaly = STATE.watch is not None and STATE.watch.anomaly
        starts = [edge[0] for edge, _ in roots if edge is not None]
        if self.sinks is None:
            order, self._waiting = reachable(starts)
        else:
            order = self._towards(self.sinks, starts, len(roots))
        for edge, grad in roots:
            if edge is not None and grad is not None:
                self._give(edge, grad)
        first = dict.fromkeys(starts)
        self._ready += [n for n in first if n.sequence == LAST and not self._waiting[n]]
        return self._walk(order)

    def _walk(self, order: list[TapeNode]) -> list[Tensor | None]:
        """Runs these nodes, the last one first, and AccumulateGrad nodes as they become ready."""
        ready = self._ready
        while ready or order:
            self._step(ready.popleft() if ready else order.pop())
        return self.collected

    def _towards(self, sinks: Sinks, starts: list[TapeNode], root_count: int) -> list[TapeNode]:
        """The nodes to visit, in ascending sequence; notes which of them run for the sinks."""
        self.collected, wanted = [None] * len(sinks.edges), sinks.wanted
        for i, edge in enumerate(sinks.edges):
            if edge is not None:
                wanted.setdefault(edge[0], []).append((edge[1], i))
        ends = wanted if sinks.cut else ()
        order, self._waiting = reachable(starts, ends)
        if root_count == 1:
            sinks.starts = frozenset(starts)
        sinks.useful = useful = self._nodes_to_run(wanted, order, ends)
        if sinks.accumulate:
            useful |= {node for node in wanted if node.sequence == LAST}
        return order

    def _nodes_to_run(self, wanted: Nodes, order: list[TapeNode], ends: Nodes) -> set[TapeNode]:
        """The nodes whose gradients are computed: those from which a sink can be reached."""
        useful: set[TapeNode] = set()
        for node in (*_towards_ends(self._waiting), *order):
            if node not in ends:
                for edge in node.edges:
                    if edge is not None and (edge[0] in wanted or edge[0] in useful):
                        useful.add(node)
                        break
        return useful

    @asks_for("node.origin")
    def _step(self, node: TapeNode) -> None:
        grads, sinks = self._buffers.pop(node, None), self.sinks
        useful = sinks is None or node in sinks.useful
        if grads is not None:
            if node.extra is not None and (
                sinks is None or useful or node in sinks.wanted or node in sinks.starts
            ):
                if self.recorder is not None:  # hooks of a result belong to the op that made it
                    self.recorder.run_before(node)
                node.extra.see_gradients(grads, absent=node.hears_absent)
            if sinks is not None and not sinks.accumulate:
                for index, slot in sinks.wanted.get(node, ()):
                    self.collected[slot] = grads[index]
        found: Sequence[Tensor | None] | None = None
        if not useful:
            if sinks is not None and sinks.cut:
                return
        elif grads is not None:
            if self.recorder is not None:
                self.recorder.run_before(node)
            if node.extra is not None or self._anomaly:
                found = self._run_with_attachments(node, grads)
            else:
                found = self._run(node, grads)
            if not self.retain:
                node.release()
        if found is not None:
            for edge, grad in zip(node.edges, found, strict=True):
                if edge is not None and grad is not None:
                    self._give(edge, grad)
        if self._waiting:
            self._pass_edges(node.edges_in_order)

    def _run(self, node: TapeNode, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        if self.sinks is None:
            return node.run(grads)
        return node.run_for(grads, self.sinks.wanted_of(node))

    def _run_with_attachments(
        self, node: TapeNode, grads: list[Tensor | None]
    ) -> Sequence[Tensor | None]:
        """Runs a node that has hooks, or any node in anomaly mode."""
        extra = node.extra
        if extra is not None and extra.pre:
            grads = extra.before(grads)
        if self._anomaly:
            found = run_watched(node, partial(self._run, node, grads))
        else:
            found = self._run(node, grads)
        if extra is not None and extra.post:
            return node.gathered(extra.after(node.spread(found), grads))
        return found

    def _pass_edges(self, edges: Sequence[Edge | None]) -> None:
        """Counts these edges as passed; AccumulateGrad nodes without further ones become ready."""
        waiting = self._waiting
        for edge in edges:
            if edge is not None and edge[0] in waiting:
                waiting[edge[0]] -= 1
                if not waiting[edge[0]]:
                    self._ready.append(edge[0])

    def _give(self, edge: Edge, grad: Tensor) -> None:
        node, index = edge
        if STATE.wrappers:
            grad = node.formed(index, grad)
        buffer = self._buffers.get(node)
        if buffer is None:
            buffer = self._buffers[node] = [None] * node.results()
        before = buffer[index]
        if before is None:
            buffer[index] = grad
        elif self.recorder is None:
            buffer[index] = before + grad
        else:
            buffer[index] = self.recorder.summed(add, before, grad)


def reachable(
    starts: Iterable[TapeNode], ends: Container[TapeNode] = ()
) -> tuple[list[TapeNode], dict[TapeNode, int]]:
    """(nodes reachable from `starts` without AccumulateGrad nodes, in ascending sequence; for each
    AccumulateGrad node, the number of edges into it).

    The search does not go beyond nodes of `ends`.
    """
    waiting: dict[TapeNode, int] = {}
    seen = set(starts)
    stack = list(seen)
    order: list[TapeNode] = []
    while stack:
        node = stack.pop()
        if node.sequence == LAST:
            waiting.setdefault(node, 0)
        else:
            order.append(node)
        if node in ends:
            continue
        for edge in node.edges:
            if edge is not None:
                target = edge[0]
                if target.sequence == LAST:
                    waiting[target] = waiting.get(target, 0) + 1
                if target not in seen:
                    seen.add(target)
                    stack.append(target)
    order.sort(key=attrgetter("sequence"))
    return order, waiting


def _towards_ends(accumulating: dict[TapeNode, int]) -> list[TapeNode]:
    """These AccumulateGrad nodes, each after the node to which it passes its gradient on."""
    found: dict[TapeNode, None] = {}
    for node in accumulating:
        line: dict[TapeNode, None] = {}
        while node not in found and node not in line:
            line[node] = None
            if node.edges and node.edges[0] is not None:
                node = node.edges[0][0]
        found.update(dict.fromkeys(reversed(line)))
    return list(found)


def run_backward(
    roots: Roots,
    *,
    sinks: Sequence[Edge | None] | None = None,
    cut: bool = False,
    accumulate: bool = False,
    retain_graph: bool = False,
    create_graph: bool = False,
    recorder: Recorder | None = None,
) -> list[Tensor | None]:
    """Runs a backward from (edge, gradient) pairs, with grad mode set to `create_graph`.
    Under compiled autograd (CAG-1), the tape compiler runs it."""
    if STATE.tapes is not None and STATE.recorder is None and recorder is None:
        retain = retain_graph or create_graph
        return STATE.tapes.run(roots, sinks, accumulate, retain, create_graph)
    to = None if sinks is None else Sinks(sinks, cut, accumulate)
    run = BackwardPass(to, retain_graph or create_graph, recorder or STATE.recorder)
    mode = STATE.grad_mode
    STATE.grad_mode = create_graph
    try:
        if recorder is not None or STATE.recorder is None:
            return run(roots)
        with STATE.recorder.backward_inside():
            return run(roots)
    finally:
        STATE.grad_mode = mode
