"""The loop nest of a kernel: which axes become units of work, blocks, tiles and vectors.

A kernel [i0<100, i1<6000, *i2<7] with vector axis 1 and block 4096 has 200 units, the pairs (i0,
block of i1), which run in parallel. Each unit loops over i2, and inside that over its part of i1:

    for (unit = begin; unit < end; ++unit)                // i0, block: v0 <= i1 < v1
        for (i2 = 0; i2 < 7; ++i2)
            for (i1 = v0; i1 < v1; ++i1)                  // vectorized

Nothing here is of C. Spec: `specs/c_printer.md`.
"""

from __future__ import annotations

import math

import attrs

TILE = 64
"""The size of a tile along its other axis, along which transposed operands have stride 1."""


@attrs.frozen
class LoopGeometry:
    """The loops of a kernel: units, which run in parallel, inner axes, and the vector axis."""

    extents: tuple[int, ...]
    space: int
    vector: int | None
    """The vector axis if it is a space axis. None: the last inner axis is the innermost loop."""
    block: int
    """Points of the vector axis in a unit; its whole extent where it is not divided."""
    tile: int | None = None
    """The other axis of tiles, through which operands are transposed; a unit has `TILE` points."""
    ordered: int = 0
    """The number of last space axes that run in order, since stores combine along them (K-7)."""

    @property
    def outer(self) -> list[int]:
        """The axes of which a unit has a single position."""
        return [k for k in range(self.space) if k not in (self.vector, self.tile)]

    @property
    def tiles(self) -> int:
        """The number of tiles along the other axis."""
        return 1 if self.tile is None else -(-self.extents[self.tile] // TILE)

    @property
    def inner(self) -> list[int]:
        """The inner axes."""
        return list(range(self.space, len(self.extents)))

    @property
    def blocks(self) -> int:
        """The number of blocks of the vector axis."""
        if type(self.block) is not int:
            return 1
        return 1 if self.vector is None else -(-self.extents[self.vector] // self.block)

    @property
    def units(self) -> int:
        """The number of units."""
        return math.prod([self.extents[k] for k in self.outer]) * self.tiles * self.blocks

    @property
    def together(self) -> int:
        """The number of consecutive units that must stay in one thread's chunk (K-7)."""
        if not self.ordered:
            return 1
        last = [k for k in self.outer if k >= self.space - self.ordered]
        return math.prod([self.extents[k] for k in last]) * self.tiles * self.blocks

    @property
    def sets(self) -> int:
        """The number of sets of units that stay together."""
        rest = [k for k in self.outer if k < self.space - self.ordered]
        return math.prod([self.extents[k] for k in rest])

    @property
    def points(self) -> int:
        """The number of inner points."""
        return math.prod([self.extents[k] for k in self.inner])

    @property
    def width(self) -> int:
        """The elements of a local array for each inner point."""
        return 1 if self.vector is None else self.block

    @property
    def innermost(self) -> int | None:
        """The axis of the innermost loop; None where there is no axis."""
        if self.vector is not None:
            return self.vector
        return len(self.extents) - 1 if self.inner else None
