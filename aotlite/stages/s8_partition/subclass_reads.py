"""The inputs that a double backward may read in a function with wrapper subclasses.

The formulas of ops on wrappers declare which wrappers they read; the class may read any part of
those. So this analysis runs on the imperative joint graph, before stage 5. It is insensitive to the
order of ops: values that share memory are one group, and a wrapper is in the group of its parts.
Used by the pipeline, for `double_backward_saves`. Rule: DBL-2. Spec: `specs/higher_orders.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any

from aotlite.eager.subclass.protocol import inner_tensors, is_wrapper
from aotlite.ir.graph import Graph, Node, Phase
from aotlite.ir.graph.role import Gradient, Hidden, Part, Primal, Role
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.ops.views.view_ops import DETACH
from aotlite.stages.records.capture import Captured
from aotlite.stages.shared.formula_reads import read_by_formulas, results_of_calls


class InputReads:
    """The inputs that derivatives of a backward may read, whichever values the forward saves."""

    def __init__(self, graph: Graph, captured: Captured, wrappers: Mapping[Node, Any]) -> None:
        memory = _Memory(graph, wrappers)
        memory.flow({given.role for given in captured.inputs if given.requires_grad})
        self._behind = memory.behind
        self._inputs = {node.role: memory.of(node) for node in graph.placeholders}
        self._read = [(memory.of(value), memory.values(value)) for value in memory.read()]
        self._found: tuple[Set[Node], Set[Any]] | None = None

    def __call__(self, saved: Set[Node], role: Role) -> bool:
        """Whether an input of the dense graph may be read besides the `saved` values.

        True of inputs that are not the caller's tensors, such as a seed, and of all dense hidden
        inputs: a wrapper's class may read those anywhere.
        """
        whole = role.whole if isinstance(role, Part) else role
        if not isinstance(whole, (Primal, Hidden)) or isinstance(role, Hidden):
            return True
        if self._found is None or self._found[0] is not saved:
            self._found = saved, self._roles(saved)
        return role in self._found[1]

    def _roles(self, saved: Set[Node]) -> Set[object]:
        """The roles of inputs, wrappers among them, on which anything depends that is read and
        that is not among the saved values, with all its parts."""
        missing = {group for group, values in self._read if not (values and values <= saved)}
        read = self._behind(missing)
        return {role for role, group in self._inputs.items() if group in read}


def _whole(role: object) -> set[Any]:
    """The role of an input, and of the wrappers that it is a part of."""
    return {role, *_whole(role.of)} if isinstance(role, Part) else {role}


class _Memory:
    """The values of a graph in groups that share memory (union-find), and their dependencies."""

    def __init__(self, graph: Graph, wrappers: Mapping[Node, Any]) -> None:
        self.graph = graph
        self.wrappers = wrappers
        self._writes = any(_writes(node) for node in graph.calls)
        self._above: dict[object, object] = {}
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

    def _find(self, key: object) -> object:
        while key in self._above:
            key = self._above[key]
        return key

    def _join(self, one: object, other: object) -> None:
        one, other = self._find(one), self._find(other)
        if one != other:
            self._above[one] = other

    def of(self, node: Node) -> Any:
        """The representative of the group of a value."""
        return self._find(self._key(node))

    def flow(self, requires: Set[object]) -> None:
        """Marks the values that may require grad, if inputs of these roles do."""
        found = self.differentiable
        found.update(n for n in self.graph.placeholders if _whole(n.role) & requires)
        writes = self._writes
        groups = {self.of(node) for node in found}
        for _ in self.graph.calls if writes else (None,):
            before = len(groups)
            for node in self.graph.calls:
                if writes and self.of(node) in groups or _passes(node, found):
                    found.add(node)
                    groups.add(self.of(node))
            if len(groups) == before:
                return

    def values(self, node: Node) -> frozenset[Node]:
        """The dense values that make up this one; none if memory is written, where a value is not
        what it was."""
        return frozenset() if self._writes else frozenset(self._dense(node))

    def _dense(self, node: Node) -> Iterator[Node]:
        wrapper = self.wrappers.get(node)
        if wrapper is None or not is_wrapper(wrapper):
            yield node
            return
        for part in inner_tensors(wrapper).values():
            yield from self._dense(part.value) if type(part.value) is Node else (node,)

    def behind(self, groups: set[object]) -> set[Role]:
        """The groups that these depend on, themselves among them."""
        return _reached(groups, self._from)

    def read(self) -> Iterator[Node]:
        """The values that the backward reads, and those that gradient formulas on its way read."""
        late: set[Node] = set()
        results = results_of_calls(self.graph)
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
                    yield from read_by_formulas(node, self.differentiable, results)
                elif node.grad_mode:
                    yield from inputs
        for _, value in self.graph.outputs_with(Gradient):
            if type(value) is Node and self._writes:
                yield value
            elif type(value) is Node:  # it may have parts that the forward made
                yield from [each for each in self._dense(value) if each not in late]


def _writes(node: Node) -> bool:
    return bool(getattr(node.target, "writes", ()))


def _passes(node: Node, differentiable: set[Node]) -> bool:
    """Whether the result of a call requires grad, in a graph without writes."""
    return node.target is not DETACH and not differentiable.isdisjoint(node.inputs())


def _reached(groups: set[Any], edges: Mapping[Role, set[object]]) -> set[Role]:
    found, stack = set(groups), list(groups)
    while stack:
        for each in edges.get(stack.pop(), ()):
            if each not in found:
                found.add(each)
                stack.append(each)
    return found
