"""A flat view of the whole extent of an input: all memory that as_strided reaches from it."""

from __future__ import annotations

from typing import Any

from aotlite.ir.graph import Node
from aotlite.ir.meta import TensorMeta
from aotlite.ir.ops.views.view_ops import AS_STRIDED


def extent_view(placeholder: Node, extent: Extent) -> tuple[tuple[object, ...], TensorMeta]:
    """The arguments and the meta of the as_strided op that views an input's extent."""
    meta: Any = placeholder.meta
    first, end = extent
    flat = meta.as_contiguous((end - first,))
    return (placeholder, (end - first,), (1,), first), flat


def extent_node(placeholder: Node, extent: Extent) -> Node:
    """The node of that as_strided op."""
    args, meta = extent_view(placeholder, extent)
    return Node("call", AS_STRIDED, args, meta)


Extent = tuple[int, int]
"""(first, end) in elements, counted from the input's first element; `end` is exclusive."""
