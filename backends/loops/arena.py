"""Where temporaries lie: offsets in one arena.

Input: a program in its final order; output: a frozen plan. Buffers that are not alive at the same
time share bytes; a kernel may compute in place of a temporary that dies in it. Outputs are fresh
memory and lie elsewhere. Spec: `specs/fusion.md`.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from aotlite.backends.loops.program import (
    BufferKind,
    Kernel,
    LoopProgram,
    ProgramBuffer,
    Store,
    loads_of,
    reads,
    stores_of,
    writes,
)

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector."""


@attrs.frozen
class ArenaPlan:
    """An arena of `size` bytes, and where in it each temporary begins."""

    size: int
    offsets: Mapping[int, int]


Lives = dict[int, tuple[int, int]]
"""For each temporary the first and the last step that uses it."""


def planned(
    program: LoopProgram, alignment: int = ALIGNMENT, *, in_place: bool = True
) -> ArenaPlan:
    """The places of the temporaries.

    Without `in_place` no kernel's buffers share memory.
    """
    lives = lives_of(program)
    sizes = {b.number: _rounded(b, alignment) for b in program.buffers if b.number in lives}
    heirs = _in_place(program, lives) if in_place else {}
    offsets: dict[int, int] = {}
    alive: list[int] = []
    for number in sorted(lives, key=lambda n: (lives[n][0], n)):
        first = lives[number][0]
        given = heirs.get(number)
        if given is None:
            alive = [n for n in alive if lives[n][1] >= first]
            offsets[number] = _best_fit(sizes[number], alive, offsets, sizes)
        else:
            offsets[number] = offsets[given]
            alive.remove(given)
        alive.append(number)
    size = max([offsets[n] + sizes[n] for n in offsets], default=0)
    return ArenaPlan(size, offsets)


def lives_of(program: LoopProgram) -> Lives:
    """When each temporary is alive."""
    kinds = {buffer.number: buffer.kind for buffer in program.buffers}
    lives: Lives = {}
    for place, step in enumerate(program.steps):
        for number in reads(step) | writes(step):
            if kinds[number] is BufferKind.TEMPORARY:
                lives[number] = (lives.get(number, (place,))[0], place)
    return lives


def _rounded(buffer: ProgramBuffer, alignment: int) -> int:
    return -(-buffer.size * buffer.dtype.itemsize // alignment) * alignment


def _best_fit(
    size: int, alive: list[int], offsets: Mapping[int, int], sizes: Mapping[int, int]
) -> int:
    """The start of the smallest hole between living buffers that is large enough."""
    best, least, end = -1, -1, 0
    for start, length in sorted([(offsets[n], sizes[n]) for n in alive]):
        hole = start - end
        if hole >= size and (best < 0 or hole < least):
            best, least = end, hole
        end = max(end, start + length)
    return end if best < 0 else best


def _in_place(program: LoopProgram, lives: Lives) -> dict[int, int]:
    """For temporaries that are computed in place the one that dies for each.

    Only what a kernel without inner axes stores last: nothing is loaded after it at a point.
    """
    buffers = {buffer.number: buffer for buffer in program.buffers}
    found: dict[int, int] = {}
    for place, step in enumerate(program.steps):
        if type(step) is not Kernel or step.space != len(step.extents):
            continue
        store = stores_of(step)[-1]
        if lives.get(store.buffer, (-1,))[0] == place:
            dying = {n for n in reads(step) if n in lives and lives[n][1] == place}
            heir = _dying_alike(step, store, dying, buffers)
            if heir is not None:
                found[store.buffer] = heir
    return found


def _dying_alike(
    kernel: Kernel, store: Store, dying: set[int], buffers: Mapping[int, ProgramBuffer]
) -> int | None:
    """A buffer of the same size and item size that is loaded at the store's own address only."""
    if store.combine is not None or store.address.dynamic:
        return None
    own = buffers[store.buffer]
    for number in sorted(dying):
        other = buffers[number]
        if other.size == own.size and other.dtype.itemsize == own.dtype.itemsize:
            addresses = {v.args[1] for v in loads_of(kernel) if v.args[0] == number}
            if addresses == {store.address}:
                return number
    return None
