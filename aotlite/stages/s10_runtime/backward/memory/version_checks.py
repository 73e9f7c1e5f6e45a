"""Lines of run-time functions that tell a tape node whose memory its backward reads.

Used by stage 10 alone. What eager's backward reads, too, is linked: its version is checked. What
eager's does not read is lent: it is copied before somebody writes it. What is guarded is copied, to
compare, where a write could go unnoticed.
Rules: SAV-2, PART-37, PART-40. Spec: `specs/s10_runtime.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from aotlite.stages.records.backward.gradient_reads import SavedOf
from aotlite.stages.s10_runtime.source import MANY, Source, listed

Storages = Callable[[Any], str]
"""The expression for the storage of an owner of memory."""


def write_links(source: Source, links: Sequence[SavedOf], storage_of: Storages) -> None:
    """SAV-2: the versions of the memory of inputs and results that gradients read."""
    if not links:
        return
    owners = [each.owner for each in links]
    if len(owners) > MANY:
        source.add(f"storages = {listed([storage_of(owner) for owner in owners])}")
        source.add("node.links = [(s, s.version) for s in storages]")
        return
    names = _named(source, owners, storage_of, "s")
    source.add(f"node.links = {listed([f'({names[o]}, {names[o]}.version)' for o in owners])}")


def write_loans(source: Source, borrowed: Sequence[tuple[int, Any]], storage_of: Storages) -> None:
    """PART-37, PART-40: the memory whose bytes the node copies before they are written, or before
    they can be written unnoticed.
    """
    if not borrowed:
        return
    owners = [owner for _, owner in borrowed]
    names = _named(source, owners, storage_of, "l")
    source.add(f"node.lenders = {listed([names[owner] for owner in owners])}")
    source.add(*[f"{name}.lend(node)" for name in names.values()])


def _named(
    source: Source, owners: Sequence[Any], storage_of: Storages, letter: str
) -> dict[Any, str]:
    """Variables of the owners' storages."""
    names = {owner: f"{letter}{i}" for i, owner in enumerate(dict.fromkeys(owners))}
    for owner, name in names.items():
        source.add(f"{name} = {storage_of(owner)}")
    return names
