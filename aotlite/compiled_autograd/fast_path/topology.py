"""Tables that check the edges and forms of a tape against a structure.

All edges of a tape are one list: those of the roots, then those of each node in execution order,
then those of leaves. A node's place is the index of the first edge that leads to it:

    edges    [root→A]  [A→B, A→C]  [B→leaf x]  [C→leaf x]        place of A: 0, B: 1, C: 2, x: 3
                                                                 again: (4, 3)

One loop compares the form of each node; another checks that further edges lead to the same node as
the first one. Loops over tables beat generated code of a line per node, which Python would read
only once in a backward. Rules: CAG-6, CAG-7. Spec: `specs/compiled_autograd.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from sys import getrefcount
from typing import Any

import attrs

from aotlite.compiled_autograd.node_signatures import CLOSED, Form, form_of, is_plain
from aotlite.compiled_autograd.structure import Roots, TapeStructure, signatures
from aotlite.eager.autograd.nodes.accumulate_grad import AccumulateGrad
from aotlite.eager.autograd.nodes.op_nodes import OpCall, OpNode
from aotlite.eager.base.tape.node import LAST, Edge, TapeNode
from aotlite.ir.meta import TensorMeta
from aotlite.stages.s10_runtime.backward.node import CompiledBackward


@attrs.define(eq=False)
class Reached:
    """The objects of a matched tape."""

    edges: list[Any]
    nodes: list[TapeNode]
    """The inner nodes, in execution order: the youngest first."""
    leaves: list[Any]
    """The leaves of the nodes of `ends`; None for one that is dead."""


@attrs.frozen(eq=False)
class Way:
    """The tables of one structure."""

    starts: int
    """The number of roots."""
    meta: TensorMeta | None
    """The meta of the root's gradient, if there is one root with a plain gradient."""
    signatures: object
    """The signatures of the roots' gradients, otherwise."""
    inner: tuple[tuple[int, OpCall | None], ...]
    """(place, call) of each inner node, in execution order; for a call of None the form is compared
    instead."""
    forms: tuple[tuple[Form, int], ...]
    """(form, number of edges) of these nodes."""
    unlinked: tuple[tuple[int, int], ...]
    """Neighbors in `inner` without an edge between them, whose sequence numbers are compared.
    Along an edge they fall anyway: it leads to a node made before (SEQ-1)."""
    ends: tuple[tuple[int, TensorMeta | None, bool, Form, int], ...]
    """(place, meta of the leaf, whether it collects, form, number of edges) of each accumulating
    node; for a meta of None the form is compared instead."""
    again: tuple[tuple[int, int], ...]
    """(index of an edge, index of the first edge to the same node)."""
    several: tuple[tuple[int, int], ...]
    """(index of an edge, index of the result) of edges to nodes with several results."""
    nowhere: tuple[int, ...]
    """The indices of edges that are None."""
    sinks: tuple[Any, ...] | None
    """(place, index of the result) of each sink; the place is None for a node off the tape."""
    numbers: tuple[int, ...]
    """The structure's numbers of the nodes of `inner`."""
    end_numbers: tuple[int, ...]
    """The structure's numbers of the nodes of `ends`."""
    places: tuple[int, ...]
    """The places of all nodes, in the order of the structure."""
    count: int
    """The number of edges."""
    is_typed: bool
    """Whether the classes of tensors are compared: only if there are wrappers at all."""

    def reached(self, roots: Roots, sinks: Sequence[Edge | None] | None) -> Reached | None:
        """The objects of the tape behind these roots, if it matches; else None.

        Raises an error of reading attributes for a node of an unexpected form.
        """
        if len(roots) != self.starts or not self._starts(roots):
            return None
        edges: list[Any] = [edge for edge, _ in roots]
        nodes = self._nodes(edges)
        leaves = None if nodes is None else self._leaves(edges)
        if nodes is None or leaves is None or len(edges) != self.count:
            return None
        for place, first in self.again:
            if edges[place][0] is not edges[first][0]:
                return None
        if any(edges[place][1] != number for place, number in self.several):
            return None
        if any(edges[place] is not None for place in self.nowhere):
            return None
        return Reached(edges, nodes, leaves) if self._ends_at(sinks, edges) else None

    def _starts(self, roots: Roots) -> bool:
        if self.meta is None:
            return bool(signatures([grad for _, grad in roots]) == self.signatures)
        grad = roots[0][1]
        return grad.meta is self.meta and (not self.is_typed or is_plain(grad))

    def _nodes(self, edges: list[Edge]) -> list[TapeNode] | None:
        """The inner nodes. Their sequence numbers fall, so no two are the same."""
        nodes: list[TapeNode] = []
        for place, call in self.inner:
            node = edges[place][0]
            if call is None or node.call is not call or node.extra is not None:
                if not _is_of(node, *self.forms[len(nodes)]):
                    return None
            edges += node.edges
            nodes.append(node)
        for row, following in self.unlinked:
            if nodes[row].sequence <= nodes[following].sequence:
                return None
        return nodes

    def _leaves(self, edges: list[Edge]) -> list[Any] | None:
        """The leaves, each of another node; None for one that is dead."""
        leaves, nodes = [], []
        typed = self.is_typed
        for place, meta, collects, form, count in self.ends:
            node = edges[place][0]
            leaf = node._leaf()
            if meta is None:
                if not _is_of(node, form, count):
                    return None
                edges += node.edges
            elif (
                leaf.meta is not meta
                or (leaf._leaf or leaf._node is not None) is not collects
                or node.edges
                or node.collected
                or node.extra is not None
                or (typed and not is_plain(leaf))
            ):
                return None
            if leaf is not None and leaf._grad is not None and not _is_held_once(leaf):
                return None
            leaves.append(leaf)
            nodes.append(node)
        return leaves if len(set(nodes)) == len(nodes) else None

    def _ends_at(self, sinks: Sequence[Edge | None] | None, edges: list[Edge | None]) -> bool:
        if sinks is None or self.sinks is None:
            return sinks is self.sinks
        for sink, known in zip(sinks, self.sinks, strict=True):
            if sink is None or known is None:
                if sink is not known:
                    return False
                continue
            place, number = known
            if sink[1] != number:
                return False
            if place is not None:
                if edges[place][0] is not sink[0]:
                    return False
            elif any(edge is not None and edge[0] is sink[0] for edge in edges):
                return False
        return True


