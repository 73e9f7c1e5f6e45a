"""Whose memory a value of a graph is."""

from __future__ import annotations

from aotlite.ir.graph.graph import Node
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
