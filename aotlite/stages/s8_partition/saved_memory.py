"""Saved values on the caller's memory: those that eager does not save, and check, as well.

    y = x.exp(); z = y.sin()      # eager saves y; min-cut saves x, and recomputes y from it

If the caller writes x before the backward, eager does not mind. So x is copied on write. Used by
`cut` alone. Rules: PART-37, PART-40. Spec: `specs/s8_partition.md`.
"""

from __future__ import annotations

from aotlite.ir.graph import Phase
from aotlite.stages.s8_partition.indexed_graph import IndexedGraph


def unchecked_values(indexed: IndexedGraph, needed: list[bool], kept: list[bool]) -> set[int]:
    """Saved values on the caller's memory that eager's backward would not read (PART-37).

    The caller may write them before the backward. Only recomputation leads to such reads.
    """
    nodes, roots, held = indexed.graph.nodes, indexed.roots, indexed.callers_memory[0]
    shared = [i for i, is_kept in enumerate(kept) if is_kept and roots[i] in held]
    if not shared or not any(
        is_needed and not is_kept and node.phase is Phase.FORWARD and node.op == "call"
        for node, is_needed, is_kept in zip(nodes, needed, kept, strict=True)
    ):
        return set()
    checked = {roots[i]: 0 for i in shared}
    eager, ours = _times(indexed, None), _times(indexed, kept)
    for i, node in enumerate(nodes):
        if node.phase is Phase.BACKWARD:
            for p in indexed.inputs[i]:
                if roots[p] in checked:
                    checked[roots[p]] |= indexed.tangents[i] or eager[i]
    return {i for i in shared if ours[i] & ~checked[roots[i]]}


def recomputed_from(indexed: IndexedGraph, needed: list[bool], kept: list[bool]) -> set[int]:
    """Roots on the caller's memory from which the backward recomputes values (PART-40)."""
    roots, held = indexed.roots, indexed.callers_memory[0]
    found: set[int] = set()
    early = indexed.upstream([i for _, i in indexed.results])
    for i, node in enumerate(indexed.graph.nodes):
        again = needed[i] and not kept[i] and node.op == "call"
        if again and (node.phase is Phase.FORWARD or early[i]):
            found.update([roots[p] for p in indexed.inputs[i] if roots[p] != roots[i]])
    return found & held


def _times(indexed: IndexedGraph, kept: list[bool] | None) -> list[int]:
    """For each value the tangents, as bits, whose backward needs it; `kept` values end the search.

    All tangents, if a gradient needs it that depends on no tangent.
    """
    count = len(indexed.inputs)
    every = indexed.every_tangent
    if every == 1:
        return [1] * count
    found = [0] * count
    for _, i in indexed.gradients:
        found[i] = indexed.tangents[i] or every
    for i in range(count - 2, -1, -1):
        mask = found[i]
        if mask and not (kept and kept[i]):
            mask = indexed.tangents[i] or mask
            for p in indexed.inputs[i]:
                found[p] |= mask
    return found
