"""The CPU's choice of a `LoopGeometry`: which axes are units, blocks and tiles.

Nothing here is of C. Spec: `specs/c_printer.md`.
"""

from __future__ import annotations

import math

from aotlite.backends.c_family.loop_geometry import LoopGeometry
from aotlite.backends.cpu.emit.transpose_tiles import tile_axis
from aotlite.backends.loops.analysis.cost import columns_abreast, has_one_pass
from aotlite.backends.loops.program import Kernel, in_order
from aotlite.ir.geometry.sizes import hint_of

BLOCK = 4096
"""The points of the vector axis in a unit without inner axes, if rows are few."""
COLUMNS = 1024
"""The most points of the vector axis in a unit of several passes."""
FEW_ROWS = 64
FEW_UNITS = 8


def _columns(kernel: Kernel, extent: int, rows: int) -> int:
    """Returns the points of the vector axis in a unit with inner axes."""
    most = columns_abreast(kernel)
    if has_one_pass(kernel):
        return most
    shares = 1 if rows >= FEW_UNITS else 4
    return min(COLUMNS, most, max(128, -(-extent // shares // 64) * 64))


def geometry(kernel: Kernel, extents: tuple[int, ...]) -> LoopGeometry:
    """Returns the loops of a kernel. Without a chosen vector axis the last axis is taken."""
    vector = len(extents) - 1 if kernel.vector is None else kernel.vector
    ordered = in_order(kernel)
    if not 0 <= vector < kernel.space - ordered:
        return LoopGeometry(extents, kernel.space, None, 1, ordered=ordered)
    extent = extents[vector]
    length = hint_of(extent)
    rows = hint_of(math.prod(extents[: kernel.space])) // max(length, 1)
    block = extent
    if len(extents) > kernel.space:
        block = _columns(kernel, length, rows)
        block = min(extent, block) if type(extent) is int else block
    elif rows < FEW_ROWS:
        block = min(extent, BLOCK) if type(extent) is int else BLOCK
    tile = None if ordered else tile_axis(kernel, vector)
    block = max(block, 1) if type(block) is int else block
    return LoopGeometry(extents, kernel.space, vector, block, tile, ordered)
