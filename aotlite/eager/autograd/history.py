"""Whose history a tensor has: roots, view chains, lazy refresh, and what a write changes.

A storage's differentiable family has one hidden `Root`: the tape edge of the whole, in the geometry
it had at its first view. Every tensor of the family, the base object too, is (root, chain). `t_`
extends an object's own chain, a write sets the root's edge, all else refreshes lazily, by making tape
nodes only and never by running ops. Rules: TEN-3, TEN-15..TEN-21, TEN-24. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

import enum
from typing import Any

import attrs

from aotlite.eager.autograd.tape import AccumulateGrad, Edge, OpNode, SavedTensor, SliceAssign
from aotlite.eager.state import STATE
from aotlite.eager.tensor import Tensor
from aotlite.ir.errors import AutogradError, noted
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import InplaceOp, Op, PureOp, ViewOp, Vjp
from aotlite.ir.ops.views import AS_STRIDED


class CreationKind(enum.Enum):
    """How a view was made, where that restricts writing it (TEN-19)."""

    MULTI_OUTPUT = "an output of an op that returns several views"
    NO_GRAD = "a view made under no_grad"
    LEAF_VIEW = "a view of a leaf that requires grad"
    """Only of captured inputs: their base is not part of the capture."""


@attrs.frozen(eq=False)
class Step:
    """One view of a chain: the op, its arguments after the operand, the operand's meta."""

    op: ViewOp
    args: tuple[Any, ...]
    operand: TensorMeta
    result: TensorMeta


class Root:
    """The history and first geometry of a base."""

    __slots__ = ("index", "leaf", "meta", "node", "offset")

    def __init__(self, base: Tensor) -> None:
        self.meta = base.meta
        self.offset = base.offset
        self.leaf = base._leaf and base._node is None
        if self.leaf:
            self.node: Any = accumulator(base)
            self.index = 0
        else:
            self.node, self.index = base._node, base._index

    @property
    def requires_grad(self) -> bool:
        return self.node is not None

    def edge(self) -> Edge | None:
        return None if self.node is None else (self.node, self.index)


def accumulator(leaf: Tensor) -> AccumulateGrad:
    """The node that collects this leaf's gradient."""
    node = leaf._accumulator
    if node is None:
        node = leaf._accumulator = AccumulateGrad(leaf)
    return node


def root_of(tensor: Tensor) -> Root:
    """The tensor's root; made now, with this tensor as its base, if it has none."""
    root = tensor._root
    if root is None:
        root = tensor._root = Root(tensor)
        tensor._seen = tensor.storage.version
    return root


def edge_of(tensor: Tensor) -> Edge | None:
    """Where this tensor's gradient goes; refreshed if the family was written since it was asked.

    Raises AutogradError for a view of a restricted kind whose base was written (TEN-19, TEN-20).
    """
    root = tensor._root
    if tensor._leaf and tensor._node is None:
        return accumulator(tensor), 0
    if root is not None:
        version = tensor.storage.version
        stale = tensor._seen != version
        if stale or (
            tensor._node is None
            and root.node is not None
            and tensor._kind is not CreationKind.NO_GRAD
        ):
            _refresh(tensor, root, stale=stale)
            tensor._seen = version
    return None if tensor._node is None else (tensor._node, tensor._index)


def _refresh(tensor: Tensor, root: Root, *, stale: bool) -> None:
    edge = root.edge()
    if edge is None:
        return
    kind = tensor._kind
    if stale and kind in (CreationKind.MULTI_OUTPUT, CreationKind.NO_GRAD):
        raise noted(
            AutogradError(
                f"view: the tensor is {kind.value}, and its base or itself was modified in place "
                "since, expected no write before its history is used"
            ),
            "Make the view again after the write, or clone() it before. (TEN-19, TEN-20)",
        )
    for step in tensor._chain:
        edge = (view_node(step, edge), 0)
    tensor._node, tensor._index = edge


def view_node(step: Step, edge: Edge) -> OpNode:
    """The tape node of one view, without running it."""
    vjp = step.op.vjp
    assert vjp is not None
    return OpNode(step.op, vjp, (_Only(step.operand), *step.args), {0: edge}, {})


class _Only:
    """Stands for an operand of which only the meta is known."""

    __slots__ = ("meta",)

    def __init__(self, meta: TensorMeta) -> None:
        self.meta = meta


