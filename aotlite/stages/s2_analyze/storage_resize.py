"""Refuses views taken before `resize_` made a storage grow, if a program could tell (TEN-25).

The graph has two memories, the old elements and a larger copy; eager has one. A view of the old
memory that is returned, or read beside a later write, would show the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.graph import Node
from aotlite.ir.graph.storage_roots import storage_root
from aotlite.ir.op import InplaceOp
from aotlite.stages.records.metadata.metadata_mutation import StorageGrowth
from aotlite.stages.shared.user_frames import describe


def check_growths(
    growths: Sequence[StorageGrowth],
    nodes: Sequence[Node],
    results: Sequence[object],
    puts: Sequence[Node],
) -> None:
    """Raises where a value on the old memory is returned, or used while either memory is written.

    `puts`: the values of inputs that `set_` moved to another storage.
    """
    ends = [*[r.value for r in results if isinstance(r, Tensor)], *puts]
    for each in growths:
        later = nodes[nodes.index(each.value) + 1 : -1]
        used = None
        if each.old.op == "call":  # views of an input are rebuilt from it before it grows
            used = next((value for value in ends if storage_root(value) is each.old), None)
        if used is None and any(_writes(node, each) for node in later):
            used = next(_users(later, each.old), None)
        if used is not None:
            raise noted(
                UnsupportedError(
                    "analyze: a view that was taken before resize_ made its storage grow is used "
                    "afterwards, expected views that are taken after resize_"
                ),
                describe(used.location),
                "Take the views after resize_, or make a new tensor of that size. (TEN-25)",
            )


def _writes(node: Node, growth: StorageGrowth) -> bool:
    return isinstance(node.target, InplaceOp) and storage_root(node) in (growth.old, growth.new)


def _users(nodes: Sequence[Node], root: Node) -> Iterator[Node]:
    return (n for n in nodes if any(storage_root(value) is root for value in n.inputs()))
