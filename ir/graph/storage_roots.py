"""Which node of a graph made the memory of a value."""

from __future__ import annotations

from aotlite.ir.graph.graph import Node
from aotlite.ir.op import GeometryOp, InplaceOp, MultiViewOp, ViewOp
from aotlite.ir.ops.structure import GETITEM


def storage_root(node: Node) -> Node:
    """The node that allocated the storage of this value.

    The walk goes back through views and in-place ops. Each result of a pure op with several results
    has a storage of its own, so that the walk ends at its `getitem`.
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