def link_view(
    out: Tensor, base: Tensor, op: ViewOp, args: tuple[Any, ...], kind: CreationKind | None = None
) -> None:
    """Makes `out` a differentiable view of `base` by `op`."""
    edge = edge_of(base)
    root = root_of(base)
    out._base = base if base._base is None else base._base
    out._root = root
    out._seen = out.storage.version
    out._kind = kind or base._kind
    if op is AS_STRIDED:  # relative to the storage, not to the view it is called on (FUN-11)
        args = (args[0], args[1], out.offset - root.offset)
        out._chain = (Step(op, args, root.meta, out.meta),)
        edge = root.edge() if edge is not None else None
    else:
        out._chain = (*base._chain, Step(op, args, base.meta, out.meta))
    if not STATE.grad_mode:
        out._kind = CreationKind.NO_GRAD
    elif edge is not None:
        out._node, out._index = view_node(out._chain[-1], edge), 0


def check_writable(op: Op, tensor: Tensor, others: list[Tensor]) -> None:
    """Raises AutogradError where a write with grad on would break a history (TEN-15, TEN-19)."""
    if not STATE.grad_mode:
        return
    tracked = tensor.requires_grad
    if tracked and is_leaf_family(tensor):
        what = "a leaf" if tensor._root is None or not tensor._chain else "a view of a leaf"
        raise noted(
            AutogradError(f"{op.name}: the tensor is {what} that requires grad, expected a non-leaf"),
            "A leaf's old value has no history to keep. Write under no_grad(), or to a clone(). (TEN-15)",
        )
    kind = tensor._kind
    if kind is not None and (tracked or any(other.requires_grad for other in others)):
        raise noted(
            AutogradError(f"{op.name}: the tensor is {kind.value}, expected a view that may be written"),
            "Write to the base, or to a clone(). (TEN-19)",
        )


def is_leaf_family(tensor: Tensor) -> bool:
    """Whether the tensor is a leaf that requires grad, or a view of one."""
    if tensor._kind is CreationKind.LEAF_VIEW:
        return True
    root = tensor._root
    return (tensor._leaf and tensor._node is None) or (root is not None and root.leaf)


def plan_write(op: InplaceOp, args: tuple[Any, ...]) -> OpNode | None:
    """The tape node of an in-place op, made before the write; None if there is no history to make.

    Operands that the gradient needs are saved now, self as a clone of its old values.
    """
    functional: PureOp = op.functional
    if not STATE.grad_mode or functional.vjp is None:
        return None
    edges = edges_of(functional.vjp, args)
    if not edges:
        return None
    saved = save_operands(functional.vjp, args, tuple(edges), clone_self=True)
    return OpNode(functional, functional.vjp, args, edges, saved)


def edges_of(vjp: Vjp, args: tuple[Any, ...]) -> dict[int, Any]:
    """Edges by operand position, for operands that a gradient can flow to."""
    edges: dict[int, Any] = {}
    for position in vjp.formulas:
        value = args[position]
        if isinstance(value, Tensor):
            if value._leaf or value._node is not None or value._root is not None:
                edge = edge_of(value)
                if edge is not None:
                    edges[position] = edge
        elif type(value) is tuple:
            found = [edge_of(item) if isinstance(item, Tensor) else None for item in value]
            if any(edge is not None for edge in found):
                edges[position] = found
    return edges


def save_operands(
    vjp: Vjp, args: tuple[Any, ...], needed: tuple[int, ...], *, clone_self: bool = False
) -> dict[int, Any]:
    """What the formulas for `needed` operands read of the operands."""
    saved: dict[int, Any] = {}
    for position in vjp.saves(needed)[0]:
        value = args[position]
        if isinstance(value, Tensor):
            if position == 0 and clone_self:
                before = STATE.grad_mode
                STATE.grad_mode = False
                try:
                    value = value.clone()
                finally:
                    STATE.grad_mode = before
            saved[position] = SavedTensor(value)
        elif type(value) is tuple:
            saved[position] = [SavedTensor(item) for item in value]
        else:
            saved[position] = value
    return saved


def rewrite(tensor: Tensor, node: OpNode, base_edge: Edge | None) -> None:
    """Makes `node`, an in-place op that has just written `tensor`, part of the family's history."""
    tensor._leaf = False
    root = tensor._root
    if root is None:
        tensor._node, tensor._index = node, 0
        return
    written: Any = node
    if tensor._chain:
        written = SliceAssign(node, tensor._chain, root.meta, base_edge)
    root.node, root.index, root.leaf = written, 0, False
    tensor._node = None
    tensor._seen = -1
    edge_of(tensor)


def change_geometry(tensor: Tensor, step: Step) -> None:
    """Extends the object's own chain after a geometry op such as `t_` (TEN-24)."""
    root = root_of(tensor)
    if step.op is AS_STRIDED:
        start = tensor.offset - root.offset
        args = (step.args[0], step.args[1], start)
        tensor._chain = (Step(step.op, args, root.meta, step.result),)
    else:
        tensor._chain = (*tensor._chain, step)
    if not (tensor._leaf and tensor._node is None):
        tensor._node = None
        tensor._seen = -1
        edge_of(tensor)
