"""`facts_of(tensor)`: the properties of a tensor that guards compare, as one interned object.

    class Tensor without history, also a view such as x[0]    its meta itself
    other tensors                                             a `TensorFacts`

"Without history": it does not require grad, counts its versions, and may be written like any other
tensor. Facts are compared by identity. They are cached in the tensor's slot `facts`, which the
constructor sets and every change of the autograd state clears. The facts of a member of a view
family are not cached, as a write to the base changes them; only a leaf that is a base has them
cached. Rule: GRD-1. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Protocol

import attrs

from aotlite.eager.autograd.differentiable_views import is_stale, root_of
from aotlite.eager.autograd.inplace_writes import is_leaf_family
from aotlite.eager.autograd.nodes.retained_grads import is_watched
from aotlite.eager.base.tape.view_chain import overlaps_itself
from aotlite.eager.base.tape.view_root import CreationKind
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import is_wrapper
from aotlite.ir.forks import cached_property
from aotlite.ir.meta import TensorMeta


@attrs.frozen
class TensorFacts:
    """The properties, but for the offset, of a tensor that is not plain."""

    kind: type[Tensor]
    meta: TensorMeta
    requires_grad: bool
    is_leaf_requiring_grad: bool
    """Whether it is a leaf that requires grad; `Tensor.is_leaf` needs no grad for that."""
    view_kind: CreationKind | None
    has_view_node: bool
    """Whether it is a view of a restricted kind with a tape node of its own."""
    is_stale: bool
    is_leaf_view: bool
    """Whether it is a leaf, or a view whose base is a leaf, that requires grad, and a view."""
    is_on_plain_base: bool
    """Whether it is a view that requires grad of a base that does not: so do its views, if they are
    taken under no_grad (TEN-23)."""
    is_inference: bool
    """Whether it was made in inference mode, without a version counter (TEN-22)."""
    is_watched_view: bool
    """Whether it is a view with hooks of its own, or retains its gradient (TEN-39)."""
    is_on_overlap: bool
    """Whether it is a view of a base that overlaps itself, so that no write to it can have a
    history (TEN-7)."""

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        return fact_words(self, self.kind.__name__, str(self.meta))


class NamedFacts(Protocol):
    """Facts in whichever form: of a tensor, or in a file."""

    @property
    def requires_grad(self) -> bool: ...
    @property
    def is_leaf_requiring_grad(self) -> bool: ...
    @property
    def view_kind(self) -> CreationKind | None: ...
    @property
    def is_stale(self) -> bool: ...
    @property
    def is_leaf_view(self) -> bool: ...
    @property
    def is_on_plain_base(self) -> bool: ...
    @property
    def is_inference(self) -> bool: ...
    @property
    def is_watched_view(self) -> bool: ...
    @property
    def is_on_overlap(self) -> bool: ...


def fact_words(facts: NamedFacts, kind: str, meta: str) -> str:
    """Facts in words, with the name of the tensor's class and the words of its meta."""
    words = {
        kind: kind != "Tensor",
        meta: True,
        "a leaf that requires grad": facts.is_leaf_requiring_grad,
        "requires grad": facts.requires_grad and not facts.is_leaf_requiring_grad,
        facts.view_kind and facts.view_kind.value: facts.view_kind is not None,
        "stale": facts.is_stale,
        "a view of a leaf": facts.is_leaf_view,
        "on a base that requires none": facts.is_on_plain_base,
        "an inference tensor": facts.is_inference,
        "with hooks": facts.is_watched_view,
        "a view of a base that overlaps itself": facts.is_on_overlap,
    }
    return ", ".join([str(word) for word, holds in words.items() if holds])


_INTERNED: dict[tuple[object, ...], TensorFacts] = {}
"""Field values -> the interned facts. A tuple is faster to make, hash and compare than a record."""


_WITHOUT_META = attrgetter(*[x.name for x in attrs.fields(TensorFacts) if x.name != "meta"])


class Mark:
    """The facts of a tensor, marked as argument number i of the last call of an entry.

    An entry puts a different mark into the slot `facts` of each argument. If the marks are still
    there in the next call, the guards hold, and the arguments are different objects.
    """

    __slots__ = ("facts",)

    def __init__(self, facts: TensorFacts | TensorMeta) -> None:
        self.facts = facts


def are_recognized(tensors: Sequence[Tensor], marks: Sequence[Mark]) -> bool:
    """Whether the tensors are different objects with the marks' facts; if so, marks them.

    A tensor keeps the mark of another entry, so that two entries that are called in turns do not
    mark all their arguments again and again.
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
        requires_grad and tensor._base is not None and not root_of(tensor).requires_grad,
        inference,
        tensor._base is not None and tensor._node is not None and is_watched(tensor),
        overlap,
    )
    return _INTERNED.get(key) or _INTERNED.setdefault(key, TensorFacts(*key))


def facts_without_sizes(tensor: Tensor) -> tuple[object, ...]:
    """The facts of a tensor but for sizes and strides, comparable by value."""
    found = facts_of(tensor)
    meta = tensor.meta
    own = (meta.dtype, meta.device, meta.ndim)
    if isinstance(found, TensorMeta):
        return own
    return *own, *_WITHOUT_META(found)
