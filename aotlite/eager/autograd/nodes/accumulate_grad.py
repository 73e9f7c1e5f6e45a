"""`AccumulateGrad`: adds gradients to the `.grad` of a leaf, by copying them or taking them over.

Rules: TEN-24, TEN-29, TEN-41, TEN-45. Spec: `specs/autograd.md`.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence

from aotlite.eager.autograd.nodes.op_nodes import laid_out, replay
from aotlite.eager.base.modes import STATE
from aotlite.eager.base.tape.gradient_lock import gradient_lock
from aotlite.eager.base.tape.hooks import Hooks
from aotlite.eager.base.tape.node import LAST, Gradients, TapeNode
from aotlite.eager.base.tape.view_chain import EMPTY_CHAIN, ViewChain
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import (
    dense_parts,
    flatten,
    formed,
    inner_tensors,
    is_wrapper,
    unflatten,
)
from aotlite.ir.errors import AutogradError
from aotlite.ir.geometry.sizes import asks_first, needed
from aotlite.ir.meta.devices import check_device


class AccumulateGrad(TapeNode):
    """The tape node of a leaf: adds its gradient to the leaf's `.grad` (TEN-29).

    The leaf keeps the node alive, but not the reverse: the gradient of a deleted leaf is dropped.
    After a change of the leaf's geometry a new node accumulates, and this one passes gradients on.
    """

    __slots__ = ("_leaf", "chain", "collected")

    def __init__(self, leaf: Tensor) -> None:
        self._leaf = weakref.ref(leaf)
        self.chain = EMPTY_CHAIN
        self.edges = ()
        self.sequence = LAST
        self.origin = self.extra = None
        self.collected: Hooks = {}

    @property
    def leaf(self) -> Tensor | None:
        """The leaf; None if it was deleted."""
        return self._leaf()

    variable = leaf

    @property
    def is_plain(self) -> bool:
        """Whether the node only adds to the leaf's `.grad`: no hooks, no other geometry."""
        return not self.edges and not self.collected and (self.extra is None or self.extra.is_idle)

    def is_outside(self) -> bool:
        leaf, recorder = self._leaf(), STATE.recorder
        return leaf is not None and recorder is not None and recorder.is_outside(leaf)

    def formed(self, index: int, grad: Tensor) -> Tensor:
        leaf = self._leaf()
        return grad if leaf is None else formed(leaf, grad)

    def pass_on(self, chain: ViewChain, node: AccumulateGrad) -> None:
        """From now on passes gradients, viewed through `chain`, to `node`, which gets the hooks."""
        self.chain = chain
        self.edges = ((node, 0),)
        node.extra, self.extra = self.extra, None
        node.collected, self.collected = self.collected, {}

    def run(self, grads: Gradients) -> Sequence[Tensor | None]:
        leaf = self._leaf()
        if leaf is None or grads[0] is None:
            return [None] * len(self.edges)
        if self.chain:
            return [replay(self.chain, laid_out(grads[0], self.chain[0].operand))]
        if collects(leaf):
            accumulate(leaf, grads)
        for hook in list(self.collected.values()):
            hook(leaf)
        return ()


def new_accumulator(leaf: Tensor) -> AccumulateGrad:
    """The new node of a leaf; the same one if several threads ask at once (TEN-45)."""
    with gradient_lock():
        node = leaf._accumulator
        if node is None:
            node = leaf._accumulator = AccumulateGrad(leaf)
        return node


def collects(leaf: Tensor) -> bool:
    """Whether the leaf still requires grad: `requires_grad_(False)` may have come since."""
    return leaf._leaf or leaf._node is not None


def accumulate(leaf: Tensor, grads: Gradients) -> None:
    """Adds the gradient in `grads`, the only reference to it, to the leaf's `.grad` (TEN-29)."""
    recorder = STATE.recorder
    meta = grads[0].meta
    if meta.shape != leaf.meta.shape or meta.dtype is not leaf.meta.dtype:
        raise AutogradError(
            f"backward: the gradient is {meta}, expected the shape and dtype of the leaf, "
            f"{leaf.meta}"
        )
    check_device("backward: the gradient of a leaf", meta.device, leaf.meta.device)
    if recorder is not None and recorder.is_outside(leaf):
        recorder.grads.add(leaf, grads)
        return
    with gradient_lock():
        if leaf._grad is None:
            taken_over = _adopted_parts if is_wrapper(grads[0]) else adopted
            leaf._grad = taken_over(grads, leaf)
        elif STATE.grad_mode:
            leaf._grad = leaf._grad + grads[0]
        else:
            leaf._grad.add_(grads[0])


def adopted(grads: Gradients, leaf: Tensor) -> Tensor:
    """The gradient itself if nobody else refers to it and it has the leaf's layout; else a copy.

    `grads` must hold the engine's only reference: no caller may keep the gradient in a variable.
    """
    meta = leaf.meta
    stride = meta.stride if meta.dense else meta.as_contiguous().stride
    if STATE.grad_mode:  # it stays part of a graph
        return grads[0].restride(stride)
    fits = _same_layout(meta.shape, grads[0].meta.stride, stride)
    if fits and grads[0]._base is None and _is_ours_alone(grads):
        return grads[0].detach()
    return grads[0].detach().restride(stride)


