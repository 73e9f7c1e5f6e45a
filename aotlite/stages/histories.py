"""Questions about the tapes of captured runs: what lies behind a tensor, which views go nowhere."""

from __future__ import annotations

from collections.abc import Iterator

from aotlite.eager.autograd.history import RESTRICTED
from aotlite.eager.autograd.tape import AccumulateGrad, Edge, TapeNode
from aotlite.eager.tensor import Tensor


def is_dead_end(view: Tensor) -> bool:
    """Whether a view of a restricted kind has a tape node from which its base is not reached.

    It was taken, with grad mode on, of a view that was taken under no_grad (TEN-21).
    """
    root = view._root
    if view._kind not in RESTRICTED or view._node is None or root is None:
        return False
    ends = (root.node, *_accumulators(root.node))
    return not any(node in ends for node in behind((view._node, view._index)))


def _accumulators(node: TapeNode | None) -> Iterator[TapeNode]:
    """The nodes that collect a leaf's gradient after changes of its geometry (TEN-24)."""
    while isinstance(node, AccumulateGrad) and node.edges:
        (edge,) = node.edges
        assert edge is not None
        node = edge[0]
        yield node


def behind(edge: Edge | None) -> list[TapeNode]:
    """The tape nodes that a gradient at this edge passes."""
    found: dict[int, TapeNode] = {}
    stack = [] if edge is None else [edge[0]]
    while stack:
        node = stack.pop()
        if id(node) not in found:
            found[id(node)] = node
            stack.extend(e[0] for e in node.edges if e is not None)
    return list(found.values())
