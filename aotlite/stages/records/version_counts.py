"""Version counters of storages that tensors move to or from, by `set_` and `resize_`.

Stage 2 makes the record from the recorder's counts, and stage 10 writes the lines. Rule: TEN-26.
Spec: `specs/s2_analyze.md`.
"""

from __future__ import annotations

import attrs

from aotlite.ir.graph.role import Hidden, IntermediateBase, Output, Primal
from aotlite.stages.records.base import Record


@attrs.frozen(repr=False)
class CountStep(Record):
    """A tensor moves from one storage to another (TEN-26); storages by their numbers."""

    old: int
    new: int
    old_writes: int
    """The number of writes since the step before, or since entry."""
    new_writes: int


@attrs.frozen(repr=False)
class CountPlan(Record):
    """The writes of each storage between the moves of tensors.

    After a move a storage's version depends on another storage's version at entry.
    """

    owners: tuple[Primal | Hidden | Output | IntermediateBase | None, ...]
    """The owner of each storage: an input by its storage at entry; None if no owner remains."""
    steps: tuple[CountStep, ...]
    rest: tuple[int, ...]
    """The writes of each storage since the last step."""
    totals: tuple[int, ...]
    """The writes of each storage that other lines count."""
