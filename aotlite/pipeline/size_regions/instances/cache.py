"""`RecentSizes`: what a region has made for vectors of sizes, at most so many (DYN-42)."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import attrs

from aotlite.ir.forks import UNFORKED

Sizes = tuple[int, ...]
T = TypeVar("T")


@attrs.define(eq=False)
class RecentSizes(Generic[T]):
    """Values by sizes: beyond `most`, the one that was used longest ago goes.

    A use notes the `clock`, which counts calls. Generated code reads `slots`, and does so itself.

    >>> made: RecentSizes[str] = RecentSizes(2, [0])
    >>> for n in (3, 4):
    ...     made.add((n,), f"of {n}")
    >>> made.clock[0] = 1
    >>> made.get((3,)), made.add((5,), "of 5"), list(made.slots)
    ('of 3', (4,), [(3,), (5,)])
    """

    most: int
    clock: list[int]
    slots: dict[Sizes, tuple[T, list[int], Any]] = attrs.field(factory=dict)
    """By sizes: the value, when it was used last, in a list, and its owner."""

    def get(self, sizes: Sizes) -> T | None:
        """The value for these sizes, which are used now; None without one."""
        slot = self.slots.get(sizes)
        if slot is None:
            return None
        slot[1][0] = self.clock[0]
        return slot[0]

    def owner(self, sizes: Sizes) -> Any:
        """The owner of the value for these sizes; None without one."""
        slot = self.slots.get(sizes)
        return None if slot is None else slot[2]

    def add(self, sizes: Sizes, value: T, owner: object = None) -> Sizes | None:
        """Adds the value for these sizes; returns the sizes whose value goes, if any."""
        gone = None
        with UNFORKED:
            if len(self.slots) >= self.most and sizes not in self.slots:
                gone = min(self.slots, key=lambda each: self.slots[each][1][0])
                del self.slots[gone]
            self.slots[sizes] = value, [self.clock[0]], owner
        return gone
