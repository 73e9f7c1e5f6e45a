"""View families: inputs that are views of one base, and share its history.

    base ──> a = base[:3], b = base[2:]      a.mul_(2) changes the history of base, and so of b

The fakes of such inputs share a `ViewRoot`, as the caller's tensors do; the base's edge is one more
gradient sink. Until a write, each input keeps its own edge. The base and the views are guarded only
if they matter. Used by stage 1. Rules: SYN-2, SYN-6. Decision 0010.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Protocol

import attrs

from aotlite.eager.autograd.differentiable_views import is_stale, root_of
from aotlite.eager.autograd.inplace_writes import is_leaf_family
from aotlite.eager.autograd.nodes.op_nodes import InputNode
from aotlite.eager.autograd.nodes.retained_grads import is_watched
from aotlite.eager.base.tape.node import Edge
from aotlite.eager.base.tape.view_chain import ViewChain, ViewStep, chain_of, overlaps_itself
from aotlite.eager.base.tape.view_root import RESTRICTED, CreationKind, ViewRoot, twin_root
from aotlite.eager.base.tensor import Tensor
from aotlite.eager.subclass.protocol import gradient_form, is_wrapper
from aotlite.ir.geometry.overlap import overlaps_bytes
from aotlite.ir.graph.role import Family
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import OPS
from aotlite.stages.records.capture_inputs import CapturedFamily, InputRole

_VIEW: Any = OPS["view"]


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
    """By root: the fakes of tensors that were met, and are of no family."""
    _left: set[int] = attrs.field(factory=set)
    """Roots that make no family, as tensors on them have symbols for their sizes."""

    def look_at(self, tensors: Iterable[Tensor], sized: Collection[int] = ()) -> None:
        """Finds the tensors that share a root, among all that the function can reach. `sized` are
        the ids of those that have symbols for sizes: Note [views with symbols for sizes] in
        `sized_views.py`."""
        by_root: dict[int, dict[int, Tensor]] = {}
        for tensor in tensors:
            is_real = tensor.storage.buffer is not None or is_wrapper(tensor)
            if tensor._root is not None and is_real:
                by_root.setdefault(id(tensor._root), {})[id(tensor)] = tensor
        for root, members in by_root.items():
            several = len(members) > 1
            of_family = {k: x for k, x in members.items() if several or is_apart(x)}
            if any(map(is_wrapper, members.values())) or not any(k in sized for k in members):
                self._joined |= {k: x._root for k, x in of_family.items()}  # type: ignore[misc]
            elif of_family:
                self._left.add(root)

    def has(self, tensor: Tensor) -> bool:
        """Whether a caller's tensor is of a family, whose root its fake gets."""
        return id(tensor) in self._joined

    def join(self, real: Tensor, fake: Tensor, role: InputRole) -> Family | None:
        """Gives a fake the root of its family; returns the family, if the tensor has one."""
        root = real._root
        if root is None:
            return None
        if id(real) not in self._joined:
            self._alone.setdefault(id(root), []).append(fake)
            if id(root) in self._left and is_of_its_own(real):
                give_root(real, fake)
            return None
        family = self._made.get(id(root))
        if family is None:
            family = self._made[id(root)] = self._new(root, fake)
        family.members.append(role)
        base = None if real._base is None else self._bases[id(root)]
        _put_on(fake, real._kind, family.root, base, real._chain)
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

    def without(self) -> tuple[tuple[Tensor, ...], ...]:
        """The fakes of each root that makes no family: they have symbols for sizes, or it was found
        out too late that their tensors share it."""
        return tuple(
            [tuple(met) for r, met in self._alone.items() if len(met) > 1 or r in self._left]
        )


def _put_on(
    fake: Tensor, kind: CreationKind | None, root: ViewRoot, base: Tensor | None, chain: ViewChain
) -> None:
    """Makes a fake the view of a base with this root."""
    if fake._root is not None and fake._node is not None:  # its own edge cuts (JNT-3)
        fake._node, fake._index = InputNode(), 0
    fake._root, fake._kind, fake._base, fake._chain = root, kind, base, chain
    fake._seen = min(fake._seen, 0)  # what was written before it was met makes it stale


def give_root(real: Tensor, fake: Tensor) -> None:
    """Gives the fake of a view of its own history a base that requires no grad, as the caller's
    has. The base has the view's geometry, so that nothing about it is a number."""
    twin, meta = twin_root(root_of(real), None), fake.meta
    twin.meta, twin.offset = meta, fake.offset
    base = Tensor(fake.storage, meta, fake.offset)
    base._root = twin
    _put_on(fake, real._kind, twin, base, chain_of(ViewStep(_VIEW, (meta.shape,), meta, meta)))


def is_apart(tensor: Tensor) -> bool:
    """Whether a view needs a family even if no other input shares its base.

    It is a leaf, or requires grad where its base does not (TEN-23); it or its base overlaps itself
    (TEN-7), so it can only be written through the base; or it has hooks, which a write bypasses
    (TEN-39). Of wrappers, the first alone.
    """
    if tensor._base is None:
        return False
    if is_wrapper(tensor):
        return is_of_its_own(tensor)
    if overlaps_itself(tensor.meta) or overlaps_itself(root_of(tensor).meta):
        return True
    if tensor._node is not None and is_watched(tensor):
        return True
    return tensor._is_tracked_leaf() or is_of_its_own(tensor)


def is_of_its_own(tensor: Tensor) -> bool:
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
