"""Splits a graph in two: the fold graph, which frozen inputs alone decide, and the rest.

    graph        (x, w) -> x @ (w * 2).t()
    fold graph   (w) -> w * 2                      run when w changes
    rest         (x, w, folded_0) -> x @ folded_0.t()      run at each call

A node belongs to the cone of a frozen input if it depends on it and on nothing that is not frozen.
Views stay in the rest: they cost nothing, and the memory that they show is folded. Input: a pure
graph, with closing copies or without. Rules: FRZ-1, FRZ-2, FRZ-3. Spec: `specs/freezing.md`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import attrs

from aotlite.ir.graph import Graph, Node, map_nodes, output_node
from aotlite.ir.graph.builder import Builder
from aotlite.ir.graph.role import FROM_BACKWARD, OF_BACKWARD, Folded, MutatedInput, Output, Saved
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.meta import TensorMeta, table_in
from aotlite.ir.op import Cost, InplaceOp, Op
from aotlite.ir.ops.shape.copies import CLONE, RESTRIDE
from aotlite.ir.ops.structure import GETITEM

SMALL = 1 << 20
"""Bytes of a result that is folded whatever it is made of (FRZ-3)."""
GROWTH = 4
"""How many times the bytes of the frozen tensors that it is made of a larger result may have."""


@attrs.frozen(eq=False, repr=False)
class Fold:
    """The two graphs that a graph is split into."""

    graph: Graph
    """The fold graph: from frozen inputs to folded values."""
    rest: Graph
    """The inputs `Folded` come first, in the order of the fold graph's results."""
    refused: tuple[tuple[Node, str], ...]
    """The ops on frozen values alone that are not folded, with the reason."""


def split(graph: Graph, frozen: Collection[object], *, always: bool = False) -> Fold | None:
    """The fold of a forward, where the inputs with these roles are frozen; None if no op folds,
    unless a fold is `always` wanted. An input that the graph writes is not frozen."""
    if not is_forward(graph):
        return None
    cone = Cone(graph, frozen)
    rest, frontier = _taken(graph, cone)
    if not frontier and not always:
        return None
    return Fold(_fold_graph(graph, cone, frontier), _rest(graph, rest, frontier), cone.refusals)


def marked(graph: Graph, frozen: Collection[object]) -> Graph:
    """The joint graph whose foldable values are not recomputed: the backward is given them."""
    if not any(type(role) in FROM_BACKWARD for role in graph.output_roles):
        return graph
    cone = Cone(graph, frozen)
    _, frontier = _taken(graph, cone)
    new: dict[Node, Node] = {}
    nodes = []
    for node in graph.nodes:
        args = map_nodes(node.args, lambda each: new.get(each, each))
        if node in frontier or args is not node.args:
            changed = node.with_args(args, node.meta)
            if node in frontier and node.recompute is None:
                changed.recompute = False
            new[node] = changed
        nodes.append(new.get(node, node))
    return attrs.evolve(graph, nodes=tuple(nodes))


def written_inputs(graph: Graph) -> set[object]:
    """The roles of inputs to which the graph, or the call after it, gives other bytes."""
    written = {role.of for role, _ in graph.outputs_with(MutatedInput)}
    for node in graph.calls:
        if isinstance(node.target, InplaceOp):
            written.add(storage_root(node).role)
    return written


def is_forward(graph: Graph) -> bool:
    """Whether a graph is a forward, whose inputs are those of the call."""
    backward = [node for node in graph.placeholders if type(node.role) in OF_BACKWARD]
    return not backward and not any(type(role) in FROM_BACKWARD for role in graph.output_roles)


