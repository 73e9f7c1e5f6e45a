"""Methods of tensors for autograd: `requires_grad_`, `grad_fn`, `detach_`, `retain_grad`, hooks.

They are functions here; `eager.tensor_methods` makes them methods. Rules: TEN-14, TEN-23, TEN-39 to
TEN-41. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aotlite.eager.autograd.differentiable_views import detach_in_place, edge_of, follow_leaf
from aotlite.eager.autograd.nodes.retained_grads import retain_at, retains
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tape.hooks import RemovableHandle
from aotlite.eager.base.tape.node import TapeNode
from aotlite.eager.base.tensor import Tensor, here
from aotlite.ir.errors import AutogradError, DTypeError, noted


def requires_grad_(tensor: Tensor, requires_grad: bool = True) -> Tensor:
    """Sets whether gradients are accumulated in this leaf; returns the tensor (TEN-14).

    Raises DTypeError for integers, AutogradError for turning it off on a non-leaf.
    """
    me = here(tensor)
    value = bool(requires_grad)
    if value and not tensor.dtype.is_differentiable:
        raise DTypeError(
            f"requires_grad_: the dtype is {tensor.dtype}, expected a floating or complex one"
        )
    if not value and not me.is_leaf:
        raise AutogradError(
            "requires_grad_: the tensor is not a leaf, expected a leaf; use detach()"
        )
    if value and tensor.is_inference() and STATE.grad_mode is not None:
        raise noted(
            AutogradError(
                "requires_grad_: the tensor is an inference tensor, expected an ordinary one "
                "outside of inference_mode"
            ),
            "clone() it outside of inference_mode. (TEN-22)",
        )
    if value != me._leaf and (me._leaf or me._leads_nowhere()):
        recorder = STATE.recorder
        alone = recorder is not None and recorder.changes.made_leaf(me, requires_grad=value)
        me._leaf = value
        me.facts = None
        if not alone:
            follow_leaf(me)
    return tensor


def grad_fn(tensor: Tensor) -> TapeNode | None:
    """The tape node whose result this tensor is; None for a leaf.

    Raises AutogradError for a stale view of a restricted kind (TEN-20).
    """
    me = here(tensor)
    edge_of(me)
    return me._node


def detach_(tensor: Tensor) -> Tensor:
    """Detaches the tensor from its history, so that it is a leaf that does not require grad.

    Raises AutogradError for a view, whose history is its base's (TEN-23).
    """
    me, recorder = here(tensor), STATE.recorder
    detach_in_place(me, is_view=recorder is not None and recorder.changes.detached(me))
    return tensor


# ----------------------------------------------------------------------------------------- hooks
def register_hook(tensor: Tensor, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
    """Registers `hook(grad)`, which runs when the gradient of this tensor has been computed.

    A tensor that the hook returns replaces the gradient. Raises AutogradError for a tensor that
    does not require grad.
    """
    edge = _hookable(tensor, "register_hook")
    if edge is None:
        return RemovableHandle.of({}, hook)
    node, index = edge
    handle = RemovableHandle.of(node.attachments().tensors.setdefault(index, {}), hook)
    if STATE.recorder is not None:
        STATE.recorder.hooks.placed("gradient", here(tensor), edge, handle)
    return handle


def register_post_accumulate_grad_hook(
    tensor: Tensor, hook: Callable[[Tensor], None]
) -> RemovableHandle:
    """Registers `hook(tensor)`, which runs after a gradient was added to this leaf's `.grad`."""
    what = "register_post_accumulate_grad_hook"
    edge = _hookable(tensor, what)
    if edge is None:
        return RemovableHandle.of({}, hook)
    node = edge[0]
    if not here(tensor)._is_tracked_leaf():
        raise AutogradError(f"{what}: the tensor is not a leaf, expected a leaf")
    node.attachments()
    handle = RemovableHandle.of(node.collected, hook)
    if STATE.recorder is not None:
        STATE.recorder.hooks.placed("accumulated", here(tensor), edge, handle)
    return handle


def retain_grad(tensor: Tensor) -> None:
    """Makes this non-leaf tensor keep its gradient in `.grad` (TEN-40)."""
    me = here(tensor)
    if not me.requires_grad:
        _hookable(tensor, "retain_grad")
    if not me._is_tracked_leaf() and not me._leads_nowhere():
        retain_at(me, *_hookable(tensor, "retain_grad"))
        if STATE.recorder is not None:
            STATE.recorder.hooks.retained(me)


def retains_grad(tensor: Tensor) -> bool:
    """Whether this is a non-leaf tensor that keeps its gradient in `.grad`."""
    me = here(tensor)
    return retains(me, me._node, me._index)


def _hookable(tensor: Tensor, what: str) -> Any:
    """The tensor's edge, for a hook; None for a view made under no_grad, which gets no gradient."""
    if STATE.recorder is not None:
        STATE.recorder.unrecorded = True  # no op in the graph shows this change
    me = here(tensor)
    edge = edge_of(me)
    if edge is None and not me.requires_grad:
        raise AutogradError(f"{what}: the tensor does not require grad, expected one that does")
    return edge
