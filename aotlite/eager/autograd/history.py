"""Whose history a tensor has: roots, view chains, lazy refresh, and what a write changes.

A storage's differentiable family has one hidden `Root`: the tape edge of the whole, in the geometry
it had at its first view. Every tensor of the family, the base object too, is (root, chain). `t_`
extends an object's own chain, a write sets the root's edge, all else refreshes lazily, by making
tape nodes only and never by running ops. Rules: TEN-3, TEN-15..TEN-21, TEN-24.
Spec: `specs/autograd.md`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aotlite.eager.autograd.chain import Chain, Step, chain_of, overlaps_itself
from aotlite.eager.autograd.forms import keep_any_form, keep_form, keep_form_at
from aotlite.eager.autograd.leaf import AccumulateGrad, new_accumulator
from aotlite.eager.autograd.node import Edge, TapeNode
from aotlite.eager.autograd.retained_grads import move_retained
from aotlite.eager.autograd.saved_tensors import detached_alias
from aotlite.eager.autograd.shorter_chains import shorter
from aotlite.eager.autograd.tape import OpNode, SliceAssign, calls_of, new_call, new_node
from aotlite.eager.autograd.view_root import RESTRICTED, CreationKind, Root
from aotlite.eager.autograd.windows import window_on
from aotlite.eager.state import STATE
from aotlite.eager.tensor import Tensor
from aotlite.ir.errors import AliasError, AutogradError, GraphError, noted
from aotlite.ir.op import Formula, InplaceOp, PureOp, Source, ViewOp, Vjp
from aotlite.ir.ops.views import AS_STRIDED


def is_stale(view: Tensor) -> bool:
    """Whether a view of a restricted kind was written since its history was last asked for.

    A leaf's history is its own, whatever is written (TEN-23).
    """
    restricted = view._kind in RESTRICTED and not (view._leaf and view._node is None)
    return restricted and view._root is not None and view._seen != view.storage.version


def accumulator(leaf: Tensor) -> AccumulateGrad:
    """The node that collects this leaf's gradient."""
    return leaf._accumulator or new_accumulator(leaf)


def follow_leaf(tensor: Tensor) -> None:
    """Tells the views of a base that it has become a leaf that requires grad, or is no longer.

    Views taken before share the base's memory, hence its history (TEN-3). A view that is made a
    leaf collects for itself, and its base does not change (TEN-23).
    """
    root = tensor._root
    if root is None or tensor._base is not None:
        return
    if not tensor._leaf:
        root.forget()
        return
    node = accumulator(tensor)
    if tensor._chain:  # the base was `t_`'d: views speak of it in the root's geometry
        before = AccumulateGrad(tensor)
        before.pass_on(tensor._chain, node)
        node = before
    root.become_leaf(node)


def root_of(tensor: Tensor) -> Root:
    """The tensor's root; made now, with this tensor as its base, if it has none."""
    root = tensor._root
    if root is None:
        root = tensor._root = Root(tensor)
        if tensor._leaf and tensor._node is None:
            root.become_leaf(accumulator(tensor))
        tensor.facts = None
        tensor._seen = tensor.storage.version
    return root


def edge_of(tensor: Tensor) -> Edge | None:
    """Where this tensor's gradient goes; refreshed if the family was written since it was asked.

    Raises AutogradError for a view of a restricted kind whose base was written (TEN-19, TEN-20).
    """
    if tensor._leaf and tensor._node is None:
        return accumulator(tensor), 0
    root = tensor._root
    if root is not None and root.node is not None:
        version = tensor.storage.version
        stale = tensor._seen != version
        if stale or tensor._node is None:
            if not stale and tensor._kind is CreationKind.NO_GRAD:
                return None  # it requires grad, and its gradient goes nowhere (TEN-21)
            _refresh(tensor, root, stale=stale)
            tensor._seen = version
    elif root is not None and tensor._node is not None and tensor._seen != tensor.storage.version:
        _refresh_without_base(tensor, root)
    return None if tensor._node is None else (tensor._node, tensor._index)


def detach_in_place(tensor: Tensor, *, is_view: bool = False) -> None:
    """Makes the tensor a leaf that does not require grad. Raises AutogradError for a view.

    Views of it keep the history that they have (TEN-23). `is_view`: it stands for a view.
    """
    if is_view or tensor._base is not None:
        raise detached_view()
    tensor._leaf = False
    tensor._node, tensor._index, tensor.facts = None, 0, None
    if tensor._root is not None:
        tensor._root.forget()


def detached_view() -> Exception:
    """The error for detaching a view in place (TEN-23)."""
    return noted(
        AutogradError("detach_: the tensor is a view, expected one that is not"),
        "Its history is that of its base: use detach(). (TEN-23)",
    )