def _adopted_parts(grads: Gradients, leaf: Tensor) -> Tensor:
    """`adopted` for a gradient that is a wrapper: nobody else may refer to it or its parts.

    A copy has the leaf's layout, and each of its parts that of the leaf's part, if there is one.
    """
    meta = leaf.meta
    stride = meta.stride if meta.dense else meta.as_contiguous().stride
    fits = grads[0].meta.stride == stride and not STATE.grad_mode
    if fits and _parts_are_ours(grads, leaf):
        return grads[0]
    grad = grads[0] if STATE.grad_mode else grads[0].detach()
    made: Tensor = grad.clone() if grad.meta.stride == stride else grad.restride(stride)
    return made if STATE.grad_mode else _laid_inside(made, leaf)


def _parts_are_ours(grads: Gradients, leaf: Tensor) -> bool:
    """Whether nobody else refers to the wrapper in `grads` or its parts, of the leaf's layouts.

    The parts must be its direct attributes: others might refer to a list of them.
    """
    if sys.getrefcount(grads[0]) > 2 or type(grads[0]) is not type(leaf):
        return False
    if grads[0]._base is not None or grads[0].requires_grad or weakref.getweakrefcount(grads[0]):
        return False
    likes, parts = dense_parts(leaf), dense_parts(grads[0])
    own = getattr(grads[0], "__dict__", None)
    if likes is None or parts is None or own is None or sys.getrefcount(own) > 3:
        return False
    if len(own) != len(parts) or {id(held) for held in own.values()} != set(map(id, parts)):
        return False
    while parts:
        part, like = parts.pop(), likes.pop()
        if not _lies_as(part, like) or part._base is not None or part.requires_grad:
            return False
        if not _is_ours_alone([part], _OF_A_WRAPPER):
            return False
    return True


def _laid_inside(made: Tensor, leaf: Tensor) -> Tensor:
    """The wrapper with the layouts of the leaf's parts; unchanged where the leaf has none."""
    own = type(made) is type(leaf)
    quick, likes = dense_parts(made), dense_parts(leaf) if own else None
    if quick and likes and all(map(_lies_as, quick, likes)):
        return made
    parts = inner_tensors(made)
    new = {name: _laid_as(x, getattr(leaf, name) if own else made) for name, x in parts.items()}
    if all(new[name] is part for name, part in parts.items()):
        return made
    meta = made.meta
    found: Tensor = unflatten(type(made), new, flatten(made)[1], meta.shape, meta.stride)
    return found


def _lies_as(part: Tensor, like: Tensor) -> bool:
    return part.meta is like.meta and part.meta.dense


def _laid_as(part: Tensor, like: Tensor) -> Tensor:
    same = like.meta.shape == part.meta.shape and like.meta.dense
    stride = like.meta.stride if same else part.meta.as_contiguous().stride
    laid: Tensor = part if part.meta.stride == stride else part.restride(stride)
    return _laid_inside(laid, like) if is_wrapper(laid) else laid


def _same_layout(shape: tuple[int, ...], a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether strides agree, apart from those of dimensions of size 1."""
    if asks_first((*a, *b)):
        return needed(_same_layout, shape, a, b)
    return a == b or all(n == 1 or x == y for n, x, y in zip(shape, a, b, strict=True))


_OF_A_WRAPPER = 4
"""getrefcount of a part: its argument, a list, a variable and the wrapper."""


def _is_ours_alone(holder: list[Tensor], known: int = 2) -> bool:
    """Whether the list holds the only reference to a tensor, and nobody else its memory.

    getrefcount counts its own argument too. False for captured tensors, whose copies cost nothing.
    """
    if sys.getrefcount(holder[0]) > known or weakref.getweakrefcount(holder[0]):
        return False
    storage = holder[0].storage
    if storage.buffer is None or storage.exported or sys.getrefcount(storage) > 3:
        return False
    return _is_held_once(holder[0]) and is_whole(holder[0])


def _is_held_once(tensor: Tensor) -> bool:
    """Whether nobody else has the array that shows the tensor's memory, nor its buffer."""
    storage, shown = tensor.storage, 0
    if tensor._array is not None:
        shown = int(tensor._array is storage.buffer or tensor._array.base is storage.buffer)
        if tensor._array is not storage.buffer and sys.getrefcount(tensor._array) > 2:
            return False
    return sys.getrefcount(storage.buffer) <= 2 + shown


def is_whole(tensor: Tensor) -> bool:
    """Whether the tensor shows all of its buffer: a part would keep the rest alive."""
    nbytes: int = tensor.storage.buffer.nbytes
    return tensor.offset == 0 and nbytes == tensor.meta.span * tensor.meta.dtype.itemsize
