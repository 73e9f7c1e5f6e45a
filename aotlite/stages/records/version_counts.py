"""The record of how counts of writes come about where tensors are put onto other memory.

Stage 2 makes it of what the recorder counted, and stage 10 writes it out. Rule: TEN-26.
Spec: `specs/s2_analyze.md`.
"""

from __future__ import annotations

import attrs

from aotlite.ir.graph.role import Hidden, IntermediateBase, Output, Primal
from aotlite.stages.records.base import Record


@attrs.frozen(repr=False)
class CountStep(Record):
    """A tensor is put from one storage onto another (TEN-26); storages by their numbers."""

    old: int
    new: int
    old_writes: int
    """Since the step before, or since entry."""
    new_writes: int


@attrs.frozen(repr=False)
class CountPlan(Record):
    """How the counts of writes come about where tensors are put onto other memory.

    Then a count depends on what another one was at entry.
    """

    owners: tuple[Primal | Hidden | Output | IntermediateBase | None, ...]
    """Whose storage each is: an input's at entry; None for one that nobody sees."""
    steps: tuple[CountStep, ...]
    rest: tuple[int, ...]
    """The writes of each storage since the last step."""
    totals: tuple[int, ...]
    """What is counted for each elsewhere."""
