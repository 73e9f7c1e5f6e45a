"""Whose memory a value of a graph is, and which windows lie within a memory."""

from __future__ import annotations

from aotlite.ir.graph.graph import Node
from aotlite.ir.meta import TensorMeta
from aotlite.ir.op import GeometryOp, InplaceOp, MultiViewOp, ViewOp
from aotlite.ir.ops.structure import GETITEM


def storage_root(node: Node) -> Node:
    """The node that made the storage on which this value lies.

    Views and writes lead back to it; each result of a pure op with several has one of its own.
    """
    while node.op == "call":
        op = node.target
        if op is GETITEM and isinstance(node.args[0].target, MultiViewOp):
            node = node.args[0].args[0]
        elif isinstance(op, (ViewOp, InplaceOp, GeometryOp)):
            node = node.args[0]
        else:
            break
    return node


def is_within(meta: TensorMeta, start: int, held: TensorMeta) -> bool:
    """Whether a window has only elements that `held` has: what lies between them is not given."""
    if start < 0 or start + meta.span > held.span:
        return False
    return held.dense or _addresses(meta, start) <= _addresses(held, 0)


def _addresses(meta: TensorMeta, start: int) -> set[int]:
    found = {start}
    for size, stride in zip(meta.shape, meta.stride, strict=True):
        found = {address + i * stride for address in found for i in range(size)}
    return found
