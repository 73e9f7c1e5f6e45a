"""`SubgraphMatcher`: finds the places of a graph that compute what a pattern computes.

Rules: FXG-20, FXG-21. Spec: `specs/fx.md`.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np

from aotlite.eager.base.tensor import Tensor
from aotlite.fx.core.words import Argument
from aotlite.fx.graph import FxGraph
from aotlite.fx.node import FxNode, map_aggregate
from aotlite.ir.errors import ArgumentError

__all__ = ["InternalMatch", "SubgraphMatcher"]


@attrs.define(eq=False)
class InternalMatch:
    """A place that computes what a pattern computes."""

    anchors: list[FxNode]
    """The nodes of the graph for those that the pattern returns."""
    nodes_map: dict[FxNode, Argument] = attrs.field(factory=dict)
    """Node of the pattern -> node of the graph; for an input of the pattern, perhaps a number."""
    placeholder_nodes: list[Argument] = attrs.field(factory=list)
    """What stands for the inputs of the pattern, in their order."""
    returning_nodes: list[FxNode] = attrs.field(factory=list)
    """What stands for the results of the pattern, in their order."""

    @property
    def inner(self) -> set[FxNode]:
        """The matched nodes but for the inputs."""
        return {
            node
            for mine, node in self.nodes_map.items()
            if mine.op != "placeholder" and isinstance(node, FxNode)
        }


class SubgraphMatcher:
    """Matches a pattern: a graph whose inputs stand for any value, or number.

    A node matches one of the same op, with arguments that match; literals have to be equal and of
    one type, unless `ignore_literals`. No value but the returned ones may be used outside of the
    match. No op with a write or a draw stands between the nodes of a match, and no op at all
    between those of a pattern that writes.

    Matches are found in the order of the graph. With `remove_overlapping_matches`, one that shares
    a node with an earlier one is left out; inputs may be shared.

    >>> from aotlite import fx
    >>> graph = fx.symbolic_trace(lambda x: (x.exp() + 1).exp() + 1, "f32[2]").graph
    >>> pattern = fx.symbolic_trace(lambda a: a.exp() + 1, "f32[2]").graph
    >>> [match.anchors for match in SubgraphMatcher(pattern).match(graph)]
    [[add], [add_1]]
    """

    def __init__(
        self,
        pattern: FxGraph,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        self.pattern = pattern
        self.match_output = match_output
        self.match_placeholder = match_placeholder
        self.remove_overlapping_matches = remove_overlapping_matches
        self.ignore_literals = ignore_literals
        self.pattern_placeholder_nodes = pattern.find_nodes(op="placeholder")
        self.pattern_returning_nodes = pattern.output_node().all_input_nodes
        calls = pattern.find_nodes(op="call_function")
        if not calls:
            raise ArgumentError("SubgraphMatcher: the pattern has no op, expected one at least")
        dead = [node for node in calls if not node.users and not node.is_impure()]
        if dead:
            raise ArgumentError(
                f"SubgraphMatcher: nothing of the pattern needs {dead[0]}, expected its results to "
                "need every op"
            )
        returned = [node for node in self.pattern_returning_nodes if node.op == "call_function"]
        ends = [node for node in calls if node in returned and not _is_inside(node, returned)]
        writes = [node for node in calls if node.is_impure() and not node.users]
        self.pattern_anchors: list[FxNode] = [*ends, *[n for n in writes if n not in ends]]
        """The nodes of the pattern that no other one needs, from which matching begins."""
        if not self.pattern_anchors:
            raise ArgumentError("SubgraphMatcher: the pattern returns no op, expected one")

    # --- matching
    def match(self, graph: FxGraph) -> list[InternalMatch]:
        """The matches in a graph, in the order of their first anchors."""
        found: list[InternalMatch] = []
        taken: set[FxNode] = set()
        first, *others = self.pattern_anchors
        nodes = list(graph.nodes)
        for node in nodes:
            begun = self._grown(InternalMatch([]), first, node)
            if begun is None:
                continue
            match = self._completed(begun, others, nodes)
            if match is None:
                continue
            if self.remove_overlapping_matches and not taken.isdisjoint(match.inner):
                continue
            taken |= match.inner
            found.append(match)
        return found

    def _completed(
        self, begun: InternalMatch, others: list[FxNode], nodes: list[FxNode]
    ) -> InternalMatch | None:
        """The match with the other anchors, each on the first node where it fits."""
        if not others:
            return self._checked(begun)
        for node in nodes:
            grown = self._grown(begun, others[0], node)
            done = None if grown is None else self._completed(grown, others[1:], nodes)
            if done is not None:
                return done
        return None

    def _grown(self, match: InternalMatch, mine: FxNode, node: FxNode) -> InternalMatch | None:
        """The match with one more pair, and all that they need; None where they differ."""
        mapped = dict(match.nodes_map)
        waiting: list[tuple[Argument, Argument]] = [(mine, node)]
        while waiting:
            one, other = waiting.pop()
            if isinstance(one, FxNode):
                if one in mapped:
                    if not _is_same(mapped[one], other):
                        return None
                    continue
                if one.op != "placeholder" and any(other is v for v in mapped.values()):
                    return None
                pairs = self._pairs(one, other)
                if pairs is None:
                    return None
                mapped[one] = other
                waiting += pairs
            elif isinstance(other, FxNode) or not (self.ignore_literals or _is_same(one, other)):
                return None
        return InternalMatch([], mapped)

    def _pairs(self, one: FxNode, other: Argument) -> list[tuple[Argument, Argument]] | None:
        """The pairs of arguments that have to match, too; None for different ops."""
        if one.op == "placeholder":
            return [] if self._fits_input(one, other) else None
        if not isinstance(other, FxNode) or one.op != other.op:
            return None
        if one.op == "get_attr":
            values = one.graph.value_of(one.target), other.graph.value_of(other.target)
            return [] if _is_equal(*values) else None
        if one.target is not other.target:
            return None
        mine, its = one.normalized_arguments(), other.normalized_arguments()
        if mine is None or its is None:
            return None
        return _zipped((mine.args, mine.kwargs), (its.args, its.kwargs))

    def _fits_input(self, one: FxNode, other: Argument) -> bool:
        if isinstance(other, FxNode):
            if self.match_placeholder and other.op != "placeholder":
                return False
            return type(other.meta.get("val")) is not tuple
        return type(other) in (bool, int, float, complex)

    def _checked(self, match: InternalMatch) -> InternalMatch | None:
        """The match with all that is known of it; None if a value leaks, or a write interferes."""
        mapped = match.nodes_map
        unused = [each for each in self.pattern_placeholder_nodes if each not in mapped]
        needed = [n for n in self.pattern.nodes if n.op not in ("placeholder", "output")]
        if any(node not in mapped for node in needed):
            return None
        returned = set(self.pattern_returning_nodes)
        inner = match.inner
        for mine, node in mapped.items():
            if mine.op in ("placeholder", "get_attr") or mine in returned:
                continue
            if any(user not in inner for user in node.users):
                return None
        match.anchors = [mapped[each] for each in self.pattern_anchors]
        inputs = [each for each in self.pattern_placeholder_nodes if each not in unused]
        match.placeholder_nodes = [mapped[each] for each in inputs]
        match.returning_nodes = [mapped[each] for each in self.pattern_returning_nodes]
        if self.match_output and not self._is_whole(match):
            return None
        return None if _is_disturbed(match) else match

    def _is_whole(self, match: InternalMatch) -> bool:
        graph = match.anchors[0].graph
        return set(graph.output_node().all_input_nodes) == set(match.returning_nodes)


def _is_inside(node: FxNode, returned: list[FxNode]) -> bool:
    """Whether another returned node needs this one."""
    waiting, seen = [each for each in node.users if each.op != "output"], set()
    while waiting:
        user = waiting.pop()
        if user in returned:
            return True
        if user not in seen:
            seen.add(user)
            waiting += [each for each in user.users if each.op != "output"]
    return False


def _zipped(one: Any, other: Any) -> list[tuple[Argument, Argument]] | None:
    """The pairs of leaves of two arguments; None where they nest differently."""
    sides: list[list[Argument]] = [[], []]
    shapes = []
    for side, value in zip(sides, (one, other), strict=True):
        shapes.append(map_aggregate(value, side.append))
    return list(zip(*sides, strict=True)) if shapes[0] == shapes[1] else None


def _is_same(one: Argument, other: Argument) -> bool:
    """Whether two literals are equal and of one type, or two nodes the same."""
    if isinstance(one, FxNode) or isinstance(other, FxNode):
        return one is other
    if type(one) is not type(other):
        return False
    return bool(repr(one) == repr(other) if isinstance(one, (float, complex)) else one == other)


def _is_equal(one: Any, other: Any) -> bool:
    """Whether two constants are the same, or plain ones with equal elements."""
    if one is other:
        return True
    if getattr(one, "requires_grad", False) or getattr(other, "requires_grad", False):
        return False
    arrays = [v.detach()._data if isinstance(v, Tensor) else v for v in (one, other)]
    return arrays[0].dtype == arrays[1].dtype and bool(np.array_equal(*arrays))


def _is_disturbed(match: InternalMatch) -> bool:
    """Whether something between the nodes of a match writes, draws, or has an effect; or computes
    at all, if the match itself does."""
    inner = match.inner
    first, last = min(inner), max(inner)
    writes = any(node.op == "call_function" and node.is_impure() for node in inner)
    node = first.next
    while node is not last and first is not last:
        if node.op == "call_function" and node not in inner and (writes or node.is_impure()):
            return True
        node = node.next
    return False
