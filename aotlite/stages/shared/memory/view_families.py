"""View families: inputs that are views of one base, and share its history.

    base ──> a = base[:3], b = base[2:]      a.mul_(2) changes the history of base, and so of b

The fakes of such inputs share a `ViewRoot`, as the caller's tensors do; the base's edge is one more
gradient sink. Until a write, each input keeps its own edge. The base and the views are guarded only
if they matter. Used by stage 1. Rules: SYN-2, SYN-6. Decision 0010.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import attrs

from aotlite.eager.autograd.differentiable_views import is_stale, root_of
from aotlite.eager.autograd.inplace_writes import is_leaf_family
from aotlite.eager.autograd.nodes.op_nodes import InputNode
from aotlite.eager.autograd.nodes.retained_grads import is_watched
from aotlite.eager.base.tape.node import Edge
from aotlite.eager.base.tape.view_chain import overlaps_itself
from aotlite.eager.base.tape.view_root import RESTRICTED, CreationKind, ViewRoot, twin_root
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import gradient_form, is_wrapper
from aotlite.ir.geometry.overlap import overlaps_bytes
from aotlite.ir.graph.role import Family
from aotlite.ir.meta import TensorMeta
from aotlite.stages.records.capture_inputs import CapturedFamily, InputRole


class FamilyWindow(Protocol):
    """A geometry on a storage: a tensor, or an input as it was at entry."""

    meta: TensorMeta
    offset: int


def overlapping_pairs(tensors: Sequence[FamilyWindow]) -> Iterator[tuple[int, int]]:
    """(i, j), i < j, of all pairs of tensors that share a byte; the tensors are on one storage."""
    spans = [_span(tensor) for tensor in tensors]
    reaching: list[int] = []
    for i in sorted(range(len(tensors)), key=lambda i: spans[i][0]):
        reaching = [j for j in reaching if spans[j][1] > spans[i][0]]
        for j in reaching:
            if overlaps_bytes(*_layout(tensors[i]), *_layout(tensors[j])):  # of whatever dtypes
                yield min(i, j), max(i, j)
        reaching.append(i)


def _span(tensor: FamilyWindow) -> tuple[int, int]:
    """(first byte, end)."""
    size = tensor.meta.dtype.itemsize
    return tensor.offset * size, (tensor.offset + tensor.meta.span) * size


def _layout(tensor: FamilyWindow) -> tuple[tuple[tuple[int, ...], tuple[int, ...], int], int]:
    meta = tensor.meta
    return (meta.shape, meta.stride, tensor.offset), meta.dtype.itemsize


@attrs.define(eq=False, repr=False)
class ViewFamilies:
    """The view families of a capture, by the `ViewRoot` of the caller's tensors."""

    _joined: dict[int, ViewRoot] = attrs.field(factory=dict)
    """By a tensor's id: its root, if other tensors share it."""
    _made: dict[int, CapturedFamily] = attrs.field(factory=dict)
    _bases: dict[int, Tensor] = attrs.field(factory=dict)
    _alone: dict[int, list[Tensor]] = attrs.field(factory=dict)
    """By root: tensors that were met, and were not known to share it."""
    late: list[tuple[Tensor, Tensor]] = attrs.field(factory=list)
    """Pairs that share a root, which was found out too late to make a family."""
    _several: dict[int, list[Tensor]] = attrs.field(factory=dict)
    """By root: tensors that are of a family for no reason but that others share the root."""

    def look_at(self, tensors: Iterable[Tensor]) -> None:
        """Finds the tensors that share a root, among all that the function can reach."""
        by_root: dict[int, dict[int, Tensor]] = {}
        for tensor in tensors:
            is_real = tensor.storage.buffer is not None or is_wrapper(tensor)
            if tensor._root is not None and is_real:
                by_root.setdefault(id(tensor._root), {})[id(tensor)] = tensor
        for root, members in by_root.items():
            needed = False
            for tensor in members.values():
                apart = _is_leaf_of_its_own if is_wrapper(tensor) else _is_apart
                needed |= is_wrapper(tensor) or apart(tensor)
                if len(members) > 1 or apart(tensor):
                    self._joined[id(tensor)] = tensor._root  # type: ignore[assignment]
            if not needed:
                self._several[root] = [*members.values()]

    def leave(self, tensor: Tensor) -> None:
        """Takes a tensor out of its family, and all that share its root, if they are of it for no
        other reason: Note [views with symbols for sizes] in `sized_views.py`."""
        for member in self._several.pop(id(tensor._root), ()):
            self._joined.pop(id(member), None)

    def has(self, tensor: Tensor) -> bool:
        """Whether a caller's tensor is of a family, whose root its fake gets."""
        return id(tensor) in self._joined

    def join(self, real: Tensor, fake: Tensor, role: InputRole) -> Family | None:
        """Gives a fake the root of its family; returns the family, if the tensor has one."""
        root = real._root
        if root is None:
            return None
        if id(real) not in self._joined:
            others = self._alone.setdefault(id(root), [])
            self.late += [(other, real) for other in others]
            others.append(real)
            return None
        family = self._made.get(id(root))
        if family is None:
            family = self._made[id(root)] = self._new(root, fake)
        family.members.append(role)
        if fake._root is not None and fake._node is not None:  # its own edge cuts (JNT-3)
            fake._node, fake._index = InputNode(), 0
        fake._root, fake._kind = family.root, real._kind
        fake._chain = real._chain
        fake._base = None if real._base is None else self._bases[id(root)]
        fake._seen = min(fake._seen, 0)  # what was written before it was met makes it stale
        return family.role

    def _new(self, root: ViewRoot, fake: Tensor) -> CapturedFamily:
        edge: Edge | None = None if root.node is None else (InputNode(), 0)
        twin = twin_root(root, None if edge is None else edge[0])
        base = self._bases[id(root)] = Tensor(fake.storage, root.meta, root.offset)
        base._root = twin
        return CapturedFamily(Family(len(self._made)), twin, edge, root, [])

    def all(self) -> tuple[CapturedFamily, ...]:
        """The families met, in order."""
        return tuple(self._made.values())