def _is_of(node: TapeNode, form: Form, count: int) -> bool:
    """Whether a node has this form and `count` edges."""
    if form[0] is CompiledBackward and type(node) is CompiledBackward:
        known = node.plan is form[1] and node.extra is None and node.saved is not None
        return known and all(storage.version == version for storage, version in node.saved_versions)
    return form_of(node) == form and len(node.edges) == count


def _is_held_once(leaf: Any) -> bool:
    """Whether only the leaf references its `.grad`: then no saved value shares its memory."""
    return getrefcount(leaf._grad) <= 2 and getrefcount(leaf._grad.storage) <= 2


# ------------------------------------------------------------------------------------ construction
def way_of(
    look: TapeStructure,
    roots: Roots,
    sinks: Sequence[Edge | None] | None,
    order: Iterable[int],
    *,
    is_typed: bool,
) -> Way:
    """The tables of a structure."""
    edges: list[Any] = [edge for edge, _ in roots]
    inner = [k for k in order if look.nodes[k].sequence != LAST]
    for k in inner:
        edges += look.nodes[k].edges
    ends: dict[int, None] = {}
    for edge in edges:  # grows meanwhile
        if edge is not None and edge[0].sequence == LAST and look.number[edge[0]] not in ends:
            ends[look.number[edge[0]]] = None
            edges += edge[0].edges
    first: dict[Any, int] = {}
    again = []
    for place, edge in enumerate(edges):
        if edge is not None and first.setdefault(edge[0], place) != place:
            again.append((place, first[edge[0]]))
    grads = [grad for _, grad in roots]
    single = len(grads) == 1 and grads[0] is not None and is_plain(grads[0])
    return Way(
        len(roots),
        grads[0].meta if single else None,
        signatures(grads),
        tuple([(first[look.nodes[k]], _call_of(look, k)) for k in inner]),
        tuple([(look.forms[k], len(look.nodes[k].edges)) for k in inner]),
        tuple(_unlinked([look.nodes[k] for k in inner])),
        tuple([_end_of(look, k, first) for k in ends]),
        tuple(again),
        tuple([(p, e[1]) for p, e in enumerate(edges) if e is not None and e[0].results() > 1]),
        tuple([place for place, edge in enumerate(edges) if edge is None]),
        None if sinks is None else tuple([s and (first.get(s[0]), s[1]) for s in sinks]),
        tuple(inner),
        tuple(ends),
        tuple([first[node] for node in look.nodes]),
        len(edges),
        is_typed,
    )


def _unlinked(nodes: Sequence[TapeNode]) -> Iterator[tuple[int, int]]:
    for row, (node, following) in enumerate(pairwise(nodes)):
        if not any(edge is not None and edge[0] is following for edge in node.edges):
            yield row, row + 1


def _call_of(look: TapeStructure, number: int) -> OpCall | None:
    """The `OpCall` of an open op node without hooks: it identifies the form."""
    node = look.nodes[number]
    plain = type(node) is OpNode and look.forms[number][0] != CLOSED and node.extra is None
    return node.call if plain else None  # type: ignore[attr-defined]


def _end_of(look: TapeStructure, number: int, first: dict[object, int]) -> Any:
    node: Any = look.nodes[number]
    form, place = look.forms[number], first[node]
    if len(form) == 3 and form[0] is AccumulateGrad and not node.edges and node.extra is None:
        return place, form[1], form[2], form, 0
    return place, None, False, form, len(node.edges)
