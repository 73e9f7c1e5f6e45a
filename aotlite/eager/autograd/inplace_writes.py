"""The autograd history of in-place writes: which tensors may be written, and the new history.

A write to a view becomes part of its root's history; the other views of the family refresh lazily
(`differentiable_views`). Rules: TEN-15..TEN-19, TEN-22..TEN-24. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

from typing import Any

from aotlite.eager.autograd.as_strided_chain import window_on
from aotlite.eager.autograd.chain_simplification import shorter
from aotlite.eager.autograd.differentiable_views import (
    accumulator,
    edge_of,
    edges_of,
    root_of,
    take_edge,
)
from aotlite.eager.autograd.nodes.gradient_forms import keep_form_at
from aotlite.eager.autograd.nodes.op_nodes import OpNode, SliceAssign, calls_of, new_call, new_node
from aotlite.eager.autograd.nodes.retained_grads import move_retained
from aotlite.eager.autograd.nodes.saved_tensors import detached_alias
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tape.node import Edge, TapeNode
from aotlite.eager.base.tape.view_chain import ViewChain, ViewStep, chain_of, overlaps_itself
from aotlite.eager.base.tape.view_root import RESTRICTED, CreationKind, ViewRoot
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import AliasError, AutogradError, noted
from aotlite.ir.op import Formula, InplaceOp, PureOp, Source, Vjp
from aotlite.ir.ops.views.view_ops import AS_STRIDED


def check_writable(name: str, tensor: Tensor, others: list[Tensor]) -> None:
    """Raises AutogradError for a write, in grad mode, that autograd forbids (TEN-15, TEN-19)."""
    if not STATE.grad_mode:
        check_counts(name, tensor)
        return
    if type(tensor.storage.version) is not int:
        check_counts(name, tensor)
    tracked = tensor.requires_grad
    if not tracked and not any(other.requires_grad for other in others):
        return
    kind = tensor._kind
    if kind is not None and kind is not CreationKind.LEAF_VIEW:
        raise noted(
            AutogradError(
                f"{name}: the tensor is {kind.value}, expected a view that may be written"
            ),
            "Write to the base, or to a clone(). (TEN-19)",
        )
    if tracked and is_leaf_family(tensor):
        what = "a leaf" if tensor._base is None and kind is None else "a view of a leaf"
        raise noted(
            AutogradError(f"{name}: the tensor is {what} that requires grad, expected a non-leaf"),
            "A leaf's old value has no history to keep. Write under no_grad(), or to a clone(). "
            "(TEN-15)",
        )
    if tensor._base is not None:
        _check_replayable(name, root_of(tensor))


def check_counts(name: str, tensor: Tensor) -> None:
    """Raises AutogradError for a write to an inference tensor outside of the mode (TEN-22)."""
    if type(tensor.storage.version) is not int and STATE.grad_mode is not None:
        raise noted(
            AutogradError(
                f"{name}: the tensor is an inference tensor, expected an ordinary one outside "
                "of inference_mode"
            ),
            "Write in inference_mode, or to a clone(). (TEN-22)",
        )


def is_leaf_family(tensor: Tensor) -> bool:
    """Whether the tensor is a leaf that requires grad, or a view of a leaf, with a history.

    The leaf itself need not require grad, if a view of it was made a leaf (TEN-23).
    """
    if tensor._kind is CreationKind.LEAF_VIEW:
        return True
    root = tensor._root
    if root is not None and root.leaf or tensor._leaf and tensor._node is None:
        return True
    return (
        tensor._base is not None and root is not None and root.node is None and bool(tensor._node)
    )


def _check_replayable(name: str, root: ViewRoot) -> None:
    """Raises AliasError for a root that overlaps itself: the gradient of a write through a view has
    the root's layout, and needs an address for each element."""
    meta = root.meta
    if overlaps_itself(meta):
        raise noted(
            AliasError(
                f"{name}: the tensor is a view of {meta}, which overlaps itself, expected a "
                "base with one memory place for each element where the write has a gradient"
            ),
            "clone() the base. (TEN-7, TEN-17)",
        )


_FLAT = Vjp({0: Formula(lambda grad: grad.new_zeros(grad.shape), ((Source.GRAD, 0),))})


def plan_write(op: InplaceOp, args: tuple[Any, ...]) -> OpNode | None:
    """The tape node of an in-place op, made before the write; None if no history is needed.

    It saves the operands that the gradient needs; of `self`, a clone with the old values.
    """
    functional: PureOp = op.functional
    # The result of an op without gradient depends on nothing: its gradients are zeros.
    vjp = functional.vjp or _FLAT
    if not STATE.grad_mode or not args[0].dtype.is_differentiable:
        return None
    found = edges_of(vjp, args)
    if found is None:
        return None
    first, *rest = args
    calls = calls_of(functional, functional.key(args))
    call = new_call(functional, vjp, calls, found[0], first.meta)
    old = _old_value(first) if 0 in call.plan.operands else first
    others = [_beside(value, first) if isinstance(value, Tensor) else value for value in rest]
    return new_node(call, (old, *others), found[1])


