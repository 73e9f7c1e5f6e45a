"""The autograd history of views: roots, view chains, lazy refresh.

A base and its views are a family with one internal `ViewRoot`, which has the tape edge of the whole
memory. Each tensor of the family, the base too, is a chain of views from the root:

    ViewRoot (edge, geometry)                 a write to any member replaces the root's edge
      +- base      chain: ()                  edge_of(base) is the root's
      +- base[0]   chain: (select 0)          edge_of(view) is a SelectBackward to the root's edge,
      +- base.t()  chain: (t)                 made anew when the version has changed since

The refresh is lazy, and makes tape nodes only; it runs no op. `t_` extends an object's own chain;
writes are in `inplace_writes`. PyTorch has the same scheme in its DifferentiableViewMeta. Rules:
TEN-3, TEN-15..TEN-21, TEN-24. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

from collections.abc import Iterable

from aotlite.eager.autograd.as_strided_chain import step_between, window_on
from aotlite.eager.autograd.nodes.accumulate_grad import AccumulateGrad, new_accumulator
from aotlite.eager.autograd.nodes.gradient_forms import keep_any_form, keep_form
from aotlite.eager.autograd.nodes.op_nodes import OpNode, calls_of, new_call, new_node
from aotlite.eager.autograd.nodes.retained_grads import move_retained
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tape.node import Edge
from aotlite.eager.base.tape.view_chain import PartStep, ViewStep
from aotlite.eager.base.tape.view_root import RESTRICTED, CreationKind, ViewRoot
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import AutogradError, GraphError, noted
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import MultiViewOp, ViewOp, Vjp
from aotlite.ir.ops.views.view_ops import AS_STRIDED


def is_stale(view: Tensor) -> bool:
    """Whether a restricted view's memory was written since its history was last computed.

    A leaf is never stale: its history is its own (TEN-23).
    """
    restricted = view._kind in RESTRICTED and not (view._leaf and view._node is None)
    return restricted and view._root is not None and view._seen != view.storage.version


def accumulator(leaf: Tensor) -> AccumulateGrad:
    """The `AccumulateGrad` node of a leaf."""
    return leaf._accumulator or new_accumulator(leaf)


def follow_leaf(tensor: Tensor) -> None:
    """Updates the root of a base that has just begun or ceased to be a leaf that requires grad.

    Earlier views of the base share its history (TEN-3). A view that becomes a leaf has a history of
    its own, and does not change its base (TEN-23).
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


def root_of(tensor: Tensor) -> ViewRoot:
    """The tensor's root; made with this tensor as the base if it has none."""
    root = tensor._root
    if root is None:
        root = tensor._root = ViewRoot(tensor)
        if tensor._leaf and tensor._node is None:
            root.become_leaf(accumulator(tensor))
        tensor.facts = None
        tensor._seen = tensor.storage.version
    return root


# Note [version counters of views under no_grad]
#     y = x * 2
#     with no_grad(): v = y[0]; v.mul_(2)
# A view under no_grad shares the storage, and so the version: y is at version 1 now, and a node
# that saved y raises. But the write recorded no history. y.grad_fn is still MulBackward, and a
# gradient through `v` would be that of the old values. Before the write, `v` requires grad but its
# gradient goes nowhere (TEN-21); after it, asking for the history of `v` raises (TEN-20).
def edge_of(tensor: Tensor) -> Edge | None:
    """The edge to which this tensor's gradient goes; refreshed if the family was written since.

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

    Its views keep their history (TEN-23). `is_view` is set for a fake that stands for a view.
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


def _refresh(tensor: Tensor, root: ViewRoot, *, stale: bool) -> None:
    edge = root.edge()
    assert edge is not None
    if stale and tensor._kind in RESTRICTED:
        raise _stale_error(tensor)
    take_edge(tensor, _through(tensor, tensor._chain, edge))


def follow_base(view: Tensor) -> None:
    """Gives a view its edge through its chain, from the base's present edge."""
    root = view._root
    edge = None if root is None else root.edge()
    if edge is not None:
        take_edge(view, _through(view, view._chain, edge))
        view._seen = view.storage.version
        view.facts = None


