"""How the axes of a kernel become loops.

Output: frozen `LoopGeometry`. Nothing here is of C. Spec: `specs/c_printer.md`.
"""

from __future__ import annotations

import math

import attrs

TILE = 64
"""Points of the axis along which operands across have stride 1."""


@attrs.frozen
class LoopGeometry:
    """The loops of a kernel: units, which run in parallel, inner axes, the vector axis."""

    extents: tuple[int, ...]
    space: int
    vector: int | None
    """The axis of the innermost loop if it is a space axis; else it is the last inner axis."""
    block: int
    """Points of the vector axis in a unit; its extent where it is not divided."""
    tile: int | None = None
    """The other axis of tiles; a unit has `TILE` points of it."""
    ordered: int = 0
    """How many of the last space axes go in order, since they add up in the same places."""

    @property
    def outer(self) -> list[int]:
        """The axes whose positions a unit has one of."""
        return [k for k in range(self.space) if k not in (self.vector, self.tile)]

    @property
    def tiles(self) -> int:
        """How many parts the other axis of tiles has."""
        return 1 if self.tile is None else -(-self.extents[self.tile] // TILE)

    @property
    def inner(self) -> list[int]:
        """The inner axes."""
        return list(range(self.space, len(self.extents)))

    @property
    def blocks(self) -> int:
        """How many blocks the vector axis has."""
        return 1 if self.vector is None else -(-self.extents[self.vector] // self.block)

    @property
    def units(self) -> int:
        """The number of units."""
        return math.prod([self.extents[k] for k in self.outer]) * self.tiles * self.blocks

    @property
    def together(self) -> int:
        """Consecutive units that one chunk has all or none of (K-7)."""
        if not self.ordered:
            return 1
        last = [k for k in self.outer if k >= self.space - self.ordered]
        return math.prod([self.extents[k] for k in last]) * self.tiles * self.blocks

    @property
    def points(self) -> int:
        """Inner points."""
        return math.prod([self.extents[k] for k in self.inner])

    @property
    def width(self) -> int:
        """Elements of a local array for each inner point."""
        return 1 if self.vector is None else self.block

    @property
    def innermost(self) -> int | None:
        """The axis of the innermost loop; None where there is no axis."""
        if self.vector is not None:
            return self.vector
        return len(self.extents) - 1 if self.inner else None
