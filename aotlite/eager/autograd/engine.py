"""The engine: carries gradients from results back along the tape. Rules: TEN-27, TEN-28.

Iterative, in the order of falling sequence numbers among the nodes whose incoming edges are all
served. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from aotlite.eager.autograd.tape import Edge, TapeNode
from aotlite.eager.state import STATE

Before = Callable[[TapeNode], None]


@attrs.define
class Run:
    """One pass over the tape.

    `sinks` are edges whose gradients are collected instead of accumulated in leaves. With `cut`, a
    sink's node is never entered: what lies behind it is not this pass's business.
    """

    sinks: Sequence[Edge | None] | None = None
    cut: bool = False
    retain: bool = False
    before: Before | None = None
    """Called with each node before it runs."""
    collected: list[Any] = attrs.field(init=False, factory=list)
    _waiting: dict[int, int] = attrs.field(init=False, factory=dict)
    _buffers: dict[int, list[Any]] = attrs.field(init=False, factory=dict)
    _wanted: dict[tuple[int, int], list[int]] = attrs.field(init=False, factory=dict)
    _useful: set[int] | None = attrs.field(init=False, default=None)
    _ready: list[tuple[int, int, TapeNode]] = attrs.field(init=False, factory=list)

    def __call__(self, roots: Sequence[tuple[Edge | None, Any]]) -> list[Any]:
        """Runs from (edge, gradient) pairs; gives each sink's gradient, None where none arrived."""
        if self.sinks is not None:
            self.collected = [None] * len(self.sinks)
            for i, edge in enumerate(self.sinks):
                if edge is not None:
                    self._wanted.setdefault((id(edge[0]), edge[1]), []).append(i)
        starts = [edge[0] for edge, _ in roots if edge is not None]
        self._count(starts)
        for edge, grad in roots:
            if edge is not None:
                self._give(edge, grad)
        for node in {id(start): start for start in starts}.values():
            if not self._waiting.get(id(node)):
                self._push(node)
        while self._ready:
            self._step(heapq.heappop(self._ready)[2])
        return self.collected

    def _push(self, node: TapeNode) -> None:
        heapq.heappush(self._ready, (-node.sequence, id(node), node))

    def _count(self, starts: list[TapeNode]) -> None:
        """How many edges lead into each reachable node, and which nodes lead to a sink."""
        waiting = self._waiting
        seen: set[int] = set()
        order: list[TapeNode] = []
        stack = list(starts)
        ends = {node for node, _ in self._wanted} if self.cut else frozenset()
        while stack:
            node = stack.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            order.append(node)
            if id(node) in ends:
                continue
            for edge in node.edges:
                if edge is not None:
                    waiting[id(edge[0])] = waiting.get(id(edge[0]), 0) + 1
                    stack.append(edge[0])
        if self.sinks is not None:
            self._useful = _leading_to({node for node, _ in self._wanted}, order, ends)

    def _step(self, node: TapeNode) -> None:
        key = id(node)
        grads = self._buffers.pop(key, None)
        if grads is None:
            grads = [None] * node.results()
        if self._wanted:
            for index in range(len(grads)):
                for slot in self._wanted.get((key, index), ()):
                    self.collected[slot] = grads[index]
        if self._useful is not None and key not in self._useful:
            if not node.edges or self.cut:
                return
            found: Sequence[Any] = [None] * len(node.edges)
        elif all(grad is None for grad in grads):
            found = [None] * len(node.edges)
        else:
            if self.before is not None:
                self.before(node)
            found = node.run(grads)
            if not self.retain:
                node.release()
        for edge, grad in zip(node.edges, found, strict=True):
            if edge is not None:
                self._give(edge, grad)
                target = id(edge[0])
                self._waiting[target] -= 1
                if not self._waiting[target]:
                    self._push(edge[0])

    def _give(self, edge: Edge, grad: Any) -> None:
        if grad is None:
            return
        node, index = edge
        buffer = self._buffers.get(id(node))
        if buffer is None:
            buffer = self._buffers[id(node)] = [None] * node.results()
        before = buffer[index]
        buffer[index] = grad if before is None else before + grad


def _leading_to(targets: set[int], order: list[TapeNode], ends: Any) -> set[int]:
    """The nodes of which some edge leads, over any number of steps, to a target."""
    into: dict[int, list[TapeNode]] = {}
    for node in order:
        if id(node) not in ends:
            for edge in node.edges:
                if edge is not None:
                    into.setdefault(id(edge[0]), []).append(node)
    useful: set[int] = set()
    stack = list(targets)
    while stack:
        for node in into.get(stack.pop(), ()):
            if id(node) not in useful:
                useful.add(id(node))
                stack.append(id(node))
    return useful


def run_backward(
    roots: Sequence[tuple[Edge | None, Any]],
    *,
    sinks: Sequence[Edge | None] | None = None,
    cut: bool = False,
    retain_graph: bool = False,
    create_graph: bool = False,
    before: Before | None = None,
) -> list[Any]:
    """Runs the tape backwards from (edge, gradient) pairs with grad mode set to `create_graph`."""
    mode = STATE.grad_mode
    STATE.grad_mode = create_graph
    try:
        return Run(sinks, cut, retain_graph or create_graph, before)(roots)
    finally:
        STATE.grad_mode = mode
