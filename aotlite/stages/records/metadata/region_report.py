"""`RegionReport`: which calls of marked functions were traced, and which were repeated.

Made by stage 1 and shown as `1 capture, regions`. Rule: REG-29. Spec: `specs/equal_regions.md`.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from aotlite.stages.records.base import Record


@attrs.frozen
class RegionCall(Record):
    """One call of a function that is marked as a region."""

    name: str
    mark: str
    """Its name and number, such as `block[3]`."""
    of: str = ""
    """The call whose ops were repeated; empty if it was traced."""
    within: str = ""
    """The call around it whose repetition it is part of."""
    why: str | None = None
    """The reason why a traced call was not repeated, or cannot be."""

    def __str__(self) -> str:
        if self.of:
            return f"{self.mark}: {self.of} again."
        if self.within:
            return f"{self.mark}: part of {self.within}."
        return f"{self.mark}: traced{'' if self.why is None else f', since {self.why}'}."


@attrs.frozen
class RegionReport(Record):
    """The calls of all marked functions, in order. Prints as sentences."""

    calls: tuple[RegionCall, ...]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for name in dict.fromkeys(call.name for call in self.calls):
            calls = [call for call in self.calls if call.name == name]
            again = sum(bool(call.of or call.within) for call in calls)
            counts = f"{len(calls) - again} traced, {again} repeated"
            yield f"Region {name}, {len(calls)} call{'s' * (len(calls) != 1)}: {counts}."
            yield from [f"  {call}" for call in calls]