def _through(of: Tensor, chain: Iterable[ViewStep], edge: Edge) -> Edge:
    """The edge after the views of a chain, from the edge of their operand; `of` is the view."""
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


def _refresh_without_base(tensor: Tensor, root: ViewRoot) -> None:
    """Refreshes a view after a write to a family whose base has no history."""
    if tensor._kind in RESTRICTED:
        raise _stale_error(tensor)
    if root.left and tensor._base is not None:
        take_edge(tensor, (view_node(tensor._chain[-1], None), 0))
    tensor._seen = tensor.storage.version


def take_edge(tensor: Tensor, edge: Edge) -> None:
    """Gives the tensor this edge, and moves a retained gradient to it."""
    before = tensor._node
    if before is not None and before.extra is not None:
        move_retained(tensor, (before, tensor._index), edge)
    tensor._node, tensor._index = edge
    keep_form(tensor)


def view_node(step: ViewStep, edge: Edge | None) -> OpNode:
    """The tape node of one view, made without running the view. Without an edge, its gradient goes
    nowhere."""
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
    out: Tensor,
    base: Tensor,
    op: ViewOp,
    args: tuple[object, ...],
    kind: CreationKind | None = None,
    own: Edge | None = None,
) -> None:
    """Makes `out` a differentiable view of `base` by `op`; its edge is `own`, if it is given."""
    if type(out.storage.version) is not int:
        return  # inference tensors have no autograd state (TEN-22)
    grad_mode = STATE.grad_mode
    edge = edge_of(base) if grad_mode else None  # a stale view may be viewed under no_grad
    root = base._root or root_of(base)
    out._base = base if base._base is None else base._base
    out._root = root
    out.facts = None
    out._seen = out.storage.version
    out._kind = kind or base._kind
    if op is AS_STRIDED:  # relative to the storage, not to the view it is called on (FUN-11)
        out._chain = window_on(root.meta, root.offset, out.meta, out.offset)
        its_own, edge = edge, root.edge() if edge is not None else None
        if edge is not None:
            edge = _through(out, out._chain[:-1], edge)
        elif its_own is not None and base.meta.dtype is out.meta.dtype:  # of a leaf view (TEN-23)
            own = own or (view_node(step_between(base, out), its_own), 0)
    else:
        out._chain = base._chain.then(ViewStep(op, args, base.meta, out.meta))
    if not grad_mode:
        out._kind = CreationKind.NO_GRAD
    elif edge is not None or base.requires_grad:
        out._node, out._index = own or (view_node(out._chain[-1], edge), 0)
        keep_form(out)


def node_of_parts(
    op: MultiViewOp, base: Tensor, rest: tuple[object, ...], results: tuple[TensorMeta, ...]
) -> OpNode | None:
    """The tape node of all results of a multi-output view, which joins their gradients; None if
    the operand requires no grad. A view whose history is made anew has a node of its own."""
    if op.vjp is None or not STATE.grad_mode or type(base.storage.version) is not int:
        return None
    edge = edge_of(base)
    if edge is None and not base.requires_grad:
        return None
    needed, edges = ((), ()) if edge is None else ((0,), (edge,))
    calls = calls_of(op, (base.meta, *rest))
    return new_node(new_call(op, op.vjp, calls, needed, results), (base, *rest), edges)


def dead_end(step: ViewStep) -> Edge:
    """The edge of a view whose gradient goes nowhere (TEN-21)."""
    vjp = step.parts.op.vjp if type(step) is PartStep else None
    if type(step) is not PartStep or vjp is None:
        return view_node(step, None), 0
    op, key = step.parts.op, (step.operand, *step.parts.args)
    metas = [view.result_for((step.operand, *rest))[0] for view, rest in op.result_for(key)]
    call = new_call(op, vjp, calls_of(op, key), (), tuple(metas))
    return new_node(call, (), ()), step.index


def edges_of(
    vjp: Vjp, args: tuple[object, ...]
) -> tuple[tuple[int, ...], tuple[Edge | None, ...]] | None:
    """(positions, edges) of the operands that require grad, those in lists too.

    None if no operand requires grad; empty tuples if only operands do whose gradient goes nowhere
    (TEN-21).
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
