"""`Graph` and `Node`: the program that every stage reads and every pass rebuilds.

Ground floor. A graph is a tuple of nodes in execution order; the last one is the output node. The
words are torch.fx's (placeholder, get_attr, call, output; args, users, lint):

    def double(arg_0: "f32[2]"):     Node("placeholder", Argument(0), meta=f32[2])   # arg_0
        mul = ops.mul(arg_0, 2.0)    Node("call", ops.mul, (arg_0, 2.0), f32[2])     # mul
        return (mul,)                Node("output", "output", ((mul,),), role=(Output(0),))

Two things differ from FX. A node's target is an `Op`, and its meta a `TensorMeta`. And a graph is
not edited in place: a pass returns a new graph, which may share nodes with the old one. So a node
knows neither its graph nor its users (`Graph.users` does), and FX's editing methods are on the copy
that `Graph.edit()` makes (`ir/graph/edit.py`). Spec: `specs/graph.md`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import is_
from typing import TYPE_CHECKING, Any

import attrs

from aotlite.ir.errors import ArgumentError, GraphError
from aotlite.ir.graph.role import Role
from aotlite.ir.meta import TensorMeta
from aotlite.ir.provenance.location import Location
from aotlite.ir.provenance.scope import NO_TAGS, SUM, Scope

Result = TensorMeta | tuple[TensorMeta, ...] | None


class Phase(enum.Enum):
    """Which half of the joint graph a node was recorded in."""

    FORWARD = "forward"
    BACKWARD = "backward"


@attrs.frozen(eq=False)
class Constant:
    """The target of a get_attr node: an array that is part of the program."""

    name: str
    value: Any
    """An array of the device's array library; never written."""


@attrs.define(eq=False, repr=False)
class Node:
    """One step of a graph. Never changed once it is in a graph; only a `GraphEdit` changes copies.

    `op` is FX's kind: 'placeholder', 'get_attr', 'call' or 'output'. `target` is, in this order,
    the role, the `Constant`, the `Op`, or 'output'. `args` are canonical (`Op.bind`): nodes for
    tensors, tuples for lists, else Python literals.
    """

    op: str
    target: Any
    args: tuple[Any, ...] = ()
    meta: Result = None
    role: Role | tuple[Role, ...] | None = None
    grad_mode: bool = True
    phase: Phase = Phase.FORWARD
    sequence: int = -1
    """The number of the tape node that this op made, or whose backward made this op; -1 for none
    (SEQ-1)."""
    location: Location | None = None
    origin: Node | None = None
    """The node of an earlier stage that this one was made from."""
    recompute: bool | None = None
    """A hint for the partitioner: True to recompute, False to save, None for none. Nodes of a
    checkpoint region have True (CKP-8)."""
    scope: Scope | None = None
    """The Module in which the op ran, and the user's tags; None outside of all (SEQ-5)."""

    # --- provenance
    @property
    def module(self) -> str:
        """The path of the Module in which the op ran, such as `layers.0.fc`.
        A node of a backward has the path of the op that it differentiates. Empty in the outermost
        Module, and outside of Modules.
        """
        return "" if self.scope is None else self.scope.module

    @property
    def tags(self) -> Mapping[str, Any]:
        """The tags of `annotate` around the op, or around the op that it differentiates."""
        return NO_TAGS if self.scope is None else self.scope.tags

    @property
    def is_sum(self) -> bool:
        """Whether it sums the gradients of several uses, and so belongs to no op of the forward."""
        return self.scope is SUM

    @property
    def is_backward(self) -> bool:
        """Whether a backward recorded it: the function's, or one that the function ran itself.
        The phase of the latter is FORWARD all the same (SEQ-1).
        """
        inner = self.scope is not None and self.scope.is_backward
        return inner or self.is_sum or self.phase is Phase.BACKWARD

    # --- FX's other words
    @property
    def kwargs(self) -> dict[str, Any]:
        """Always empty: canonical arguments are positional. Kept for readers of FX graphs."""
        return {}

    @property
    def dtype(self) -> Any:
        return self.meta.dtype  # type: ignore[union-attr]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.meta.shape  # type: ignore[union-attr]

    def inputs(self) -> list[Node]:
        """The nodes among the arguments, in order, with repeats."""
        found: list[Node] = []
        for value in self.args:
            if type(value) is Node:
                found.append(value)
            elif type(value) is tuple:
                found.extend(item for item in value if type(item) is Node)
        return found

    def with_args(self, args: tuple[object, ...], meta: Result) -> Node:
        """A copy of this node with other arguments and meta; its origin is this one's, or this."""
        return Node(
            self.op,
            self.target,
            args,
            meta=meta,
            role=self.role,
            grad_mode=self.grad_mode,
            phase=self.phase,
            sequence=self.sequence,
            location=self.location,
            origin=self.origin or self,
            recompute=self.recompute,
            scope=self.scope,
        )

    def __repr__(self) -> str:
        what = self.role if self.op == "placeholder" else getattr(self.target, "name", self.op)
        return f"<{self.op} {what}: {self.meta}>"


