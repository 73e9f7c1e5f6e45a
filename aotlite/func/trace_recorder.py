"""`TraceRecorder`: ops on stand-ins become nodes of a graph, and run outside at once.

What runs outside is what the trace was told: the tensors themselves, fakes, or fakes with symbols
for sizes. So a trace reads no value, and whatever an op does besides its result happens outside,
too: the writes of a trace of real tensors are real. Used by `make_fx`.
Rules: FNT-15 to FNT-18. Spec: `specs/functionalize_transform.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs

from aotlite.eager.base.modes import STATE, no_grad
from aotlite.eager.base.tensor import Tensor
from aotlite.func.mode_recorder import ModeRecorder
from aotlite.ir.arrays import host_array
from aotlite.ir.errors import ArgumentError
from aotlite.ir.graph import Constant, Graph, Node, Phase, output_node
from aotlite.ir.graph.role import Argument, Output
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import GeometryOp, InplaceOp, MultiViewOp, Op, RandomOp, ViewOp
from aotlite.ir.ops.shape.copies import CLONE, RESTRIDE
from aotlite.ir.ops.structure import GETITEM
from aotlite.stages.shared.user_frames import user_location

Table = Mapping[Op, Callable[..., Any]]


@attrs.frozen(eq=False, repr=False)
class Traced:
    """A value of a trace: its node, and the tensor outside."""

    node: Node
    outer: Tensor


class TraceRecorder(ModeRecorder):
    """The trace of one call."""

    mode, verb = "make_fx", "traced"

    def __init__(self, table: Table, convert: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.nodes: list[Node] = []
        self.placeholders: list[Node] = []
        self._table = table
        self._convert = convert
        """Gives the tensor outside for one that is met inside."""
        self._open: list[Op] = []
        self.constants: dict[str, Tensor] = {}
        """By name: the tensors that are no arguments."""

    # --- tensors
    def add_argument(self, outer: Tensor) -> Tensor:
        """The stand-in of an argument, which is an input of the graph."""
        role = Argument(len(self.placeholders))
        self.placeholders.append(Node("placeholder", role, meta=outer.meta, role=role))
        found = self.stand_ins.get(id(outer))  # a tensor may be passed twice
        return self._lift(outer, self.placeholders[-1]) if found is None else found

    def _lift(self, tensor: Tensor, node: Node | None = None) -> Tensor:
        self._next = node
        if node is None and not self._is_of_outside(tensor):
            given = tensor
            with self.outside():
                tensor = self._convert(given)
            self._next = self._constant(given)
            made = self.stand_ins[id(given)] = super()._lift(tensor)
            self.given[id(made)] = given
            return made
        return super()._lift(tensor)

    def _is_of_outside(self, tensor: Tensor) -> bool:
        return tensor.storage.buffer is None

    def met(self, stand_in: Tensor, outer: Tensor) -> None:
        node = self._next
        if node is None:
            raise self.refuse("a fake that is no argument", "pass it as an argument")
        stand_in.value = Traced(node, outer)

    def _constant(self, tensor: Tensor) -> Node:
        if tensor.storage.buffer is None:
            raise self.refuse("a tensor without data that is no argument", "pass it")
        name = f"_tensor_constant{len(self.constants)}"
        self.constants[name] = tensor
        value = Constant(name, host_array(tensor._data))
        node = Node("get_attr", value, meta=tensor.meta)
        node.location = user_location()
        self.nodes.append(node)
        return node

    def constant(self, data: object, tensor: Tensor) -> Tensor:
        """A tensor made from Python's data: a copy of a constant, so that writes spare it."""
        made = self._lift(tensor)
        copy: Tensor = made._apply(CLONE, (made,))
        return copy

    def made(self, outer: Tensor, meta: Any) -> Any:
        raise AssertionError("a trace makes a node for each tensor")

    def outer_of(self, tensor: Tensor) -> Tensor:
        traced: Traced = tensor.value
        return traced.outer

    def memory_outside(self, stand_in: Tensor) -> Tensor | None:
        return self.outer_of(stand_in)

    # --- ops
    def record(self, op: Op, args: tuple[Any, ...], meta: Any) -> Any:
        if op in self._table and op not in self._open:
            found = self._decomposed(op, args, meta)
            if found is not NotImplemented:
                return found
        outer = self.emit(op, self.outer_args(args), False)
        node = self._node(op, self._nodes_of(args), meta)
        if isinstance(op, InplaceOp | GeometryOp):
            return Traced(node, args[0].value.outer)
        if type(meta) is TensorMeta:
            return Traced(node, outer)
        items = enumerate(zip(outer, meta, strict=True))
        return tuple([Traced(self._node(GETITEM, (node, k), m), one) for k, (one, m) in items])

    def drawn(self, op: RandomOp, args: tuple[Any, ...], meta: TensorMeta) -> Any:
        """The record of a draw, which happens outside."""
        return self.record(op, args, meta)

    def _node(self, op: Op, args: tuple[Any, ...], meta: Any) -> Node:
        mode, location = bool(STATE.grad_mode), user_location()
        node = Node("call", op, args, meta, None, mode, Phase.FORWARD, 0, location)
        self.nodes.append(node)
        return node

    def _nodes_of(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(
            [
                value.value.node
                if isinstance(value, Tensor)
                else self._nodes_of(value)
                if type(value) is tuple
                else value
                for value in args
            ]
        )

    def _decomposed(self, op: Op, args: tuple[Any, ...], meta: Any) -> Any:
        """The results of a decomposition, in the place of the op's."""
        given, named = op.schema.given(args)
        self._open.append(op)
        try:
            with no_grad():
                found = self._table[op](*given, **dict(named))
        finally:
            self._open.pop()
        if found is NotImplemented:
            return found
        single = type(meta) is TensorMeta
        outs, metas = ((found,), (meta,)) if single else (tuple(found), meta)
        if len(outs) != len(metas) or not all(isinstance(each, Tensor) for each in outs):
            raise ArgumentError(
                f"make_fx: the decomposition of {op.name} returns {found!r}, expected "
                f"{len(metas)} tensors"
            )
        values = [self._fitted(op, each, one) for each, one in zip(outs, metas, strict=True)]
        return values[0] if single else tuple(values)

    def _fitted(self, op: Op, out: Tensor, meta: TensorMeta) -> Any:
        out = self.here(out)
        if (out.meta.shape, out.meta.dtype) != (meta.shape, meta.dtype):
            raise ArgumentError(
                f"make_fx: the decomposition of {op.name} returns {out.meta}, expected {meta}"
            )
        if isinstance(op, ViewOp | MultiViewOp):
            return out.value
        if out.meta.stride != meta.stride:
            out = out._apply(RESTRIDE, (out, meta.stride))
        elif out._base is not None or id(out) in self.given:
            out = out._apply(CLONE, (out,))
        return out.value

    # --- the graph
    def graph(self, results: list[Any], name: str, *, keeps_grad_modes: bool) -> Graph:
        """The graph of the trace; dead pure ops are left out."""
        for node in self.nodes:
            node.grad_mode = node.grad_mode or not keeps_grad_modes
        values = [x.value.node if isinstance(x, Tensor) else x for x in results]
        closing = output_node(values, list(map(Output, range(len(values)))))
        edit = Graph((*self.placeholders, *self.nodes, closing), name).edit()
        edit.eliminate_dead_code()
        return edit.graph()