class Cone:
    """The nodes of a graph that frozen inputs and constants alone decide."""

    def __init__(self, graph: Graph, frozen: Collection[object]) -> None:
        self._refused: dict[Node, str] = {}
        self.inputs: dict[Node, frozenset[Any]] = {}
        """For each node of the cone the roles of the frozen inputs that it depends on."""
        self._bytes: dict[Any, int] = {}
        written = written_inputs(graph)
        for node in graph.nodes:
            if node.op == "placeholder" and node.role in frozen and node.role not in written:
                if _is_fixed(node):
                    self.inputs[node] = frozenset((node.role,))
                    self._bytes[node.role] = _bytes_of(node)
            elif node.op == "get_attr":
                self.inputs[node] = frozenset()
            elif node.op == "call":
                self._add(node)

    @property
    def refusals(self) -> tuple[tuple[Node, str], ...]:
        """The ops on members alone that are no members, with the reason."""
        return tuple(self._refused.items())

    def _add(self, node: Node) -> None:
        operands = node.inputs()
        if not all(each in self.inputs for each in operands):
            return
        roles = frozenset[Any]().union(*[self.inputs[each] for each in operands])
        reason = self._why_not(node, roles)
        if not reason:
            self.inputs[node] = roles
        elif roles:
            self._refused[node] = reason

    def _why_not(self, node: Node, roles: frozenset[Any]) -> str:
        op: Op = node.target
        if not op.pure:
            return "it has an effect"
        if op.cost is Cost.RANDOM:
            return "it draws random numbers"
        if not _is_fixed(node):
            return "its sizes are symbols"
        size = 0 if op.views else _bytes_of(node)
        given = sum([self._bytes[role] for role in roles])
        if size > max(SMALL, GROWTH * given):
            return f"its result has {size} bytes, made of {given} bytes"
        return ""


def _is_fixed(node: Node) -> bool:
    return table_in((node.meta, *node.args)) is None


def _bytes_of(node: Node) -> int:
    metas: Any = node.meta if type(node.meta) is tuple else (node.meta,)
    return sum([meta.span * meta.dtype.itemsize for meta in metas])


def _taken(graph: Graph, cone: Cone) -> tuple[set[Node], dict[Node, int]]:
    """The nodes of the rest, and the folded values that it reads, each with its number."""
    rest: set[Node] = set()
    frontier: dict[Node, int] = {}

    def take(node: Node) -> None:
        """Puts the memory of a value into the frontier, and its views into the rest."""
        while node not in rest:
            root = storage_root(node)
            if node is root and _is_folded(node):
                frontier.setdefault(node, len(frontier))
                return
            rest.add(node)
            if node.op != "call" or not node.inputs():
                return
            node = node.inputs()[0]  # a view's operand

    for node in graph.nodes:
        if node not in cone.inputs:
            rest.add(node)
            for each in node.inputs():
                if each in cone.inputs:
                    take(each)
        elif node.op == "placeholder":
            rest.add(node)
    for value in graph.outputs:
        if type(value) is Node and value in cone.inputs:
            take(value)
    return rest, frontier


def _is_folded(node: Node) -> bool:
    """Whether it computes something: not an input, a constant, or the first op of all, as `ones`.
    Backends put such numbers into kernels."""
    return node.op == "call" and bool(node.inputs())


def _fold_graph(graph: Graph, cone: Cone, frontier: dict[Node, int]) -> Graph:
    needed = set(frontier)
    for node in reversed(graph.nodes):
        if node in needed:
            needed.update(node.inputs())
    nodes = [node for node in graph.nodes if node in needed]
    nodes.sort(key=lambda node: node.op != "placeholder")
    closing = output_node(frontier, map(Output, frontier.values()))
    return Graph((*nodes, closing), f"{graph.name}_fold")


def _rest(graph: Graph, rest: set[Node], frontier: dict[Node, int]) -> Graph:
    build = Builder(graph.name)
    new: dict[Node, Node] = {}
    for node, number in frontier.items():
        role = Folded(number)
        new[node] = build.add(Node("placeholder", role, meta=node.meta, role=role, origin=node))
    for node in graph.nodes[:-1]:
        if node in rest:
            args = map_nodes(node.args, lambda each: new.get(each, each))
            if args is not node.args:
                new[node] = node.with_args(args, node.meta)
            build.nodes.append(new.get(node, node))
    copies = _Copies(build, new, frontier)
    pairs = zip(graph.output_roles, graph.outputs, strict=True)
    values = [copies.of(role, value) for role, value in pairs]
    made = build.finish(values, graph.output_roles)
    return attrs.evolve(made, exported=graph.exported, saved_sizes=graph.saved_sizes)


