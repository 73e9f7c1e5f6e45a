"""Which inputs derivatives of a backward of wrappers may read.

The tape's nodes are of ops on wrappers, and read what the formulas of these ops say: of a wrapper
that is read all parts may be, by what its class computes. So the joint graph is asked before the
wrappers are taken out of it. It is imperative: what shares memory is one thing here, and a wrapper
is one with its parts, so that no order of reads and writes counts.
Used by the pipeline, for `double_backward_saves`. Rule: DBL-2. Spec: `specs/higher_orders.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any

from aotlite.eager.subclass.protocol import inner_tensors, is_wrapper
from aotlite.ir.graph import Graph, Node, Phase
from aotlite.ir.graph.role import Gradient, Hidden, Part, Primal
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.ops.views.view_ops import DETACH
from aotlite.stages.records.capture import Captured
from aotlite.stages.s8_partition.double_backward_saves import read_by_formulas


def inputs_read(graph: Graph, captured: Captured, wrappers: Mapping[Node, Any]) -> frozenset[Any]:
    """The roles of inputs, wrappers among them, from which everything follows that is read.

    Of hidden inputs that are no wrappers all are: what a class computes may read them anywhere.
    """
    memory = _Memory(graph, wrappers)
    requires = {given.role for given in captured.inputs if given.requires_grad}
    inputs = {node.role: memory.of(node) for node in graph.placeholders}
    memory.flow(requires)
    read = memory.behind({memory.of(value) for value in memory.read()})
    plain = {r for r, _ in inputs.items() if isinstance(r, Hidden)}
    return frozenset(plain | {role for role, group in inputs.items() if group in read})


def _whole(role: Any) -> set[Any]:
    """The role of an input, and of the wrappers that it is a part of."""
    return {role, *_whole(role.of)} if isinstance(role, Part) else {role}


def is_read(role: Any, read: frozenset[Any]) -> bool:
    """Whether an input of the dense graph is among those that are read, or is none of the
    caller's.
    """
    whole = role.whole if isinstance(role, Part) else role
    return not isinstance(whole, (Primal, Hidden)) or role in read


class _Memory:
    """The values of a graph by what they share memory with."""

    def __init__(self, graph: Graph, wrappers: Mapping[Node, Any]) -> None:
        self.graph = graph
        self._above: dict[Any, Any] = {}
        self._from: dict[Any, set[Any]] = {}
        self.differentiable: set[Node] = set()
        for node in graph.placeholders:
            if isinstance(node.role, Part):
                self._join(node.role, node.role.of)
        for node, wrapper in wrappers.items():
            for part in inner_tensors(wrapper).values() if is_wrapper(wrapper) else ():
                if type(part.value) is Node:
                    self._join(self._key(node), self._key(part.value))
        for node in graph.calls:
            if node.target is GETITEM or _writes(node):
                self._join(self._key(node), self._key(node.inputs()[0]))
        for node in graph.calls:
            behind = self._from.setdefault(self.of(node), set())
            behind.update(map(self.of, node.inputs()))

    def _key(self, node: Node) -> Any:
        root = storage_root(node)
        return root.role if root.op == "placeholder" else root

    def _find(self, key: Any) -> Any:
        while key in self._above:
            key = self._above[key]
        return key

    def _join(self, one: Any, other: Any) -> None:
        one, other = self._find(one), self._find(other)
        if one != other:
            self._above[one] = other

    def of(self, node: Node) -> Any:
        """What stands for all that shares memory with a value."""
        return self._find(self._key(node))

    def flow(self, requires: Set[Any]) -> None:
        """Notes what may have a history, where inputs of these roles have one."""
        found = self.differentiable
        found.update(n for n in self.graph.placeholders if _whole(n.role) & requires)
        writes = any(_writes(node) for node in self.graph.calls)
        groups = {self.of(node) for node in found}
        for _ in self.graph.calls if writes else (None,):
            before = len(groups)
            for node in self.graph.calls:
                if writes and self.of(node) in groups or _passes(node, found):
                    found.add(node)
                    groups.add(self.of(node))
            if len(groups) == before:
                return

    def behind(self, groups: set[Any]) -> set[Any]:
        """What these are computed from, themselves among it."""
        return _reached(groups, self._from)

    def read(self) -> Iterator[Node]:
        """What the backward reads, and the formulas of what it passes."""
        late: set[Node] = set()
        leaving = [v for v in (*self.graph.outputs, *self.graph.placeholders) if type(v) is Node]
        live = self.behind(set(map(self.of, leaving)))
        for node in self.graph.nodes[:-1]:
            inputs = node.inputs()
            is_tangent = node.op == "placeholder" and node.phase is Phase.BACKWARD
            if is_tangent or not late.isdisjoint(inputs) or node.phase is Phase.BACKWARD:
                late.add(node)
                yield from [value for value in inputs if value not in late]
            elif self.of(node) in live and not self.differentiable.isdisjoint(inputs):
                if not _writes(node):
                    yield from read_by_formulas(node, self.differentiable)
                elif node.grad_mode:
                    yield from inputs
        for _, value in self.graph.outputs_with(Gradient):
            if type(value) is Node:
                yield value


def _writes(node: Node) -> bool:
    return bool(getattr(node.target, "writes", ()))


def _passes(node: Node, differentiable: set[Node]) -> bool:
    """Whether a history goes on in the result of a call, where nothing is written."""
    return node.target is not DETACH and not differentiable.isdisjoint(node.inputs())


def _reached(groups: set[Any], edges: Mapping[Any, set[Any]]) -> set[Any]:
    found, stack = set(groups), list(groups)
    while stack:
        for each in edges.get(stack.pop(), ()):
            if each not in found:
                found.add(each)
                stack.append(each)
    return found
