"""Checks of a program are moved together, so that a call waits for the device once.

The steps that checks need come first, then all flags are read together, then the rest runs. A check
stays where it is if it needs a step that is valid only after another check. Input and output: a
program in its final order. Spec: `specs/cuda_backend.md` (CUB-1).
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from aotlite.backends.loops.program import (
    BufferKind,
    Extern,
    Kernel,
    LoopProgram,
    Step,
    ValueCheck,
    loads_of,
    reads,
    stores_of,
    writes,
)


def with_checks_together(program: LoopProgram) -> LoopProgram:
    """Returns the program with its checks together, as early as possible."""
    steps = program.steps
    places = [k for k, step in enumerate(steps) if type(step) is ValueCheck]
    if not places:
        return program
    inputs = {b.number for b in program.buffers if b.kind is BufferKind.INPUT}
    risky = {k for k, step in enumerate(steps) if k > places[0] and _trusts(step, inputs)}
    early: set[int] = set()
    for place in places:
        needed = needed_by(steps, place)
        if not needed & risky:
            early |= needed | {place}
    order = sorted(early - set(places)) + [k for k in places if k in early]
    order += [k for k in range(len(steps)) if k not in early]
    return attrs.evolve(program, steps=tuple([steps[k] for k in order]))


def _trusts(step: Step, inputs: set[int]) -> bool:
    """Whether a step may run only after the checks before it: it accesses memory at loaded
    positions, is an extern, or writes an input."""
    if type(step) is Kernel:
        places = [load.args[1] for load in loads_of(step)]
        places += [store.address for store in stores_of(step)]
        if any(place.dynamic for place in places):
            return True
    return type(step) is Extern or bool(writes(step) & inputs)


def needed_by(steps: Sequence[Step], place: int) -> set[int]:
    """Returns the steps that must run before this one."""
    needed: set[int] = set()
    waiting = [place]
    while waiting:
        own = waiting.pop()
        for before in range(own):
            if before not in needed and _must_follow(steps[before], steps[own]):
                needed.add(before)
                waiting.append(before)
    return needed


def _must_follow(first: Step, second: Step) -> bool:
    """Whether the second step must follow the first, by what they read and write."""
    if type(first) is ValueCheck:
        return False
    written = writes(first)
    return bool(written & (reads(second) | writes(second)) or reads(first) & writes(second))
