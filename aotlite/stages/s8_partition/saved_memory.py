"""Saved values in the caller's memory: which the backward reads unchecked, or computes again from.

Used by `cut` alone. Rules: PART-37, PART-40. Spec: `specs/s8_partition.md`.
"""

from __future__ import annotations

from aotlite.ir.graph import Phase
from aotlite.stages.s8_partition.indexed_graph import IndexedGraph


def unchecked_values(joint: IndexedGraph, needed: list[bool], kept: list[bool]) -> set[int]:
    """PART-37: kept values that the backward reads where eager's would not.

    The caller may write their memory before the backward, and eager would not mind. Only what is
    computed again makes such reads.
    """
    nodes, roots, held = joint.graph.nodes, joint.roots, joint.callers_memory[0]
    shared = [i for i, is_kept in enumerate(kept) if is_kept and roots[i] in held]
    if not shared or not any(
        is_needed and not is_kept and node.phase is Phase.FORWARD and node.op == "call"
        for node, is_needed, is_kept in zip(nodes, needed, kept, strict=True)
    ):
        return set()
    checked = {roots[i]: 0 for i in shared}
    eager, ours = _times(joint, None), _times(joint, kept)
    for i, node in enumerate(nodes):
        if node.phase is Phase.BACKWARD:
            for p in joint.inputs[i]:
                if roots[p] in checked:
                    checked[roots[p]] |= joint.tangents[i] or eager[i]
    return {i for i in shared if ours[i] & ~checked[roots[i]]}


def recomputed_from(joint: IndexedGraph, needed: list[bool], kept: list[bool]) -> set[int]:
    """PART-40: the caller's memory of which the backward computes again what eager has saved."""
    roots, held = joint.roots, joint.callers_memory[0]
    found: set[int] = set()
    early = joint.upstream([i for _, i in joint.results])
    for i, node in enumerate(joint.graph.nodes):
        again = needed[i] and not kept[i] and node.op == "call"
        if again and (node.phase is Phase.FORWARD or early[i]):
            found.update([roots[p] for p in joint.inputs[i] if roots[p] != roots[i]])
    return found & held


def _times(joint: IndexedGraph, kept: list[bool] | None) -> list[int]:
    """For each value the tangents in whose backward it is needed, kept values being given.

    All of them, where a gradient that depends on no tangent needs it. With one tangent there is
    nothing to tell apart.
    """
    count = len(joint.inputs)
    every = joint.every_tangent
    if every == 1:
        return [1] * count
    found = [0] * count
    for _, i in joint.gradients:
        found[i] = joint.tangents[i] or every
    for i in range(count - 2, -1, -1):
        mask = found[i]
        if mask and not (kept and kept[i]):
            mask = joint.tangents[i] or mask
            for p in joint.inputs[i]:
                found[p] |= mask
    return found
