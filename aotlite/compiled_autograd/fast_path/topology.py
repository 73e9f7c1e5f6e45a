"""How the nodes of a structure are reached, and what they are: tables for a few short loops.

All edges are one list: those of the roots, then those of each node, in the order in which the
engine runs nodes, then those of leaves. A node is at the place of the first edge that leads to it.
So one loop asks of each node what its form says; other edges lead to the same node as the first
one does. Loops over tables are faster than a line of code for each node, which Python would read
once a backward. Rules: CAG-6, CAG-7. Spec: `specs/compiled_autograd.md`.
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
    """A tape that is as expected."""

    edges: list[Any]
    nodes: list[TapeNode]
    """Those that run by their numbers, the last made first."""
    leaves: list[Any]
    """Those of the nodes of `ends`; None for one that is gone."""


@attrs.frozen(eq=False)
class Way:
    """The tables of one structure."""

    starts: int
    """How many roots there are."""
    meta: TensorMeta | None
    """The layout of the gradient of the only root."""
    signatures: Any
    """The layouts of the gradients of several, or of one that is absent."""
    inner: tuple[tuple[int, OpCall | None], ...]
    """Of each node that runs by its number: its place, and its call; None: its form is asked."""
    forms: tuple[tuple[Form, int], ...]
    """The forms of these nodes, and how many edges each has."""
    unlinked: tuple[tuple[int, int], ...]
    """Neighbours in `inner` with no edge between them. Where there is one, the numbers fall: edges
    lead to nodes made before (SEQ-1)."""
    ends: tuple[tuple[int, TensorMeta | None, bool, Form, int], ...]
    """Of each node that accumulates: its place; the leaf's meta, None: its form is asked; whether
    the leaf collects; its form; how many edges it has."""
    again: tuple[tuple[int, int], ...]
    """Edges to nodes that another edge led to before: their places, and those of the first ones."""
    several: tuple[tuple[int, int], ...]
    """Edges to nodes of several results: their places, and the numbers of the results."""
    nowhere: tuple[int, ...]
    """The places of edges that lead nowhere."""
    sinks: tuple[Any, ...] | None
    """Where the sinks are: (place, or None for a node that no gradient reaches; result)."""
    numbers: tuple[int, ...]
    """The numbers that a look gives to the nodes of `inner`."""
    end_numbers: tuple[int, ...]
    """And to those of `ends`."""
    places: tuple[int, ...]
    """The places of all nodes, in the order of a look."""
    count: int
    """Of edges."""
    is_typed: bool
    """Whether it looks at classes of tensors: it need not where there are no wrappers."""

    def reached(self, roots: Roots, sinks: Sequence[Edge | None] | None) -> Reached | None:
        """What the roots lead to, if all of it is as expected.

        Raises what taking apart a node of another form raises.
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

    def _nodes(self, edges: list[Any]) -> list[TapeNode] | None:
        """The nodes that run by their numbers, which fall: so no two of them are one."""
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

    def _leaves(self, edges: list[Any]) -> list[Any] | None:
        """The leaves, each behind another node; None for one that is gone."""
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

    def _ends_at(self, sinks: Sequence[Edge | None] | None, edges: list[Any]) -> bool:
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
    """Whether a node has this form and so many edges."""
    if form[0] is CompiledBackward and type(node) is CompiledBackward:
        known = node.plan is form[1] and node.extra is None and node.saved is not None
        return known and all(storage.version == version for storage, version in node.saved_versions)
    return form_of(node) == form and len(node.edges) == count


def _is_held_once(leaf: Any) -> bool:
    """Whether nothing but the leaf has its `.grad`: what the tape has saved is other memory."""
    return getrefcount(leaf._grad) <= 2 and getrefcount(leaf._grad.storage) <= 2


# ------------------------------------------------------------------------------------- its making
def way_of(
    look: TapeStructure,
    roots: Roots,
    sinks: Sequence[Edge | None] | None,
    order: Iterable[int],
    *,
    is_typed: bool,
) -> Way:
    """The tables of a look."""
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
    """What tells the node of an op."""
    node = look.nodes[number]
    plain = type(node) is OpNode and look.forms[number][0] != CLOSED and node.extra is None
    return node.call if plain else None  # type: ignore[attr-defined]


def _end_of(look: TapeStructure, number: int, first: dict[Any, int]) -> Any:
    node: Any = look.nodes[number]
    form, place = look.forms[number], first[node]
    if len(form) == 3 and form[0] is AccumulateGrad and not node.edges and node.extra is None:
        return place, form[1], form[2], form, 0
    return place, None, False, form, len(node.edges)
