"""Memory planning: the offset of each temporary buffer in one arena.

Buffers that are not alive at the same time share bytes. Input: a program in its final order;
output: a frozen plan. Outputs are memory that the caller keeps, and lie elsewhere.

    step 0 writes b1     lives: b1 0..1, b2 1..2, b3 2..3        offsets: b1 0, b2 4096,
    step 1 b1 -> b2      b3 begins after b1 ends: same bytes              b3 0
    step 2 b2 -> b3

Spec: `specs/fusion.md`.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence

import attrs

from aotlite.backends.loops.program import (
    BufferKind,
    Kernel,
    LoopProgram,
    ProgramBuffer,
    loads_of,
    named_by,
    reads,
    stored,
    stores_of,
    writes,
)
from aotlite.ir.scalar.expression import Affine

ALIGNMENT = 64
"""Bytes. The size of a cache line and of the widest vector register."""


@attrs.frozen
class ArenaPlan:
    """The size of the arena, and the offset of each temporary in it, in bytes."""

    size: int
    offsets: Mapping[int, int]


_Place = tuple[int, int, int, int]
"""A living buffer: its offset, its end, the last step that uses it, and its number."""
Lives = dict[int, tuple[int, int]]
"""The live range of each temporary: the first and the last step that uses it."""


def planned(
    program: LoopProgram, alignment: int = ALIGNMENT, *, in_place: bool = True
) -> ArenaPlan:
    """Returns the offsets of the temporaries (the note on `_in_place`).

    With `in_place=False` no two buffers of one kernel share memory, which a device needs whose
    threads run at different times.
    """
    lives = lives_of(program)
    sizes = {
        each.number: rounded(each.size * each.dtype.itemsize, alignment)
        for each in program.buffers
        if each.number in lives
    }
    return placed(lives, sizes, _in_place(program, lives) if in_place else {})


def placed(lives: Lives, sizes: Mapping[int, int], heirs: Mapping[int, int]) -> ArenaPlan:
    """Returns the plan for temporaries of these live ranges, of which some take the place of
    another one. `sizes` are bytes, rounded."""
    offsets: dict[int, int] = {}
    alive: list[_Place] = []
    """By their offsets."""
    for number, (first, last) in in_order(lives).items():
        given = heirs.get(number)
        if given is None:
            alive = [each for each in alive if each[2] >= first]
            offset = _best_fit(sizes[number], alive)
        else:
            offset = offsets[given]
            alive = [each for each in alive if each[3] != given]
        offsets[number] = offset
        insort(alive, (offset, offset + sizes[number], last, number))
    size = max([offsets[n] + sizes[n] for n in offsets], default=0)
    return ArenaPlan(size, offsets)


def lives_of(program: LoopProgram) -> Lives:
    """Returns the live range of each temporary."""
    kinds = {buffer.number: buffer.kind for buffer in program.buffers}
    lives: Lives = {}
    for place, step in enumerate(program.steps):
        for number in reads(step) | writes(step):
            if kinds[number] is BufferKind.TEMPORARY:
                lives[number] = (lives.get(number, (place,))[0], place)
    return lives


def in_order(lives: Lives) -> Lives:
    """Returns the live ranges, those that begin earlier first."""
    return dict(sorted(lives.items(), key=lambda each: (each[1][0], each[0])))


def rounded(size: int, alignment: int = ALIGNMENT) -> int:
    """Returns the bytes that a buffer of so many takes."""
    return -(-size // alignment) * alignment


def _best_fit(size: int, alive: list[_Place]) -> int:
    """Returns the start of the smallest hole between living buffers that has `size` bytes."""
    best, least, end = -1, -1, 0
    for start, stop, _, _ in alive:
        hole = start - end
        if hole >= size and (best < 0 or hole < least):
            best, least = end, hole
        if stop > end:
            end = stop
    return end if best < 0 else best


# Note [results in place of dying temporaries]
#     kernel k[i0<1000]:  b2[i0] = exp(b1[i0])            b1 is not used again
# b2 gets the bytes of b1: half the memory moves through the caches. Three things make it right.
# The kernel loads b1 at the store's own address only, so that no other point needs what this one
# overwrites (b1[999 - i0] would). It has no inner axis, along which a row is loaded several times.
# And b2 is its last store: at one point, an earlier store would come before loads of the others.
def _in_place(program: LoopProgram, lives: Lives) -> dict[int, int]:
    """Returns, for each temporary that is computed in place, the dying one whose bytes it gets."""
    buffers = {buffer.number: buffer for buffer in program.buffers}
    found: dict[int, int] = {}
    for place, step in enumerate(program.steps):
        if type(step) is not Kernel or step.space != len(step.extents):
            continue
        own = stored(step)[-1]
        if lives.get(own, (-1,))[0] == place:
            dying = [n for n in reads(step) if n in lives and lives[n][1] == place]
            heir = _dying_alike(step, buffers[own], dying, buffers) if dying else None
            if heir is not None:
                found[own] = heir
    return found


def _dying_alike(
    kernel: Kernel,
    own: ProgramBuffer,
    dying: Sequence[int],
    buffers: Mapping[int, ProgramBuffer],
) -> int | None:
    """Returns a dying buffer of the same size and item size that the kernel loads at the last
    store's own address only."""
    at_store = named_by(kernel, _loaded_at_store)
    for number in sorted(dying):
        other = buffers[number]
        if other.size == own.size and other.dtype.itemsize == own.dtype.itemsize:
            if number in at_store:
                return number
    return None


def _loaded_at_store(kernel: Kernel) -> list[int]:
    """Returns the buffers that a kernel loads only at the address of its last store, if that
    replaces."""
    store = stores_of(kernel)[-1]
    if store.combine is not None or store.address.dynamic:
        return []
    addresses: dict[int, set[Affine]] = {}
    for value in loads_of(kernel):
        addresses.setdefault(value.args[0], set()).add(value.args[1])
    return [number for number, found in addresses.items() if found == {store.address}]
