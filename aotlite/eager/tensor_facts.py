"""`facts_of(tensor)`: all that a compiled entry depends on of one tensor, as one interned object.

The facts of a plain tensor (class `Tensor`, no history, no view) are its meta itself, so a new
tensor has them without being asked. Others are found by `facts_of`, and kept in the tensor's slot
`facts` where only changes of the tensor itself can change them; whatever changes its autograd state
puts None there. A tensor of a view family is asked each time: a write to its base changes it.
Compare by identity. Rule: GRD-1. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from aotlite.eager.autograd.differentiable_views import is_stale, root_of
from aotlite.eager.autograd.inplace_writes import is_leaf_family
from aotlite.eager.autograd.nodes.retained_grads import is_watched
from aotlite.eager.base.tape.view_chain import overlaps_itself
from aotlite.eager.base.tape.view_root import CreationKind
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.ir.meta import TensorMeta


@attrs.frozen
class TensorFacts:
    """What programs can be told by of a tensor that is not plain; where it starts is not in it."""

    kind: type[Tensor]
    meta: TensorMeta
    requires_grad: bool
    is_leaf: bool
    """A leaf that requires grad."""
    view_kind: CreationKind | None
    has_view_node: bool
    """A view of a restricted kind that has a tape node of its own."""
    is_stale: bool
    is_leaf_view: bool
    """A view whose base is a leaf that requires grad."""
    is_inference: bool
    """Made in inference mode: its writes are not counted (TEN-22)."""
    is_watched_view: bool
    """A view with hooks of its own, or that retains its gradient (TEN-39)."""
    is_on_overlap: bool
    """A view of a base that overlaps itself: no write to it can have a history (TEN-7)."""

    def __str__(self) -> str:
        words = [str(self.meta)]
        if self.kind is not Tensor:
            words.insert(0, self.kind.__name__)
        if self.is_leaf:
            words.append("a leaf that requires grad")
        elif self.requires_grad:
            words.append("requires grad")
        if self.view_kind is not None:
            words.append(self.view_kind.value)
        if self.is_stale:
            words.append("stale")
        if self.is_leaf_view:
            words.append("a view of a leaf")
        if self.is_inference:
            words.append("an inference tensor")
        if self.is_watched_view:
            words.append("with hooks")
        if self.is_on_overlap:
            words.append("a view of a base that overlaps itself")
        return ", ".join(words)


_INTERNED: dict[tuple[Any, ...], TensorFacts] = {}
"""By the values of their fields: a tuple is made, hashed and compared faster than a record."""


class Mark:
    """Facts of the tensor that was argument number so and so of an entry when it was last called.

    No other tensor has this mark, so that one look at the slot tells an entry the facts and, each
    argument having its own, that the arguments are different objects.
    """

    __slots__ = ("facts",)

    def __init__(self, facts: TensorFacts | TensorMeta) -> None:
        self.facts = facts


def are_recognised(tensors: Sequence[Tensor], marks: Sequence[Mark]) -> bool:
    """Whether the tensors are different objects with the marks' facts; then they get the marks.

    A tensor that has the mark of another entry keeps it, so that two entries that are called by
    turns do not mark all their arguments at each call.
    """
    for tensor, mark in zip(tensors, marks, strict=True):
        kept = tensor.facts
        if kept is not mark and kept is not mark.facts and facts_of(tensor) is not mark.facts:
            return False
    if len({*tensors}) != len(tensors):
        return False
    for tensor, mark in zip(tensors, marks, strict=True):
        if tensor.facts is mark.facts:
            tensor.facts = mark
    return True


def facts_of(tensor: Tensor) -> TensorFacts | TensorMeta:
    """The facts of a tensor: the same object for equal facts.

    Raises UnsupportedError for a tensor of a capture, which has no data.
    """
    found: TensorFacts | TensorMeta | Mark | None = tensor.facts
    if type(found) is Mark:
        return found.facts
    if found is None:
        root, storage = tensor._root, tensor.storage
        if (  # a view without history, which is asked at each call: written out
            root is not None
            and root.node is None
            and root.meta.dense
            and tensor._node is None
            and tensor._kind is None
            and not tensor._leaf
            and type(tensor) is Tensor
            and type(storage.version) is int
            and storage.buffer is not None
        ):
            return tensor.meta
        found = _found(tensor)
        if root is None or (tensor._leaf and tensor._base is None):
            tensor.facts = found
    return found  # type: ignore[return-value]


def _found(tensor: Tensor) -> TensorFacts | TensorMeta:
    storage = tensor.storage
    if storage.buffer is None and (storage.capture is not None or not is_wrapper(tensor)):
        raise tensor.storage.no_data("compile")
    requires_grad = tensor.requires_grad_outside()
    kind = tensor._kind
    inference = type(tensor.storage.version) is not int
    overlap = tensor._base is not None and overlaps_itself(root_of(tensor).meta)
    if type(tensor) is Tensor and not (requires_grad or kind is not None or inference or overlap):
        return tensor.meta
    key = (
        type(tensor),
        tensor.meta,
        requires_grad,
        tensor._leaf and tensor._node is None,
        kind,
        kind is not None and tensor._node is not None,
        is_stale(tensor),
        requires_grad and tensor._base is not None and is_leaf_family(tensor),
        inference,
        tensor._base is not None and tensor._node is not None and is_watched(tensor),
        overlap,
    )
    return _INTERNED.get(key) or _INTERNED.setdefault(key, TensorFacts(*key))
