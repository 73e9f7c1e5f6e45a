"""`stray_window`: finds a view of a graph that leaves the storage of its operand.

Ground floor, for `ir/graph/files/__init__.py`. A meta has no offset, so `verify` cannot see where
an `as_strided` starts in its storage: a valid graph may still read memory of another object. A
captured graph does not (the capture refuses it), but one from a file might. Spec:
`specs/serialize.md`, SER-14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from aotlite.ir.geometry.sizes import recast
from aotlite.ir.graph.graph import Node
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import GeometryOp, InplaceOp, MultiViewOp, ViewOp
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.ops.views.view_ops import AS_STRIDED, AS_STRIDED_
from aotlite.ir.symbols.symint import SymBool

__all__ = ["stray_window"]

Room = tuple[int, int]
"""(elements of the storage, offset of the value in it)."""


def stray_window(
    nodes: Iterable[Node], holds: Callable[[SymBool], bool] | None = None
) -> tuple[int, str] | None:
    """(index, elements) of the first node that leaves its operand's storage; None if none does.

    Only `as_strided` can leave it, so that a graph without it needs no check. `holds` proves what
    depends on symbols; what the walk assumes besides is in the log of their table.
    """
    nodes = tuple(nodes)
    if not any(node.target is AS_STRIDED or node.target is AS_STRIDED_ for node in nodes):
        return None
    rooms: dict[Node, Room] = {}
    for index, node in enumerate(nodes):
        meta = node.meta
        if type(meta) is TensorMeta:
            size, start = rooms[node] = _room(node, meta, rooms)
            if not _is_inside(meta, size, start, holds):
                return index, f"elements {start} to {start + meta.span - 1} of {size}"
    return None


def _is_inside(
    meta: TensorMeta, size: int, start: int, holds: Callable[[SymBool], bool] | None
) -> bool:
    """Whether the window lies in the storage; False where some sizes may leave it."""
    if type(meta.numel) is int and not meta.numel:
        return True
    facts: tuple[Any, Any] = start >= 0, start <= size - meta.span
    return all(fact if type(fact) is bool else holds is not None and holds(fact) for fact in facts)


def _room(node: Node, meta: TensorMeta, rooms: dict[Node, Room]) -> Room:
    op, args = node.target, node.args
    match op:
        case ViewOp() | GeometryOp():
            size, start = rooms[args[0]]
            view = op.view if isinstance(op, GeometryOp) else op
            room = recast(size, args[0].meta.dtype.itemsize, meta.dtype.itemsize)
            return room, view.at(args, start)
        case InplaceOp():
            return rooms[args[0]]
    if op is GETITEM and isinstance(args[0].target, MultiViewOp):
        return _part(args[0], args[1], rooms)
    return meta.span, 0


def _part(split: Node, index: int, rooms: dict[Node, Room]) -> Room:
    """The `Room` of one result of a multi-output view."""
    op: Any = split.target
    view, rest = op.parts(split.args)[index]
    size, start = rooms[split.args[0]]
    return size, start + view.start((split.args[0], *rest))