def _refresh(tensor: Tensor, root: Root, *, stale: bool) -> None:
    edge = root.edge()
    assert edge is not None
    if stale and tensor._kind in RESTRICTED:
        raise _stale_error(tensor)
    _take(tensor, _through(tensor, tensor._chain, edge))


def follow_base(view: Tensor) -> None:
    """Gives a view the history that its base has now."""
    root = view._root
    edge = None if root is None else root.edge()
    if edge is not None:
        _take(view, _through(view, view._chain, edge))
        view._seen = view.storage.version
        view.facts = None


def _through(of: Tensor, chain: Iterable[Step], edge: Edge) -> Edge:
    """The edge of what the views of a chain give, of their operand's; `of` is one of them."""
    for step in chain:
        edge = (view_node(step, edge), 0)
        keep_any_form(edge[0], of)
    return edge


def _stale_error(tensor: Tensor) -> AutogradError:
    kind = tensor._kind
    assert kind is not None
    return noted(
        AutogradError(
            f"view: the tensor is {kind.value}, and its base or itself was modified in place "
            "since, expected no write before its history is used"
        ),
        "Make the view again after the write, or clone() it before. (TEN-19, TEN-20)",
    )


def _refresh_without_base(tensor: Tensor, root: Root) -> None:
    """After a write of a family whose base has no history: the view's own is of an older value."""
    if tensor._kind in RESTRICTED:
        raise _stale_error(tensor)
    if root.left and tensor._base is not None:
        _take(tensor, (view_node(tensor._chain[-1], None), 0))
    tensor._seen = tensor.storage.version


def _take(tensor: Tensor, edge: Edge) -> None:
    """Gives the tensor this history; a gradient that it retains is from now on that one's."""
    before = tensor._node
    if before is not None and before.extra is not None:
        move_retained(tensor, (before, tensor._index), edge)
    tensor._node, tensor._index = edge
    keep_form(tensor)


def view_node(step: Step, edge: Edge | None) -> OpNode:
    """The tape node of one view, without running it; no edge: its gradient goes nowhere."""
    vjp = step.op.vjp
    assert vjp is not None
    needed, edges = ((), ()) if edge is None else ((0,), (edge,))
    calls = calls_of(step.op, (step.operand, *step.args))
    call = calls.get(needed)
    if call is None or call.result is not step.result:
        call = new_call(step.op, vjp, calls, needed, step.result)
        if call.plan.operands:
            expected = "expected that of a view to read its geometry only"
            raise GraphError(f"{step.op.name}: its gradient reads the operand's values, {expected}")
    return new_node(call, (None, *step.args), edges)


def link_view(
    out: Tensor, base: Tensor, op: ViewOp, args: tuple[Any, ...], kind: CreationKind | None = None
) -> None:
    """Makes `out` a differentiable view of `base` by `op`."""
    if type(out.storage.version) is not int:
        return  # nothing ever needs to know (TEN-22)
    grad_mode = STATE.grad_mode
    edge = edge_of(base) if grad_mode else None  # a stale view may be viewed, not used
    root = base._root or root_of(base)
    out._base = base if base._base is None else base._base
    out._root = root
    out.facts = None
    out._seen = out.storage.version
    out._kind = kind or base._kind
    if op is AS_STRIDED:  # relative to the storage, not to the view it is called on (FUN-11)
        out._chain = window_on(root.meta, root.offset, out.meta, out.offset)
        edge = root.edge() if edge is not None else None
        if edge is not None:
            edge = _through(out, out._chain[:-1], edge)
    else:
        out._chain = base._chain.then(Step(op, args, base.meta, out.meta))
    if not grad_mode:
        out._kind = CreationKind.NO_GRAD
    elif edge is not None or base.requires_grad:
        out._node = view_node(out._chain[-1], edge)
        keep_form(out)


def check_writable(name: str, tensor: Tensor, others: list[Tensor]) -> None:
    """Raises where a write with grad on would break a history (TEN-15, TEN-19)."""
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
    """Raises for a write of an inference tensor outside of inference mode (TEN-22)."""
    if type(tensor.storage.version) is not int and STATE.grad_mode is not None:
        raise noted(
            AutogradError(
                f"{name}: the tensor is an inference tensor, expected an ordinary one outside "
                "of inference_mode"
            ),
            "Write in inference_mode, or to a clone(). (TEN-22)",
        )


