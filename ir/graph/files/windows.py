"""Whether every window of a graph lies in the memory of what it is a window on.

Ground floor, for `ir/graph/files/__init__.py`. A meta rule sees shapes and strides, not where a
window starts in its storage; so a graph that `verify` accepts may ask `as_strided` for memory that
is somebody else's. A captured graph never does (the capture refuses it), one from a file might.
Spec: `specs/serialize.md`, SER-14.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aotlite.ir.graph.graph import Node
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import GeometryOp, InplaceOp, MultiViewOp, ViewOp, recast
from aotlite.ir.ops.structure import GETITEM
from aotlite.ir.ops.views.view_ops import AS_STRIDED, AS_STRIDED_

__all__ = ["stray_window"]

Room = tuple[int, int]
"""Elements of a storage, and the one at which a value starts in it."""


def stray_window(nodes: Iterable[Node]) -> tuple[int, str] | None:
    """(index, elements) of the first node that leaves its operand's storage, None if none does.

    The other views stay inside theirs whatever their arguments: without `as_strided` none can.
    """
    nodes = tuple(nodes)
    if not any(node.target is AS_STRIDED or node.target is AS_STRIDED_ for node in nodes):
        return None
    rooms: dict[Node, Room] = {}
    for index, node in enumerate(nodes):
        meta = node.meta
        if type(meta) is TensorMeta:
            size, start = rooms[node] = _room(node, meta, rooms)
            if meta.numel and not 0 <= start <= size - meta.span:
                return index, f"elements {start} to {start + meta.span - 1} of {size}"
    return None


def _room(node: Node, meta: TensorMeta, rooms: dict[Node, Room]) -> Room:
    op, args = node.target, node.args
    match op:
        case ViewOp() | GeometryOp():
            size, start = rooms[args[0]]
            view = op.view if isinstance(op, GeometryOp) else op
            return recast(size, args[0].meta, meta), view.at(args, start)
        case InplaceOp():
            return rooms[args[0]]
    if op is GETITEM and isinstance(args[0].target, MultiViewOp):
        return _part(args[0], args[1], rooms)
    return meta.span, 0


def _part(split: Node, index: int, rooms: dict[Node, Room]) -> Room:
    """The room of one part of a node with several views."""
    op: Any = split.target
    view, rest = op.parts(split.args)[index]
    size, start = rooms[split.args[0]]
    return size, start + view.start((split.args[0], *rest))