@attrs.frozen(eq=False)
class Copy:
    """A copy op that a stage inserted, and the reason why it is needed."""

    node: Node
    reason: str


def map_nodes(value: object, function: Callable[[Node], Any]) -> Any:
    """`value`, an argument or a tuple of arguments, with `function` applied to its nodes.
    A tuple in which nothing changes is returned itself.
    """
    if type(value) is Node:
        return function(value)
    if type(value) is tuple:
        mapped = [map_nodes(v, function) if type(v) in _MAPPED else v for v in value]
        return value if all(map(is_, mapped, value)) else tuple(mapped)
    return value


_MAPPED = frozenset((Node, tuple))


def name_from(text: str) -> str:
    """The text as the name of a graph: characters that no file can hold are escaped.

    >>> name_from("loss"), name_from("a\\0b")
    ('loss', 'a\\\\x00b')
    """
    if "\0" in text:
        text = text.replace("\0", "\\x00")
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


@attrs.define(eq=False, repr=False)
class Graph:
    """Nodes in execution order; the last one is the output node.

    >>> from aotlite.ir.graph.builder import Builder
    >>> from aotlite.ir.meta import tensor_meta
    >>> build = Builder("double")
    >>> x = build.placeholder(tensor_meta((2,)))
    >>> graph = build.finish([x * 2.0])
    >>> [node.op for node in graph.nodes]
    ['placeholder', 'call', 'output']
    """

    nodes: tuple[Node, ...]
    name: str = "graph"
    copies: tuple[Copy, ...] = attrs.field(default=(), kw_only=True)
    """The copy ops that the stage which made this graph inserted, with their reasons."""
    exported: frozenset[Role] = attrs.field(default=frozenset(), kw_only=True)
    """Inputs whose memory NumPy arrays of the user share; partitioners ask for it (PART-37)."""
    saved_sizes: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    """Of a backward: the symbols that the forward saves as numbers, in order (PART-4)."""
    _users: dict[Node, list[Node]] | None = attrs.field(default=None, init=False)
    _names: dict[Node, str] | None = attrs.field(default=None, init=False)
    _last_uses: dict[Node, tuple[Node, ...]] | None = attrs.field(default=None, init=False)
    _symbols: tuple[str, ...] | None = attrs.field(default=None, init=False)
    header: Any = attrs.field(default=None, init=False)
    """The `GraphHeader` of a graph whose nodes are read when they are asked for; else None."""

    def __attrs_post_init__(self) -> None:
        if not self.nodes or self.nodes[-1].op != "output":
            raise GraphError(f"graph {self.name}: it has no output node, expected one at the end")
        if self.name != name_from(self.name):
            raise ArgumentError(
                f"graph: its name is {self.name!r}, expected a text without NUL and surrogates"
            )

    # --- parts
    @property
    def output_node(self) -> Node:
        return self.nodes[-1]

    @property
    def outputs(self) -> tuple[Any, ...]:
        """What the graph returns: nodes, None or plain values."""
        outputs: tuple[Any, ...] = self.nodes[-1].args[0]
        return outputs

    @property
    def output_roles(self) -> tuple[Role, ...]:
        """Why each output exists, aligned with `outputs`."""
        if self.header is not None:
            return self.header.output_roles
        return self.nodes[-1].role  # type: ignore[return-value]

    @property
    def placeholders(self) -> tuple[Node, ...]:
        if self.header is not None:
            return self.header.placeholders
        return tuple(node for node in self.nodes if node.op == "placeholder")

    @property
    def calls(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.op == "call")

    @property
    def constants(self) -> dict[str, Any]:
        """The values of the get_attr nodes by name."""
        found = (node.target for node in self.nodes if node.op == "get_attr")
        return {constant.name: constant.value for constant in found}

    def input_with(self, role: Role) -> Node:
        """The placeholder of this role. Raises GraphError if there is none."""
        for node in self.placeholders:
            if node.role == role:
                return node
        raise GraphError(f"graph {self.name}: no input has the role {role}, expected one")

    def outputs_with(self, kind: type | tuple[type, ...]) -> list[tuple[Any, Any]]:
        """(role, value) of the outputs whose role is of this class, in order."""
        pairs = zip(self.output_roles, self.outputs, strict=True)
        return [(role, value) for role, value in pairs if isinstance(role, kind)]

    # --- indexes, computed on first use
    @property
    def users(self) -> dict[Node, list[Node]]:
        """Each node -> the nodes that take it as an argument, in order, without repeats."""
        if self._users is None:
            users: dict[Node, list[Node]] = {node: [] for node in self.nodes}
            for node in self.nodes:
                for value in node.inputs():
                    into = users[value]
                    if not into or into[-1] is not node:
                        into.append(node)
            self._users = users
        return self._users

    @property
    def last_uses(self) -> dict[Node, tuple[Node, ...]]:
        """Each node -> the values that are dead after it: those that it reads last, and its own
        where nobody reads it. An interpreter frees them there."""
        if self._last_uses is None:
            last: dict[Node, tuple[Node, ...]] = {}
            needed: set[Node] = set()
            for node in reversed(self.nodes):
                fresh = dict.fromkeys(node.inputs() if node in needed else (*node.inputs(), node))
                last[node] = tuple([value for value in fresh if value not in needed])
                needed.update(last[node])
            self._last_uses = last
        return self._last_uses

    # --- FX's methods: they need modules that import this one, so `ir/graph/methods.py` adds them
    if TYPE_CHECKING:

        def edit(self) -> Any: ...
        def output_metas_with(self, kind: type | tuple[type, ...]) -> list[tuple[Any, Any]]: ...
        def returns_input(self, output: Role, role: Role) -> bool: ...
        @property
        def output_metas(self) -> tuple[Any, ...]: ...
        @property
        def output_roots(self) -> tuple[int | None, ...]: ...
        def print_readable(self, *, print_output: bool = True) -> str: ...
        def print_tabular(self, *, print_output: bool = True) -> str: ...
        def sequence_table(self, *, print_output: bool = True) -> str: ...
        @property
        def code(self) -> str: ...
        @property
        def names(self) -> dict[Node, str]: ...
        @property
        def symbols(self) -> tuple[str, ...]: ...
        def lint(self) -> None: ...

    # --- Python's protocols; `ir/graph/methods.py` adds printing and pickling
    def __repr__(self) -> str:
        return f"<Graph {self.name}: {len(self.nodes)} nodes>"

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)


def output_node(values: Iterable[object], roles: Iterable[Role]) -> Node:
    """The node that closes a graph."""
    return Node("output", "output", (tuple(values),), role=tuple(roles))