def is_leaf_family(tensor: Tensor) -> bool:
    """Whether the tensor is a leaf that requires grad, or a view with history of a leaf.

    The leaf may be one that does not require grad, if a view of it was made a leaf (TEN-23).
    """
    if tensor._kind is CreationKind.LEAF_VIEW:
        return True
    root = tensor._root
    if root is not None and root.leaf or tensor._leaf and tensor._node is None:
        return True
    return (
        tensor._base is not None and root is not None and root.node is None and bool(tensor._node)
    )


def _check_replayable(name: str, root: Root) -> None:
    """The gradient of a write through a view has the root's layout, a place for each element."""
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
    """The tape node of an in-place op, made before the write; None if there is no history to make.

    Operands that the gradient needs are saved now, self as a clone of its old values.
    """
    functional: PureOp = op.functional
    # What an op without gradient writes depends on nothing: zeros, and not what was there before.
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


def edges_of(vjp: Vjp, args: tuple[Any, ...]) -> tuple[tuple[int, ...], tuple[Any, ...]] | None:
    """Positions of the operands that a gradient can flow to, and their edges, those of lists too.

    None if no operand requires grad; empty if one does whose gradient goes nowhere (TEN-21).
    """
    needed: list[int] = []
    edges: list[Edge | None] = []
    tracked = False
    for position in vjp.positions:
        value = args[position]
        if isinstance(value, Tensor):
            node = value._node
            if value._root is None and node is not None:
                needed.append(position)
                edges.append((node, value._index))
            elif value._leaf or value._root is not None:
                edge = edge_of(value)
                if edge is not None:
                    needed.append(position)
                    edges.append(edge)
                elif not tracked:
                    tracked = value.requires_grad
        elif type(value) is tuple:
            found = [edge_of(item) if isinstance(item, Tensor) else None for item in value]
            if any(edge is not None for edge in found):
                needed.append(position)
                edges += found
    return (tuple(needed), tuple(edges)) if needed or tracked else None


def _beside(operand: Tensor, target: Tensor) -> Tensor:
    """An operand of a write, without history if it lies in the memory that is written.

    It cannot be read afterwards, its version being another; with its history, which the write
    becomes part of, it would hold itself alive (TEN-13).
    """
    return detached_alias(operand) if operand.storage is target.storage else operand


def _old_value(tensor: Tensor) -> Tensor:
    """A copy of a tensor about to be written, with its history: gradients of gradients read it."""
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
    """Makes `node`, an in-place op that has just written `tensor`, part of the family's history."""
    rebase(tensor, node, 0, base_edge, 0 if node.needed[:1] == (0,) else None)


def rebase(
    tensor: Tensor, node: TapeNode, index: int, base_edge: Edge | None, own: int | None
) -> None:
    """Makes result `index` of `node` the history of what was written into `tensor`.

    `own` says which of the node's edges is that of the tensor's value before.
    """
    tensor._leaf, tensor.facts = False, None
    root = tensor._root
    if root is None:
        _take(tensor, (node, index))
        return
    if tensor._chain:
        node = SliceAssign(node, shorter(_lens(tensor, root)), root.meta, base_edge, own)
        index = 0
    become(root, tensor, node, index)


def become(root: Root, tensor: Tensor, node: TapeNode, index: int) -> None:
    """Makes result `index` of `node` the history of a whole family, of which `tensor` is one."""
    tensor._leaf = False
    base = tensor if tensor._base is None else tensor._base
    before = root.node
    if before is not None and before.extra is not None:
        move_retained(base, (before, root.index), (node, index))
    root.node, root.index, root.leaf = node, index, False
    keep_form_at(node, index, base)
    _go_stale(tensor)


def _lens(tensor: Tensor, root: Root) -> Chain:
    """A chain from the root through which a part can be put back (TEN-17).

    Where a step repeats elements (`expand`, windows that overlap), putting back what was written
    in one of the copies is not defined step by step: one window on the root's memory is.
    """
    if not tensor._chain.repeats:
        return tensor._chain
    return window_on(root.meta, root.offset, tensor.meta, tensor.offset)


def change_geometry(tensor: Tensor, step: Step) -> None:
    """Extends the object's own chain after a geometry op such as `t_` (TEN-24).

    Of a leaf (under no_grad), gradients from its uses before come in the old geometry: the node
    that collected them now passes them on through the same change.
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
    """Makes the next question for the tensor's edge follow the chain from the root.

    One that retains its gradient is asked at once: its new history has to know.
    """
    before, index = tensor._node, tensor._index
    tensor._node = None
    tensor.facts = None
    tensor._seen = -1
    if before is not None and before.extra is not None and tensor._kind not in RESTRICTED:
        edge = edge_of(tensor)
        if edge is not None:
            move_retained(tensor, (before, index), edge)
