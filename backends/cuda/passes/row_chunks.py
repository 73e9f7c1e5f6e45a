"""The number of chunks of a split reduction, by a model of the time that is lost.

Lost are multiprocessors that wait for the last blocks, bandwidth that too few threads use, the
traffic of partial results, and a kernel for points left over. Nothing is measured. Spec:
`specs/cuda_printer.md`.
"""

from __future__ import annotations

import attrs

from aotlite.backends.cuda.target import Target

BUSY = 0.6
"""The share of resident blocks that keeps memory busy."""
ALONE = 0.5
"""The time of a block that runs alone, over its time among all resident ones."""
LAUNCH_BYTES = 1 << 24
"""The bytes that memory moves in the time of one more launch, some microseconds."""
FEW_LEFT = 1 / 8
"""The most points left over, as a share of the number of chunks."""


@attrs.frozen
class Division:
    """An axis that is to be divided."""

    extent: int
    blocks: int
    """The blocks of a chunk."""
    room: int
    """The resident blocks of a multiprocessor."""
    moved: int
    """The bytes that the whole axis moves."""
    partial_bytes: int
    """The bytes of storing and loading the partial results of a chunk."""
    most: int | None = None
    """The most chunks."""


def best_chunks(division: Division, target: Target) -> int:
    """Returns the number of chunks with the least loss by the model; of equal ones the smallest.

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
    """Returns the time, relative to moving everything once with all multiprocessors busy."""
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
    """Returns the time of equal blocks, relative to the same work perfectly divided."""
    together = room * target.multiprocessors
    full, last = divmod(blocks, together)
    busiest = -(-last // target.multiprocessors) * target.multiprocessors
    behind = max(busiest, BUSY * together) if last else 0
    return (full * together + behind) / blocks
