"""`Builder` makes graphs; its `Proxy` values have the same methods as tensors.

Ground floor. There are two ways to emit a node. A pass that translates nodes uses `Builder.emit`,
which takes nodes. A formula written in operand methods (the `put` of a view, a decomposition, a
printed graph) runs on proxies, and each method emits. Spec: `specs/graph.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from aotlite.ir.errors import ArgumentError, IndexOutOfRangeError, UnsupportedError
from aotlite.ir.graph.graph import Constant, Graph, Node, Phase, output_node
from aotlite.ir.graph.role import OF_BACKWARD, Argument, Output, Role
from aotlite.ir.meta import TensorMeta, tensor_meta
from aotlite.ir.op import Op
from aotlite.ir.op.operand import Operand
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.symbols.user_code import asks_for


class Proxy(Operand):
    """A value of a graph under construction: operand methods on it emit nodes."""

    __slots__ = ("builder", "meta", "node")

    def __init__(self, builder: Builder, node: Node) -> None:
        self.builder = builder
        self.node = node
        self.meta: TensorMeta = node.meta  # type: ignore[assignment]

    def _apply(self, op: Op, args: tuple[object, ...]) -> Any:
        return self.builder.call(op, args)

    def __bool__(self) -> bool:
        raise UnsupportedError(
            f"bool: the operand is {self.meta} in a graph, expected a decision by shapes and dtypes"
        )

    def __repr__(self) -> str:
        return f"Proxy({self.node!r})"


class Results:
    """The several results of one node. Indexing or unpacking emits a `getitem` for each taken.
    A result that is never taken gets no `getitem`.
    """

    __slots__ = ("builder", "node")

    def __init__(self, builder: Builder, node: Node) -> None:
        self.builder = builder
        self.node = node

    def __len__(self) -> int:
        metas: tuple[TensorMeta, ...] = self.node.meta  # type: ignore[assignment]
        return len(metas)

    def __getitem__(self, index: int) -> Proxy:
        if not 0 <= index < len(self):
            raise IndexOutOfRangeError(
                f"getitem: index is {index}, expected 0 to {len(self) - 1}: {self.node}"
            )
        return Proxy(self.builder, self.builder.emit(GETITEM, (self.node, index)))

    def __iter__(self) -> Iterator[Proxy]:
        return (self[index] for index in range(len(self)))


@attrs.define(eq=False, repr=False)
class Builder:
    """Collects nodes in execution order; `finish` returns the graph.
    Set `source` to the node of the earlier graph that is being translated: emitted nodes get its
    location, scope, phase, grad mode and sequence number (FUN-26, FUN-35). Without a source they
    have the phase `phase`. An input has the phase of its role: tangents are of the backward.
    """

    name: str = "graph"
    nodes: list[Node] = attrs.field(factory=list)
    source: Node | None = None
    phase: Phase = Phase.FORWARD
    _inputs: int = 0

    def placeholder(self, meta: TensorMeta, role: Role | None = None) -> Proxy:
        """Adds an input; its role is the next `Argument` where none is given."""
        role = Argument(self._inputs) if role is None else role
        self._inputs += 1
        phase = Phase.BACKWARD if type(role) in OF_BACKWARD else Phase.FORWARD
        return Proxy(self, self.add(Node("placeholder", role, meta=meta, role=role, phase=phase)))

    def constant(self, name: str, value: object, meta: TensorMeta) -> Proxy:
        """A value that is part of the program."""
        return Proxy(self, self.add(Node("get_attr", Constant(name, value), meta=meta)))

    def add(self, node: Node) -> Node:
        """Appends a node that exists already, such as one shared with an earlier graph."""
        self.nodes.append(node)
        return node

    @asks_for("source")
    def emit(self, op: Op, args: tuple[object, ...]) -> Node:
        """Appends a call of `op` on canonical arguments (nodes, literals) and infers its meta."""
        source = self.source
        if source is None:
            node = Node("call", op, args, op.infer(args), phase=self.phase)
        else:  # by position: keyword arguments would double the cost
            node = Node(
                "call",
                op,
                args,
                op.infer(args),
                None,
                source.grad_mode,
                source.phase,
                source.sequence,
                source.location,
                source.origin or source,
                source.recompute,
                source.scope,
            )
        self.nodes.append(node)
        return node

    def call(self, op: Op, args: tuple[Any, ...]) -> Any:
        """Emits `op` on proxies (canonical arguments); a tuple of proxies for several results."""
        result = self.apply(op, args)
        return tuple(result) if type(result) is Results else result

    def apply(self, op: Op, args: tuple[object, ...]) -> Proxy | Results:
        """`call`, with a `Results` for several results, so that only those taken are emitted."""
        node = self.emit(op, tuple([_unwrap(value) for value in args]))
        return Results(self, node) if type(node.meta) is tuple else Proxy(self, node)

    def finish(self, outputs: Iterable[object], roles: Iterable[Role] | None = None) -> Graph:
        """The graph that returns these proxies, nodes, None or numbers."""
        values = [_unwrap(value) for value in outputs]
        roles = [Output(i) for i in range(len(values))] if roles is None else list(roles)
        if len(roles) != len(values):
            raise ArgumentError(
                f"graph {self.name}: it has {len(values)} outputs and {len(roles)} roles, "
                "expected one role for each output"
            )
        self.nodes.append(output_node(values, roles))
        return Graph(tuple(self.nodes), self.name)


def _unwrap(value: object) -> object:
    if type(value) is Proxy or type(value) is Results:
        return value.node
    if type(value) is tuple or type(value) is list:
        return tuple([_unwrap(item) for item in value])
    return value


def like(meta: TensorMeta) -> TensorMeta:
    """The contiguous meta of the same shape, dtype and device."""
    return tensor_meta(meta.shape, None, meta.dtype, meta.device)


__all__ = ["Builder", "Proxy", "Results"]
