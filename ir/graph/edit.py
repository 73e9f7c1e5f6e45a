"""`GraphEdit`: a copy of a graph with torch.fx's editing methods.

Ground floor. For local changes, where users and insertion points are handier than rebuilding the
graph. Each method takes time proportional to its change, not to the graph. The original graph stays
as it was. Spec: `specs/graph.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from aotlite.ir.errors import AotliteError, ArgumentError
from aotlite.ir.graph.graph import Graph, Node, Phase, map_nodes, output_node
from aotlite.ir.graph.node_text import node_line, node_names
from aotlite.ir.graph.role import OF_BACKWARD, Role
from aotlite.ir.graph.verify import verify
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import Op

__all__ = ["GraphEdit", "call_beside"]


class GraphEdit:
    """An editable copy of a graph; `graph()` ends the edit and returns the new graph.

    Every method takes nodes of this edit; a node of the original graph stands for its copy.
    New nodes go before the output, or where `inserting_before` and `inserting_after` say.
    `graph()` and `lint()` infer the metas anew downstream of each change.

    >>> from aotlite.ir.graph.builder import Builder
    >>> from aotlite.ir.meta import tensor_meta
    >>> from aotlite.ir.op import OPS
    >>> build = Builder("negate")
    >>> x = build.placeholder(tensor_meta((2,)))
    >>> graph = build.finish([-x])
    >>> edit = graph.edit()
    >>> neg = graph.calls[0]
    >>> with edit.inserting_before(neg):
    ...     half = edit.call(OPS["mul"], (x.node, 0.5))
    >>> edit.replace_all_uses_with(neg, half)
    [<output output: None>]
    >>> edit.erase(neg)
    >>> print(edit.graph().code)
    def negate(arg_0: "f32[2]"):
        mul = ops.mul(arg_0, 0.5)
        return (mul,)
    """

    def __init__(self, graph: Graph) -> None:
        self.name = graph.name
        self.saved_sizes = graph.saved_sizes
        self._own: dict[Node, Node] = {}
        self._users: dict[Node, dict[Node, None]] = {}
        self._next: dict[Node, Node | None] = {}
        self._previous: dict[Node, Node | None] = {}
        self._first: Node | None = None
        self._last: Node | None = None
        self._last_input: Node | None = None
        self._changed: set[Node] = set()
        self._closed = False
        for node in graph.nodes:
            copy = node.with_args(map_nodes(node.args, self._own.__getitem__), node.meta)
            self._own[node] = copy
            self._link(copy, before=None)
        self._output = self._own[graph.output_node]
        self._point: Node = self._output
        self._anchor: Node | None = None

    # --- looking
    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes in order, as they are now: a loop over them may insert and erase."""
        return tuple(self)

    def __iter__(self) -> Iterator[Node]:
        node = self._first
        while node is not None:
            yield node
            node = self._next[node]

    def __len__(self) -> int:
        return len(self._next)

    @property
    def output_node(self) -> Node:
        return self._output

    @property
    def users(self) -> Mapping[Node, Mapping[Node, None]]:
        """Each node -> the nodes that take it as an argument, without repeats. Always current."""
        return MappingProxyType(self._users)

    def find(self, node: Node) -> Node:
        """The copy of a node of the original graph; a node of this edit is returned itself.

        Raises ArgumentError for a node of neither, and for one that was erased.
        """
        own = self._own.get(node, node)
        if own not in self._next:
            raise ArgumentError(f"edit: {node} is no node of graph {self.name}, expected one")
        return own

    # --- inserting
    @contextmanager
    def inserting_before(self, node: Node) -> Iterator[None]:
        """New nodes go before `node`, in the order in which they are made."""
        node = self.find(node)
        with self._inserting(node, node):
            yield

    @contextmanager
    def inserting_after(self, node: Node) -> Iterator[None]:
        """New nodes go after `node`, in the order in which they are made (FX reverses them)."""
        node = self.find(node)
        following = self._next[node]
        if following is None:
            raise ArgumentError("edit: inserting after the output, expected an earlier node")
        with self._inserting(following, node):
            yield

    @contextmanager
    def _inserting(self, point: Node, anchor: Node) -> Iterator[None]:
        before = self._point, self._anchor
        self._point, self._anchor = point, anchor
        try:
            yield
        finally:
            # The node of an outer context may have been erased meanwhile.
            self._point, self._anchor = before
            if self._point not in self._next:
                self._point = self._output

    def call(self, op: Op, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> Node:
        """Inserts a call of `op` and returns its node; the arguments are as in Python code.

        Location, scope, phase, grad mode and sequence number are those of the node that
        `inserting_before` or `inserting_after` named, else of the last node before the output.
        """
        self._must_be_open()
        bound = op.bind(map_nodes(tuple(args), self.find), kwargs or {})
        bound = map_nodes(bound, self.find)
        model = self._anchor or self._previous[self._output] or self._output
        return self._insert(call_beside(op, bound, model))

    def placeholder(self, meta: TensorMeta, role: Role) -> Node:
        """Adds an input after the others, whatever the insertion point."""
        self._must_be_open()
        phase = Phase.BACKWARD if type(role) in OF_BACKWARD else Phase.FORWARD
        node = Node("placeholder", role, meta=meta, role=role, phase=phase)
        behind = self._last_input
        self._link(node, before=self._first if behind is None else self._next[behind])
        return node

    # --- changing
    def replace_all_uses_with(
        self, old: Node, new: Node, *, delete_user_cb: Callable[[Node], bool] | None = None
    ) -> list[Node]:
        """Puts `new` wherever `old` is an argument; returns the nodes that changed.

        `delete_user_cb(user)` decides whether this user changes, as in FX. Where `new` itself takes
        `old`, it keeps it: else it would be its own operand.
        """
        self._must_be_open()
        old, new = self.find(old), self.find(new)
        changed = [
            user
            for user in self._users[old]
            if user is not new and (delete_user_cb is None or delete_user_cb(user))
        ]
        if old is not new:
            for user in changed:
                self.replace_input_with(user, old, new)
        return changed

    def replace_input_with(self, node: Node, old: Node, new: Node) -> None:
        """Puts `new` wherever `old` is an argument of `node`."""
        self._must_be_open()
        node, old, new = self.find(node), self.find(old), self.find(new)
        self._set_args(node, map_nodes(node.args, lambda value: new if value is old else value))

    def set_outputs(self, values: Iterable[object], roles: Iterable[Role]) -> None:
        """Makes the graph return these nodes, numbers or None, with one role for each."""
        self._must_be_open()
        node = output_node([map_nodes(value, self.find) for value in values], roles)
        count, wanted = len(node.args[0]), len(node.role)  # type: ignore[arg-type]
        if count != wanted:
            raise ArgumentError(
                f"edit: the number of roles is {wanted}, expected {count}, one for each output"
            )
        self._set_args(self._output, node.args)
        self._output.role = node.role

    def erase(self, node: Node) -> None:
        """Removes a node. Raises ArgumentError if it has users, or is the output."""
        self._must_be_open()
        node = self.find(node)
        if node is self._output:
            raise ArgumentError("erase: the node is the output, expected another one")
        users = self._users[node]
        if users:
            names = node_names(self)
            raise ArgumentError(
                f"erase: {names[node]} has users {', '.join(names[user] for user in users)}, "
                "expected none; replace its uses first"
            )
        self._unlink(node)

    def eliminate_dead_code(self) -> int:
        """Erases the nodes that no output needs; returns their number (TRC-10).

        It keeps inputs, impure nodes (writes, geometry changes, random draws), and all that these
        need.
        """
        self._must_be_open()
        before = len(self)
        for node in reversed(self.nodes):
            if not self._users[node] and _may_go(node):
                self._unlink(node)
        return before - len(self)

    # --- finishing
    def lint(self) -> None:
        """Raises GraphError where the graph, as it is now, breaks an invariant
        (`ir/graph/verify.py`)."""
        self._infer_again()
        verify(Graph(self.nodes, self.name), stage="edit")

    def graph(self) -> Graph:
        """Ends the edit and returns the new graph, to which the nodes belong from now on."""
        self._must_be_open()
        self._infer_again()
        self._closed = True
        return Graph(self.nodes, self.name, saved_sizes=self.saved_sizes)

    def _infer_again(self) -> None:
        """Infers the metas of changed nodes, and of their users as long as metas change."""
        if not self._changed:
            return
        for node in self:
            if node in self._changed and node.op == "call":
                meta = self._inferred(node)
                if meta != node.meta:
                    node.meta = meta
                    self._changed.update(self._users[node])
        self._changed.clear()

    def _inferred(self, node: Node) -> Any:
        try:
            return node.target.infer(node.args)
        except AotliteError as error:
            error.add_note(f"node: {node_line(node, node_names(self))}")
            raise

    # --- the linked list and the users
    def _must_be_open(self) -> None:
        if self._closed:
            raise ArgumentError(
                f"edit: the edit of graph {self.name} has ended with graph(), expected an open "
                "one; edit that graph instead"
            )

    def _insert(self, node: Node) -> Node:
        self._link(node, before=self._point)
        return node

    def _link(self, node: Node, *, before: Node | None) -> None:
        previous = self._last if before is None else self._previous[before]
        self._previous[node], self._next[node] = previous, before
        if previous is None:
            self._first = node
        else:
            self._next[previous] = node
        if before is None:
            self._last = node
        else:
            self._previous[before] = node
        if node.op == "placeholder":
            self._last_input = node
        self._users[node] = {}
        for value in node.inputs():
            self._users[value][node] = None

    def _unlink(self, node: Node) -> None:
        previous, following = self._previous.pop(node), self._next.pop(node)
        if previous is None:
            self._first = following
        else:
            self._next[previous] = following
        if following is not None:
            self._previous[following] = previous
        if node is self._last_input:
            is_input = previous is not None and previous.op == "placeholder"
            self._last_input = previous if is_input else None
        if node is self._point:
            self._point = following or self._output
        del self._users[node]
        for value in set(node.inputs()):
            del self._users[value][node]

    def _set_args(self, node: Node, args: tuple[object, ...]) -> None:
        for value in set(node.inputs()):
            del self._users[value][node]
        node.args = args
        for value in node.inputs():
            self._users[value][node] = None
        self._changed.add(node)


def _may_go(node: Node) -> bool:
    if node.op == "call":
        pure: bool = node.target.pure
        return pure
    return node.op == "get_attr"


def call_beside(op: Op, args: tuple[Any, ...], model: Node) -> Node:
    """A new call with the records of another node: location, scope, phase, grad mode, sequence."""
    return Node(
        "call",
        op,
        args,
        meta=op.infer(args),
        grad_mode=model.grad_mode,
        phase=model.phase,
        sequence=model.sequence,
        location=model.location,
        scope=model.scope,
    )
