"""Queries on the tape of a captured run: reachable nodes, histories of views, inner leaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from aotlite.eager.autograd.custom_function.node import CustomNode
from aotlite.eager.autograd.differentiable_views import edge_of
from aotlite.eager.autograd.engine import reachable
from aotlite.eager.autograd.nodes.accumulate_grad import AccumulateGrad
from aotlite.eager.autograd.nodes.op_nodes import InputNode, OpNode
from aotlite.eager.base.tape.node import Edge, TapeNode
from aotlite.eager.base.tape.view_root import RESTRICTED, CreationKind
from aotlite.eager.base.tensor import Tensor
from aotlite.ir.errors import UnsupportedError, noted
from aotlite.ir.graph.role import Result
from aotlite.ir.op import ViewOp
from aotlite.stages.records.capture_inputs import CapturedInput


def is_dead_end(view: Tensor) -> bool:
    """Whether a view has a tape node that does not lead to its base.

    It is a view, taken with grad mode on, of a view that was taken under no_grad (TEN-21).
    """
    root = view._root
    if view._kind not in RESTRICTED or view._node is None or root is None:
        return False
    ends = {root.node, *_accumulators(root.node)}
    order, accumulating = reachable([view._node], ends)
    # Of inputs with a common root each has an end of its own.
    return not accumulating and ends.isdisjoint(order) and not any(n.is_outside() for n in order)


def follows_base(view: Tensor, leaf: Tensor) -> bool:
    """Whether a view of a leaf, which is itself on a base's memory, has the history of that base.

    The base was written since, and has a history; the leaf stays a leaf (TEN-23).
    """
    root = view._root
    if root is None or root.node is None or (root.leaf and leaf._base is None):
        return False
    node = view._node
    if view._seen != view.storage.version:
        return True
    if node is None:
        return view._kind is not CreationKind.NO_GRAD  # such a view leads nowhere (TEN-21)
    while isinstance(node, OpNode) and node is not root.node and node.edges and node.edges[0]:
        node = node.edges[0][0]
    return node is not None and node is root.node


def has_own_history(view: Tensor) -> bool:
    """Whether a custom function or a hook is on the tape between a view and its base (META-8).

    False if the base was written since: then the view's history is regenerated from the base's.
    """
    root, node, index = view._root, view._node, view._index
    if root is None or node is None or view._seen != view.storage.version:
        return False
    while node is not None and (node, index) != (root.node, root.index):
        if type(node) is CustomNode or node.extra is not None and not node.extra.is_idle:
            return True
        if not (isinstance(node, OpNode) and isinstance(node.op, ViewOp) and node.edges):
            return False
        node, index = node.edges[0] or (None, 0)
    return False


def _accumulators(node: TapeNode | None) -> Iterator[TapeNode]:
    """The further accumulating nodes of a leaf whose geometry changed (TEN-24)."""
    while isinstance(node, AccumulateGrad) and node.edges:
        (edge,) = node.edges
        assert edge is not None
        node = edge[0]
        yield node


def passes_outside(
    starts: Iterable[Edge | None],
    sinks: Sequence[Edge | None],
    crossings: Sequence[tuple[Edge, Edge | None]],
) -> bool:
    """Whether the gradient of one input would have to go through the outer history of another.

    `crossings` has for each input its edge in the capture, and the caller's edge.
    """
    order, _ = reachable([edge[0] for edge in starts if edge is not None])
    met = {node for node in order if isinstance(node, InputNode)}
    if not met:
        return False
    left = [outer[0] for edge, outer in crossings if edge[0] in met and outer is not None]
    order, accumulating = reachable(left)
    beyond = {edge for node in (*order, *accumulating) for edge in node.edges}
    return any(edge in sinks and outer is not None and outer in beyond for edge, outer in crossings)


def passed(edges: Sequence[Edge | None]) -> dict[TapeNode, int]:
    """For each tape node the edges, as bits, from which it is reached.

    In the order in which a backward runs the nodes; accumulating nodes come last.
    """
    starts: dict[TapeNode, int] = {}
    for place, edge in enumerate(edges):
        if edge is not None:
            starts[edge[0]] = starts.get(edge[0], 0) | 1 << place
    order, accumulating = reachable(starts)
    found = dict.fromkeys([*reversed(order), *accumulating], 0)
    found.update(starts)
    for node in order[::-1]:
        bits = found[node]
        for edge in node.edges:
            if edge is not None:
                found[edge[0]] |= bits
    for node in accumulating:
        for further in _accumulators(node):
            found[further] |= found[node]
    return found


def passed_at_some_order(edges: Sequence[Edge | None]) -> set[TapeNode]:
    """The tape nodes that gradients of any order pass.

    A double backward goes on through saved tensors, which may depend on inputs that no first-order
    gradient reaches.
    """
    found: set[TapeNode] = set()
    while edges:
        nodes = [node for node in passed(edges) if node not in found]
        found.update(nodes)
        saved = [each for node in nodes for each in node.kept_tensors()]
        edges = [edge_of(s.tensor) for s in saved if s.tensor.storage.version == s.version]
    return found


def refuse_inner_leaf(node: AccumulateGrad, shown: set[int], result: Result) -> None:
    """Refuses a gradient of a leaf that the function made and returned, or that has a post hook.

    `shown` has the ids of results and of their bases.
    """
    leaf = node.leaf
    if leaf is not None and id(leaf) in shown:
        raise noted(
            UnsupportedError(
                f"joint: {result} depends on a leaf that the function makes and returns, "
                "expected leaves from outside"
            ),
            "Make the leaf outside, and pass it as an argument.",
        )
    if leaf is not None and node.collected:
        raise noted(
            UnsupportedError(
                f"joint: {result} depends on a leaf that the function makes, with a hook of "
                "register_post_accumulate_grad_hook, expected one of register_hook"
            ),
            "register_hook is given the gradient of each backward. (TEN-41)",
        )


def these_of(results: Sequence[Result], bits: int) -> Iterator[Result]:
    """The results whose bits are set."""
    while bits:
        lowest = bits & -bits
        yield results[lowest.bit_length() - 1]
        bits ^= lowest


def root_changed(given: CapturedInput) -> bool:
    """Whether a data write gave the input another tape edge."""
    fake = given.fake
    if fake._kind in RESTRICTED:
        return False  # a write that would change it is refused (TEN-19)
    if fake._root is not None:
        now = fake._root.node
    else:
        now = fake._node or (fake._accumulator if fake._leaf else None)
    return is_written(now, given.entry)


def is_written(node: TapeNode | None, entry: Edge | None) -> bool:
    """Whether a write made this tape node: not the edge at entry, not `requires_grad_` (FUN-36)."""
    if node is None or type(node) is AccumulateGrad:
        return False
    return entry is None or node is not entry[0]