def _beside(operand: Tensor, target: Tensor) -> Tensor:
    """The operand to save for a write; without history if it shares the memory that is written.

    The version check would refuse it in the backward anyway. With its history, of which the write
    becomes part, it would make a reference cycle (TEN-13).
    """
    return detached_alias(operand) if operand.storage is target.storage else operand


def _old_value(tensor: Tensor) -> Tensor:
    """A copy of a tensor before a write, with its history for higher-order gradients."""
    edge = edge_of(tensor)
    before = STATE.grad_mode
    STATE.grad_mode = False
    try:
        kept: Tensor = tensor.clone()
    finally:
        STATE.grad_mode = before
    if edge is not None:
        kept._node, kept._index, kept.facts = *edge, None
    return kept


def rewrite(tensor: Tensor, node: OpNode, base_edge: Edge | None) -> None:
    """Makes `node`, the in-place op that just wrote `tensor`, part of its family's history."""
    rebase(tensor, node, 0, base_edge, 0 if node.needed[:1] == (0,) else None)


# Note [rebase of view history]
#     hidden = x @ w; a = hidden[:, 1]; b = hidden[0]; a.relu_()
# Gradients of `hidden` and of `b` have to pass through relu_ too, although neither is its operand.
# So the root of the family gets a new node, `SliceAssign` (PyTorch: CopySlices). It holds relu_'s
# node and the chain `select(1, 1)`; its first edge is the root's old edge. Nobody searches for `b`:
# when its edge is next asked for, its `_seen` differs from the storage's version, and `edge_of`
# rebuilds its chain from the root's new edge. The same happens to `a` (`_go_stale`).
def rebase(
    tensor: Tensor, node: TapeNode, index: int, base_edge: Edge | None, own: int | None
) -> None:
    """Makes result `index` of `node` the history of the value that was written to `tensor`.

    `own` is the number of the node's edge for the tensor's old value.
    """
    tensor._leaf, tensor.facts = False, None
    root = tensor._root
    if root is None:
        take_edge(tensor, (node, index))
        return
    if tensor._chain:
        node = SliceAssign(node, shorter(_lens(tensor, root)), root.meta, base_edge, own)
        index = 0
    become(root, tensor, node, index)


def become(root: ViewRoot, tensor: Tensor, node: TapeNode, index: int) -> None:
    """Makes result `index` of `node` the history of the whole family of `tensor`."""
    tensor._leaf = False
    base = tensor if tensor._base is None else tensor._base
    before = root.node
    if before is not None and before.extra is not None:
        move_retained(base, (before, root.index), (node, index))
    root.node, root.index, root.leaf = node, index, False
    keep_form_at(node, index, base)
    _go_stale(tensor)


def _lens(tensor: Tensor, root: ViewRoot) -> ViewChain:
    """A chain from the root whose views all have an inverse `put` (TEN-17).

    A step that repeats elements (`expand`, overlapping windows) has no unique inverse. Then the
    chain is a single `as_strided` on the root's memory.
    """
    if not tensor._chain.repeats:
        return tensor._chain
    return window_on(root.meta, root.offset, tensor.meta, tensor.offset)


def change_geometry(tensor: Tensor, step: ViewStep) -> None:
    """Extends the tensor's own chain after a geometry op such as `t_` (TEN-24).

    Gradients from earlier uses of a leaf (changed under no_grad) arrive in the old geometry. So its
    old AccumulateGrad passes them through the same view to a new one.
    """
    root = root_of(tensor)
    moved = step
    if step.op is AS_STRIDED:
        tensor._chain = window_on(root.meta, root.offset, step.result, tensor.offset)
    else:
        tensor._chain = tensor._chain.then(step)
    if not (tensor._leaf and tensor._node is None):
        _go_stale(tensor)
        return
    before = tensor._accumulator
    if before is not None:
        tensor._accumulator = None
        before.pass_on(chain_of(moved), accumulator(tensor))


def _go_stale(tensor: Tensor) -> None:
    """Marks the tensor's edge as out of date, so that `edge_of` rebuilds it from the root.

    For a tensor that retains its gradient it does so at once, to tell the new node.
    """
    before, index = tensor._node, tensor._index
    tensor._node = None
    tensor.facts = None
    tensor._seen = -1
    if before is not None and before.extra is not None and tensor._kind not in RESTRICTED:
        edge = edge_of(tensor)
        if edge is not None:
            move_retained(tensor, (before, index), edge)
