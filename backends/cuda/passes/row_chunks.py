"""Into how many chunks rows are divided, of which blocks make partial results.

A model of what is lost: multiprocessors that wait for the last blocks, memory that too few threads
ask for, partial results that are stored and loaded again, points that are left over. Nothing here
is measured. Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

import attrs

from aotlite.backends.cuda.target import Target

BUSY = 0.6
"""The share of the blocks which are there at once that keeps memory busy."""
ALONE = 0.5
"""The time that a block takes if no others run, over that among as many as there is room for."""
LAUNCH_BYTES = 1 << 24
"""What memory could move while one more kernel, for the points that are left over, is begun and
waited for: some microseconds."""
FEW_LEFT = 1 / 8
"""Points that are left over, of as many as there are chunks, at most."""


@attrs.frozen
class Division:
    """An axis that is to be divided."""

    extent: int
    blocks: int
    """Of a chunk."""
    room: int
    """Blocks that a multiprocessor holds at once."""
    moved: int
    """Bytes, of all of the axis."""
    partial_bytes: int
    """What storing and loading the partial results of a chunk moves."""
    most: int | None = None
    """Chunks, at most."""


def best_chunks(division: Division, target: Target) -> int:
    """The number of chunks of which the model says that least is lost; of several the least.

    Of 8,192 rows a whole multiprocessor computes at a time, 128 chunks keep 128 of 132 busy, as
    256 would, with half the partial results:

    >>> from aotlite.backends.cuda.target import H100
    >>> rows = Division(8192, blocks=1, room=1, moved=3 << 27, partial_bytes=1 << 17)
    >>> best_chunks(rows, H100)
    128
    """
    at_once = -(-2 * division.room * target.multiprocessors // division.blocks)
    most = min(division.extent, at_once, division.most or at_once)
    found = [n for n in range(1, most + 1) if division.extent % n <= n * FEW_LEFT]
    return min(found, key=lambda chunks: cost(division, chunks, target))


def cost(division: Division, chunks: int, target: Target) -> float:
    """The time over that of moving everything once, on multiprocessors that are all busy."""
    left = division.extent % chunks
    more = chunks * division.partial_bytes
    lost = 0.0
    if left:
        # A chunk's blocks go over what is left, as slowly as latency has it, while no others run.
        abreast = min(chunks, division.room * target.multiprocessors / division.blocks)
        more += LAUNCH_BYTES
        lost = ALONE * left * abreast / division.extent
    waiting = _waiting(division.blocks * chunks, division.room, target)
    return waiting * (1 + lost + more / max(division.moved, 1))


def _waiting(blocks: int, room: int, target: Target) -> float:
    """The time of so many equal blocks over that of as much work in no blocks."""
    together = room * target.multiprocessors
    full, last = divmod(blocks, together)
    busiest = -(-last // target.multiprocessors) * target.multiprocessors
    behind = max(busiest, BUSY * together) if last else 0
    return (full * together + behind) / blocks
