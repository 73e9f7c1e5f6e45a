"""The costs of min-cut: the weight of saving each value, and bans on recomputing it.

Used by `min_cut.py`. Bans follow from the ops' declarations (`Op.cost`), weights from bytes and
from who reads a value. Rules: PART-16 to PART-22, PART-25, PART-37, PART-39.
Spec: `specs/s8_mincut.md`.

Note [When a saved value may be recomputed]
    y = x.sin().exp(); z = x @ w; x.mul_(2)
`sin` and `exp` fuse with what reads them: the backward may compute them again from `x`. `z` is a
contraction, which costs more than the memory traffic that it would save: it is saved, not computed
again (PART-20). A second computation has to give the same bits from the same operands: random ops
are not run twice, nor are sums that a gradient compares for equality (PART-39), nor effects
(PART-23). And `x`, which is written, is saved as a copy if the backward needs its old value.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

import attrs

import aotlite.ir.ops  # noqa: F401  (fills the op table)
from aotlite.ir.effects import TokenOp
from aotlite.ir.errors import ArgumentError
from aotlite.ir.geometry.sizes import hint_of
from aotlite.ir.graph import Node, Phase
from aotlite.ir.op import OPS, Cost, Op
from aotlite.stages.s8_partition.flow_network import UNLIMITED, ReducedNetwork
from aotlite.stages.s8_partition.indexed_graph import IndexedGraph
from aotlite.stages.shared.effect_tokens import refuse_recomputed_effect

_FUSES, _DEAR, _VIEWS, _JOINS = 1, 2, 4, 8
TRAITS = {
    Cost.POINTWISE: _FUSES,
    Cost.FACTORY: _FUSES,
    Cost.VIEW: _FUSES | _VIEWS,
    Cost.REDUCTION: _FUSES,
    Cost.RANDOM: _FUSES | _DEAR,
    Cost.INDEXING: _DEAR,
    Cost.CONTRACTION: _DEAR,
    Cost.OPAQUE: _DEAR,
}
"""PART-19, PART-20: which ops fuse with their neighbors, and which are not recomputed."""
_CALLED = {
    Cost.RANDOM: "a random op",
    Cost.INDEXING: "an indexing op",
    Cost.CONTRACTION: "a contraction",
    Cost.OPAQUE: "an op of unknown cost",
}
_EQUALITIES = (OPS["eq"], OPS["ne"])
_FORWARD, _BACKWARD = 1, 2
_LONG = 100
"""PART-22: the longest chain of fusible ops, in node positions, that is recomputed whole."""
_FAR = 1_000_000_000
_GROWTH = [1.1 ** max(1, distance) for distance in range(101)]
"""PART-18: weights grow with the distance from the backward; the nearer of equal values wins."""


@attrs.frozen(eq=False)
class RecomputeCosts:
    """The flow network of a joint graph, and the bans that it encodes, by node number."""

    network: ReducedNetwork
    banned: list[str]
    """Why a forward value is not recomputed; empty if it may be."""
    copied: set[int]
    """Values that would be saved as copies: the caller may write their memory (PART-37)."""


def costs_of(indexed: IndexedGraph) -> RecomputeCosts:
    """The flow network of a joint graph (PART-16, PART-17), before reductions."""
    marks = _marks(indexed)
    traits = _traits(indexed)
    seen = _seen(indexed, marks, traits)
    banned = _banned(indexed, marks, traits, seen)
    _break_runs(indexed, marks, traits, banned)
    reach = _reach(indexed, marks, banned)
    copied = _copied(indexed, reach)
    capacities = _capacities(indexed, seen, reach, copied)
    for i in _read_late(indexed, marks):
        capacities[i] = UNLIMITED
    starts = [1 if why else 0 for why in banned]
    network = ReducedNetwork(
        indexed.inputs, capacities, reach.live, starts, reach.ends, reach.users
    )
    return RecomputeCosts(network, banned, copied)


def computed_forward(indexed: IndexedGraph) -> set[int]:
    """The nodes that the results depend on: the forward computes them anyway."""
    return {i for i, mark in enumerate(_marks(indexed)) if mark & _FORWARD}


def _marks(indexed: IndexedGraph) -> list[int]:
    """For each node whether results depend on it, or gradients, or both, as flags."""
    marks = [0] * len(indexed.graph.nodes)
    for _, i in indexed.results:
        marks[i] |= _FORWARD
    for _, i in indexed.gradients:
        marks[i] |= _BACKWARD
    for i in range(len(marks) - 2, -1, -1):
        mark = marks[i]
        if mark:
            for p in indexed.inputs[i]:
                marks[p] |= mark
    return marks


def _traits(indexed: IndexedGraph) -> list[int]:
    known: dict[Any, int] = {}
    found = []
    for node in indexed.graph.nodes:
        if node.op != "call":
            found.append(_FUSES if node.op == "get_attr" else 0)
            continue
        op: Op = node.target
        if op not in known:
            if not op.pure and type(op) is not TokenOp:
                raise ArgumentError(f"min-cut: the graph has {op.name}, expected pure ops only")
            # PART-19: a concatenation fuses with its operands, whatever they are.
            known[op] = TRAITS[op.cost] | (_JOINS if op.lists else 0)
        found.append(known[op])
    return found


@attrs.frozen(eq=False)
class _Seen:
    """Facts on each value that follow from its users."""

    distance: list[int]
    """The number of forward ops between it and the backward."""
    materialized: list[int]
    """Whether it is written to memory in any case: some user does not fuse with it (PART-18)."""
    feeds: list[int]
    """Whether a backward op that does not fuse reads it, possibly through views (PART-20)."""


def _seen(indexed: IndexedGraph, marks: list[int], traits: list[int]) -> _Seen:
    count = len(indexed.graph.nodes)
    distance, materialized, feeds = [_FAR] * count, [0] * count, [0] * count
    for p in indexed.inputs[-1]:
        materialized[p] = 1
    for i in range(count - 2, -1, -1):
        mark, trait = marks[i], traits[i]
        if not mark:
            continue
        forward = mark & _FORWARD
        away = distance[i] = distance[i] + 1 if forward else 0
        fused = trait & _FUSES or _picks(indexed.graph.nodes[i])
        for p in indexed.inputs[i]:
            if away < distance[p]:
                distance[p] = away
            if not (fused and traits[p] & _FUSES or trait & _JOINS):
                materialized[p] = 1
                if not forward:
                    feeds[p] = 1
            if trait & _VIEWS and feeds[i]:
                feeds[p] = 1
    return _Seen(distance, materialized, feeds)


def _banned(indexed: IndexedGraph, marks: list[int], traits: list[int], seen: _Seen) -> list[str]:
    """For each node why the backward may not recompute it; empty if it may (PART-20)."""
    found = [""] * len(indexed.graph.nodes)
    compared = _compared(indexed, marks)
    for i, node in enumerate(indexed.graph.nodes):
        if node.op == "placeholder":
            found[i] = "" if indexed.tangents[i] else "it is an input"
        elif marks[i] & _FORWARD and not traits[i] & _VIEWS and node.op == "call":
            if type(node.target) is TokenOp:
                refuse_recomputed_effect(node)
                found[i] = "an effect happens once"
            elif node.recompute is not True:
                found[i] = _ban(node, traits[i], feeds=seen.feeds[i], compared=compared[i])
    return found


def _compared(indexed: IndexedGraph, marks: list[int]) -> bytearray:
    """Whether a comparison with `eq` or `ne` in the backward depends on each value (PART-39)."""
    found = bytearray(len(indexed.graph.nodes))
    for i in range(len(found) - 1, -1, -1):
        if marks[i] & _BACKWARD and (found[i] or indexed.graph.nodes[i].target in _EQUALITIES):
            for p in indexed.inputs[i]:
                found[p] = 1
    return found


def _ban(node: Node, trait: int, *, feeds: int, compared: int) -> str:
    if node.recompute is False:
        return "the program asks to save it"
    if trait & _DEAR:
        return f"{_CALLED[node.target.cost]} is expensive to recompute"
    if node.target.cost is Cost.REDUCTION and compared:
        return "recomputed in another order, numbers that a gradient compares would not be equal"
    if node.target.cost is Cost.REDUCTION and _is_lasting(node):
        return "a reduction that is much smaller than its operand, or as large, is kept"
    return "an op of the backward reads it from memory" if feeds else ""


def _break_runs(
    indexed: IndexedGraph, marks: list[int], traits: list[int], banned: list[str]
) -> None:
    """Bans a value about every hundred nodes of a long fusible chain (PART-22).

    Recomputed from its start, the whole chain would be alive at once in the backward. The banned
    value is one that all of the chain goes through.
    """
    users: list[list[int]] = [[] for _ in indexed.inputs]
    for i, read in enumerate(indexed.inputs):
        if marks[i] & _FORWARD and traits[i] & _FUSES and not banned[i]:
            for p in read:
                if traits[p] & _FUSES:
                    users[p].append(i)
    walked = bytearray(len(users))
    for start in range(len(users)):
        frontier = [start] if users[start] and not walked[start] else []
        while frontier:
            i = heappop(frontier)
            while frontier and frontier[0] == i:
                heappop(frontier)
            if walked[i]:
                continue
            walked[i] = 1
            if i > start + _LONG and not frontier:
                node = indexed.graph.nodes[i]
                if not traits[i] & _VIEWS and node.recompute is not True:
                    banned[i] = "a run of a hundred ops that fuse ends with it"
                break
            for user in users[i]:
                heappush(frontier, user)


def _is_lasting(node: Node) -> bool:
    """Whether a reduction's result is saved: it is small, or it is no real reduction.

    Small: under a quarter of the operands' bytes. A normalization, a running sum and a sort return
    as many bytes as they read.
    """
    return _is_small(node) or _bytes(node.meta) >= _read(node)


def _is_small(node: Node) -> bool:
    return 4 * _bytes(node.meta) < _read(node)


def _read(node: Node) -> int:
    return _bytes([value.meta for value in node.args if type(value) is Node])


def _picks(node: Node) -> bool:
    """Whether an indexing op takes little of its operand: then it fuses with it (PART-19)."""
    return node.op == "call" and node.target.cost is Cost.INDEXING and _is_small(node)


def _bytes(meta: Any) -> int:
    if type(meta) in (tuple, list):
        return sum(map(_bytes, meta))
    return hint_of(meta.nbytes)  # a cost: of sizes that are symbols, those of the call (DYN-16)


# ---------------------------------------------------------------------------- users in the backward
@attrs.frozen(eq=False)
class _Reach:
    """The forward values that the backward may read, found from the gradients."""

    live: list[int]
    """Whether it is a candidate to save."""
    ends: list[int]
    """Whether a node that only the backward can compute reads it: an edge to the sink."""
    users: list[int]
    """The number of forward values that may be recomputed from it."""
    needs: list[int]
    """The tangents, as bits, whose backward may need it."""
    reads: list[int]
    """By root: the tangents whose backward reads this memory in eager as well, which checks it."""


def _reach(indexed: IndexedGraph, marks: list[int], banned: list[str]) -> _Reach:
    count = len(indexed.graph.nodes)
    live, ends, users = [0] * count, [0] * count, [0] * count
    needs, reads = [0] * count, [0] * count
    for _, i in indexed.gradients:
        if not indexed.tangents[i]:
            live[i] = ends[i] = 1
            needs[i] = reads[indexed.roots[i]] = indexed.every_tangent
    tangents, inputs, roots, nodes = (
        indexed.tangents,
        indexed.inputs,
        indexed.roots,
        indexed.graph.nodes,
    )
    for i in range(count - 2, -1, -1):
        mask = tangents[i]
        if mask:
            if not marks[i] & _BACKWARD:
                continue
            last = 1
        elif live[i] and not banned[i]:
            mask, last = needs[i], nodes[i].recompute is True and nodes[i].op == "call"
        else:
            continue
        recorded = nodes[i].phase is Phase.BACKWARD
        for p in inputs[i]:
            if tangents[p]:
                continue
            live[p] = 1
            if last:
                ends[p] = 1
            else:
                users[p] += 1
            needs[p] |= mask
            if recorded:
                reads[roots[p]] |= mask
    _drop_wished(indexed, live)
    return _Reach(live, ends, users, needs, reads)


def _drop_wished(indexed: IndexedGraph, live: list[int]) -> None:
    """Removes values that a checkpoint recomputes from the candidates (PART-17)."""
    for i, node in enumerate(indexed.graph.nodes):
        if node.recompute is True and node.op == "call":
            live[i] = 0


def _copied(indexed: IndexedGraph, reach: _Reach) -> set[int]:
    """Values that would be saved as copies (PART-31, PART-37).

    The call overwrites their memory; or the caller may write it, eager does not check that, and it
    cannot be copied on write.
    """
    held, written = indexed.callers_memory
    found = set()
    for i, root in enumerate(indexed.roots):
        if reach.live[i] and root in held:
            unchecked = reach.needs[i] & ~reach.reads[root]
            if root in written or (unchecked and root not in indexed.copiable_on_write):
                found.add(i)
    return found


def _read_late(indexed: IndexedGraph, marks: list[int]) -> list[int]:
    """Backward nodes that read the caller's memory, as in eager: they are not saved (PART-40)."""
    held = indexed.callers_memory[0] - indexed.callers_memory[1]
    found: list[int] = []
    late: set[int] = set()
    for i, node in enumerate(indexed.graph.nodes):
        own = node.phase is Phase.BACKWARD and node.op == "call" and not marks[i] & _FORWARD
        own = own and indexed.roots[i] not in held  # no view, which is that memory itself
        if own and any(indexed.roots[p] in held or p in late for p in indexed.inputs[i]):
            late.add(i)
            found.append(i)
    return found


def _capacities(
    indexed: IndexedGraph, seen: _Seen, reach: _Reach, copied: set[int]
) -> list[int | float]:
    """The weight of saving each value (PART-18): its bytes, and twice that if it would not be
    written to memory otherwise.
    """
    found: list[int | float] = [0] * len(indexed.graph.nodes)
    known: dict[tuple[Any, int], int] = {}
    for i, is_live in enumerate(reach.live):
        if not is_live:
            continue
        node = indexed.graph.nodes[i]
        if type(node.meta) is tuple:
            found[i] = UNLIMITED
            continue
        key = node.meta, seen.distance[i]
        weight = known.get(key)
        if weight is None:
            weight = known[key] = int(_bytes(node.meta) * _GROWTH[min(key[1], 100)])
        in_memory = node.op == "placeholder" or seen.materialized[i]
        found[i] = weight if in_memory and i not in copied else 2 * weight
    return found
