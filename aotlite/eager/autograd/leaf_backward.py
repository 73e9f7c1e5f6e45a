"""A fast path of backward: one tape node whose gradients all go to leaves, without the engine.

The tape of a compiled training step is like that. It does the same as the engine, in its order: run
the node, free its saved values, accumulate in the leaves. Rules: TEN-27..TEN-29.
Spec: `specs/autograd.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount
from typing import Any

from aotlite.eager.autograd.nodes.accumulate_grad import AccumulateGrad, accumulate, is_whole
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.new_tensors import tensor_over
from aotlite.eager.base.tape.gradient_lock import gradient_lock
from aotlite.eager.base.tape.node import TapeNode
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.arrays import ArrayBuffer, copied
from aotlite.ir.meta import TensorMeta

Leaves = list[AccumulateGrad | None]


def single(tensor: Any, gradient: Any) -> tuple[TapeNode, list[Tensor | None], Leaves] | None:
    """(the only node behind `tensor`, its gradients, the AccumulateGrad nodes of the leaves).
    None where the engine is needed: more nodes, hooks, anomaly mode, other roots.
    """
    if not isinstance(tensor, Tensor):
        tensor, gradient = _alone(tensor, gradient)
    if tensor is None or tensor._root is not None or STATE.recorder is not None:
        return None
    if STATE.tapes is not None or STATE.watch is not None:
        return None
    node = tensor._node
    leaves = None if node is None or node.extra is not None else node.leaf_nodes()
    if leaves is None:
        return None
    meta = tensor.meta
    if not isinstance(gradient, Tensor):
        if gradient is not None or meta.numel != 1 or meta.dtype.is_complex:
            return None
        if tensor.__tensor_dispatch__ is not None:
            return None
        gradient = tensor_over(copied(meta.device.arrays, 1, meta), meta)
    elif gradient.meta is not meta or tensor.__tensor_dispatch__ is not None:
        return None
    count = node.results()
    if count == 1:
        return node, [gradient], leaves
    grads: list[Tensor | None] = [None] * count
    grads[tensor._index] = gradient
    return node, grads, leaves


def _alone(tensors: object, gradients: object) -> tuple[object, object]:
    """The single tensor of a list, and its gradient; None for several tensors."""
    if not isinstance(tensors, (list, tuple)) or len(tensors) != 1:
        return None, None
    if isinstance(gradients, (list, tuple)) and len(gradients) == 1:
        gradients = gradients[0]
    return (tensors[0], gradients) if isinstance(tensors[0], Tensor) else (None, None)


def grad_single(
    tensor: object, gradient: object, inputs: Any, *, retain: bool
) -> Sequence[Tensor | None] | None:
    """The gradients of the inputs, by one node; None where the engine is needed."""
    one = single(tensor, gradient)
    if one is None:
        return None
    node, grads, leaves = one
    inputs = (inputs,) if isinstance(inputs, Tensor) else inputs
    in_order = _are_these(inputs, leaves)
    places = None if in_order else _places_of(inputs, leaves)
    if not in_order and places is None:
        return None
    found = run_single(node, grads, retain=retain)
    if places is None:
        return found
    return [None if place is None else found[place] for place in places]


def run_single(node: TapeNode, grads: list[Tensor | None], *, retain: bool) -> list[Tensor | None]:
    """The gradients for the node's edges."""
    found = node.gradients(grads) or [None] * len(node.edges)
    if not retain:
        node.release()
    return found


def collect(found: list[Tensor | None], leaves: Leaves) -> None:
    """Adds the gradients to the leaves' `.grad`."""
    mode = STATE.grad_mode
    STATE.grad_mode = False
    try:
        with gradient_lock():
            for i, end in enumerate(leaves):
                leaf = None if end is None or found[i] is None else end.leaf
                if leaf is not None and (leaf._leaf or leaf._node is not None):
                    _add(leaf, found, i)
    finally:
        STATE.grad_mode = mode


def collect_windows(
    leaves: Sequence[Tensor],
    windows: Sequence[tuple[ArrayBuffer, int]],
    layouts: Sequence[tuple[TensorMeta, int]],
) -> None:
    """`collect` for results of kernels that are no tensors yet, each in memory of its own.
    With the meta of a result comes the size in bytes of a buffer that the leaf may take over; -1
    where the leaf has another layout.
    """
    with gradient_lock():
        for leaf, (buffer, offset), (meta, size) in zip(leaves, windows, layouts, strict=True):
            if leaf._grad is None and not offset and buffer.nbytes == size:
                leaf._grad = tensor_over(buffer, meta)
            else:
                _add(leaf, [tensor_over(buffer, meta, offset)], 0)


# Note [references of a gradient]
#     (v + w).backward(g)
# One tensor, g, is the gradient of both leaves. If v.grad and w.grad were g itself, v.grad.zero_()
# would clear both and g. So a leaf takes over the gradient's memory if nobody else refers to it,
# and copies it otherwise. The test is the reference count of the storage: one for the gradient, one
# for getrefcount's argument. One more variable for the storage, here or in a caller, and every
# gradient is copied: no result shows that, only the time.
def _add(leaf: Tensor, found: list[Any], i: int) -> None:
    grad, meta, before = found[i], leaf.meta, leaf._grad
    if grad.facts is meta and meta.contiguous:  # a new plain tensor of the very layout
        if before is None:  # taken, if nothing else lies in its storage
            # getrefcount counts its own argument too.
            if getrefcount(grad.storage) > 2 or not is_whole(grad):
                grad = tensor_over(copied(meta.device.arrays, grad._data, meta), meta)
            leaf._grad = grad
            return
        if _has_no_history(before) and before.meta is meta and before.storage.writable:
            _add_in_place(before, grad)
            return
    del grad
    holder, found[i] = [found[i]], None
    accumulate(leaf, holder)


def _has_no_history(tensor: Tensor) -> bool:
    """Whether a write changes the tensor's bytes and nothing else: no history, no other views."""
    history = tensor._leaf or tensor._node is not None or tensor._root is not None
    return type(tensor) is Tensor and not history


def _add_in_place(total: Tensor, grad: Tensor) -> None:
    """`total.add_(grad)` for plain tensors of one layout, without the dispatcher."""
    arrays = total.meta.device.arrays
    if total.storage.write_observers is not None:
        total.storage.before_write()
    arrays.copy(total._data, arrays.quiet(arrays.namespace.add, total._data, grad._data))
    total.storage.version += 1


def _places_of(inputs: Sequence[object], leaves: Leaves) -> Sequence[int | None] | None:
    """The index among `leaves` of each input; None for an input that is not among them.
    None altogether where an input is not a leaf that requires grad, or none is among `leaves`.
    """
    nodes = []
    for each in inputs:
        if not isinstance(each, Tensor) or not each._leaf or each._node is not None:
            return None
        nodes.append(each._accumulator)
    known = {id(end): i for i, end in enumerate(leaves) if end is not None}
    places = [None if node is None else known.get(id(node)) for node in nodes]
    return None if all(place is None for place in places) else places


def _are_these(inputs: Sequence[Any], leaves: Leaves) -> bool:
    """Whether the inputs are the leaves, one by one."""
    try:
        ends = [t._accumulator if t._leaf and t._node is None else None for t in inputs]
    except AttributeError:  # not all are tensors
        return False
    return ends == leaves and all(ends)  # nodes are equal only to themselves
