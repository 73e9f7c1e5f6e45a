"""`LinkedEdit`: a `GraphEdit` whose nodes move, have an order, and are followed by their metas.

`aotlite.fx.Graph` is laid over it. A node may stand behind one that takes it for a while, until a
pass has moved it; a cycle is refused at once. Rules: FXG-3, FXG-7. Spec: `specs/fx.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from aotlite.fx.core.words import Args
from aotlite.ir.errors import AotliteError
from aotlite.ir.graph import Graph, Node, map_nodes
from aotlite.ir.graph.edit import GraphEdit
from aotlite.ir.graph.verify import verify
from aotlite.ir.op import Op

__all__ = ["LinkedEdit"]

_GAP = 1 << 32
_END = 1 << 200
"""The label of the output, behind all others."""


class LinkedEdit(GraphEdit):
    """An edit that knows neighbors and order, and ends only with its `aotlite.fx.Graph`."""

    def __init__(self, graph: Graph) -> None:
        self._labels: dict[Node, int] = {}
        """Each node -> a number that grows along the list."""
        self._is_disordered = False
        """Whether a node may stand in front of one of its operands."""
        super().__init__(graph)
        self.exported = graph.exported

    # --- neighbors and order
    @property
    def first(self) -> Node:
        """The first node; it is the output where there is no other one."""
        assert self._first is not None
        return self._first

    def following(self, node: Node) -> Node | None:
        """The next node of the list."""
        return self._next[node]

    def preceding(self, node: Node) -> Node | None:
        """The node before."""
        return self._previous[node]

    def label(self, node: Node) -> int:
        """A number that is larger for later nodes."""
        return self._labels[node]

    def owns(self, node: Node) -> bool:
        """Whether the node is in the list."""
        return node in self._next

    @property
    def behind_inputs(self) -> Node:
        """The first node that is no placeholder."""
        node = self._first if self._last_input is None else self._next[self._last_input]
        assert node is not None
        return node

    def _link(self, node: Node, *, before: Node | None) -> None:
        super()._link(node, before=before)
        self._put_label(node)

    def _put_label(self, node: Node) -> None:
        if node.op == "output":
            self._labels[node] = _END
            return
        previous, following = self._previous[node], self._next[node]
        low = 0 if previous is None else self._labels[previous]
        high = low + 2 * _GAP if following is None else self._labels[following]
        if high - low < 2:
            self._label_anew()
        else:
            self._labels[node] = min(low + _GAP, (low + high) // 2)

    def _label_anew(self) -> None:
        label = 0
        for node in self:
            label += _GAP
            self._labels[node] = _END if node.op == "output" else label

    # --- changing
    def insert(self, node: Node, before: Node) -> Node:
        """Puts a new node into the list."""
        self._link(node, before=before)
        self._mark_order(node)
        if node.op == "placeholder":
            self._find_last_input()
        return node

    def move(self, node: Node, before: Node) -> None:
        """Takes a node to another place of the list; its users stay."""
        if node is before or self._next[node] is before:
            return
        users = self._users[node]
        self._unlink(node)
        self._link(node, before=before)
        self._users[node] = users
        self._is_disordered = True
        if node.op == "placeholder":
            self._find_last_input()

    def drop(self, node: Node) -> None:
        """Takes a node that nobody uses out of the list."""
        self._unlink(node)
        self._changed.discard(node)
        del self._labels[node]

    def set_call(self, node: Node, op: Op, args: Args) -> None:
        """Makes a node the call of an op on canonical arguments."""
        node.target = op
        self._set_args(node, args)
        self._mark_order(node)

    def set_results(self, values: Args, roles: Args) -> None:
        """Makes the graph return these values under these roles."""
        self._set_args(self._output, (values,))
        self._output.role = roles

    def is_needed(self, node: Node, args: Args) -> bool:
        """Whether a node is needed to compute one of these arguments."""
        mine = self._labels[node]
        found: list[Node] = []
        map_nodes(args, found.append)
        late = [each for each in found if self._is_disordered or self._labels[each] >= mine]
        seen: set[Node] = set()
        while late:
            value = late.pop()
            if value is node:
                return True
            if value not in seen:
                seen.add(value)
                late += value.inputs()
        return False

    def disordered(self) -> Iterator[tuple[Node, Node]]:
        """(node, operand) for each operand behind its node."""
        for node in self if self._is_disordered else ():
            for value in node.inputs():
                if self._labels[value] > self._labels[node]:
                    yield node, value
        self._is_disordered = False

    def _mark_order(self, node: Node) -> None:
        mine = self._labels[node]
        if any(self._labels[value] > mine for value in node.inputs()):
            self._is_disordered = True

    def _find_last_input(self) -> None:
        last, node = None, self._first
        while node is not None and node.op == "placeholder":
            last, node = node, self._next[node]
        self._last_input = last

    # --- metas
    def refresh(self) -> None:
        """Infers the metas behind each change, as far as the operands fit by now."""
        waiting = [(self._labels[node], id(node), node) for node in self._changed]
        heapify(waiting)
        unfit: set[Node] = set()
        while waiting:
            _, _, node = heappop(waiting)
            if node.op != "call":
                continue
            try:
                meta = None if unfit.intersection(node.inputs()) else node.target.infer(node.args)
            except (AotliteError, IndexError, TypeError):
                meta = None
            if meta is None:
                unfit.add(node)  # `checked` says why, where it is still so in the end
                continue
            unfit.discard(node)
            if meta != node.meta:
                node.meta = meta
                for user in self._users[node]:
                    heappush(waiting, (self._labels[user], id(user), user))
        self._changed = unfit

    def checked(self) -> Graph:
        """A graph of copies of the nodes, verified. Raises GraphError, and what a meta rule
        raises."""
        self._infer_again()
        made = self.snapshot()
        verify(made, stage="fx")
        return made

    def snapshot(self) -> Graph:
        """A graph of copies of the nodes, as they are."""
        own: dict[Node, Node] = {}
        nodes = []
        for node in self:
            args = map_nodes(node.args, lambda value: own.get(value, value))
            own[node] = copy = node.with_args(args, node.meta)
            nodes.append(copy)
        return Graph(tuple(nodes), self.name, exported=self.exported, saved_sizes=self.saved_sizes)