class _Copies:
    """Results on folded memory: the user may write them, so that each call gives copies."""

    def __init__(self, build: Builder, new: dict[Node, Node], frontier: Collection[Node]) -> None:
        self._build = build
        self._new = new
        self._frontier = frontier
        self._made: dict[Node, Node] = {}

    def of(self, role: object, value: Any) -> Any:
        """The result in the place of `value`: two on one memory stay so."""
        if type(value) is not Node:
            return value
        if type(role) is Saved or storage_root(value) not in self._frontier:
            return self._new.get(value, value)
        return self._copied(value)

    def _copied(self, value: Node) -> Node:
        if value in self._made:
            return self._made[value]
        self._build.source = value
        if value in self._frontier:
            made = self._copy(self._new[value])
        else:
            args = map_nodes(value.args, self._copied)
            made = value.with_args(args, value.meta)
            self._build.nodes.append(made)
        self._made[value] = made
        return made

    def _copy(self, folded: Node) -> Node:
        meta: TensorMeta = folded.meta  # type: ignore[assignment]
        if meta.contiguous:
            return self._build.emit(CLONE, (folded,))
        return self._build.emit(RESTRIDE, (folded, meta.stride))


def computes(node: Node) -> bool:
    """Whether a node is an op that computes: views and `getitem` cost nothing."""
    return node.op == "call" and not node.target.views and node.target is not GETITEM


def thrifty_order(graph: Graph, nodes: Sequence[Node]) -> list[Node]:
    """These nodes of a fold graph, each behind its operands, in an order that needs little memory
    beside the inputs, where an input is freed behind its last user.

    Whole cones follow each other: first those that free more than they leave, those with the lowest
    peak first; then those whose peak is highest over what they leave. For trees it is the best of
    the orders in which whole subtrees follow each other.
    """
    given = set(nodes)
    cost: dict[Node, tuple[int, int]] = {}
    """For each node the peak of its cone, and what is left behind it: both in bytes, beside the
    inputs."""

    def ordered(several: Iterable[Node]) -> list[Node]:
        return sorted(dict.fromkeys(several), key=lambda node: _rank(*cost[node]))

    for node in nodes:
        peak = left = 0
        operands = [each for each in node.inputs() if each in given]
        for each in ordered(operands):
            peak, left = max(peak, left + cost[each][0]), left + cost[each][1]
        size = _bytes_of(node) if computes(node) else 0
        left += size
        peak = max(peak, left)
        freed = [each for each in dict.fromkeys(node.inputs()) if len(graph.users[each]) == 1]
        left -= sum(
            [_bytes_of(each) for each in freed if each.op == "placeholder" or computes(each)]
        )
        cost[node] = peak, left
    done: dict[Node, None] = {}
    users = {node: [each for each in graph.users[node] if each in given] for node in nodes}
    for root in ordered([node for node in nodes if not users[node]]):
        stack = [root]
        while stack:
            operands = [n for n in stack[-1].inputs() if n in given and n not in done]
            if operands:
                stack.append(ordered(operands)[0])
            else:
                done[stack.pop()] = None
    return list(done)


def _rank(peak: int, left: int) -> tuple[bool, int]:
    return left > 0, peak if left <= 0 else left - peak


def cone_of(graph: Graph, role: object) -> Iterator[Node]:
    """The ops of a fold graph that compute and depend on the input with this role, in order."""
    reached = {node for node in graph.placeholders if node.role == role}
    for node in graph.calls:
        if not reached.isdisjoint(node.inputs()):
            reached.add(node)
            if computes(node):
                yield node