def _is_apart(tensor: Tensor) -> bool:
    """Whether a view needs a family even if no other input shares its base.

    It requires grad, and its base does not (TEN-23); it or its base overlaps itself (TEN-7), so it
    can only be written through the base; or it has hooks, which a write bypasses (TEN-39).
    """
    if tensor._base is None:
        return False
    root = root_of(tensor)
    if overlaps_itself(tensor.meta) or overlaps_itself(root.meta):
        return True
    if tensor._node is not None and is_watched(tensor):
        return True
    return _is_leaf_of_its_own(tensor)


def _is_leaf_of_its_own(tensor: Tensor) -> bool:
    """Whether a view requires grad on memory of a base that does not (TEN-23)."""
    apart = tensor._base is not None and tensor.requires_grad_outside()
    return apart and not root_of(tensor).requires_grad


def base_edges(families: Iterable[CapturedFamily]) -> list[tuple[Edge, Edge | None]]:
    """For each family the edge of its base in the capture, and outside."""
    return [(each.entry, each.outside.edge()) for each in families if each.entry is not None]


def copy_autograd(real: Tensor, fake: Tensor, *, requires_grad: bool) -> None:
    """Copies the autograd state that programs can observe to a fake: leaf, history, view kind.

    Rule: TEN-32.
    """
    kind = real._kind
    if requires_grad:
        if real._leaf and real._node is None:
            fake._leaf = True
        elif kind in RESTRICTED:
            # Writes to the storage, by whatever name, forbid asking for its history (TEN-20).
            fake._root = ViewRoot(fake)
            fake._root.node = InputNode()
            fake._seen = -1 if is_stale(real) else fake.storage.version
            if real._node is not None:
                fake._node, fake._index = fake._root.node, 0
        else:
            fake._node = InputNode(gradient_form(fake))
        if kind is None and real._base is not None and is_leaf_family(real):
            kind = CreationKind.LEAF_VIEW
    fake._kind = kind
