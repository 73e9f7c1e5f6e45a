"""A flat view of the whole extent of an input: all memory that as_strided reaches from it.
And as_strided on a view as one on the view's root."""

from __future__ import annotations

from typing import Any

import attrs

from aotlite.eager.base.tape.view_chain import ViewStep
from aotlite.ir.graph import Node
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import ViewOp
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


def from_root(value: Node, step: ViewStep) -> tuple[Node, ViewStep]:
    """An as_strided step on a view, rewritten as one on the view's root (FUN-34)."""
    start, root = 0, value
    while type(root.target) is ViewOp and not root.target.recasts:
        start, root = root.target.at(root.args, 0) + start, root.args[0]
    if root is value:
        return value, step
    size, stride, first = step.args
    meta: TensorMeta = root.meta  # type: ignore[assignment]
    return root, attrs.evolve(step, args=(size, stride, first + start), operand=meta)


Extent = tuple[int, int]
"""(first, end) in elements, counted from the input's first element; `end` is exclusive."""
