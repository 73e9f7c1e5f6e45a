"""Dead code elimination: stores, reductions, steps and buffers that no result needs.

Buffers and names keep their numbers. Fusion relies on it: it copies values into their users, and
leaves the store that nothing loads any more to this pass. Spec: `specs/fusion.md`.
"""

from __future__ import annotations

import attrs

from aotlite.backends.loops.program import (
    BufferKind,
    Extern,
    Kernel,
    LoopProgram,
    Statement,
    Step,
    Store,
    ValueCheck,
    happens,
    names_of,
    names_used,
    reads,
    stored,
    writes,
)
from aotlite.backends.loops.templates.shared_templates import changed


def without_dead(program: LoopProgram) -> LoopProgram:
    """Returns the program without steps on which neither an output nor the new value of an input
    depends. Checks and effects stay."""
    needed = {placed.buffer for placed in program.outputs if placed is not None}
    needed |= {number for number in program.inputs if number is not None}
    kept: list[Step] = []
    for step in reversed(program.steps):
        alive = writes(step) & needed
        if alive or type(step) is ValueCheck or happens(step):
            step = _needed(step, alive)
            kept.append(step)
            needed |= reads(step)
    kept.reverse()
    buffers = [b for b in program.buffers if b.number in needed or b.kind is BufferKind.INPUT]
    return attrs.evolve(program, buffers=tuple(buffers), steps=tuple(kept))


def _needed(step: Step, alive: set[int]) -> Step:
    """Returns the step without its dead stores; dead results of an extern become None."""
    match step:
        case Kernel():
            return with_stores(step, alive)
        case Extern():
            results = [p if p is not None and p.buffer in alive else None for p in step.results]
            return attrs.evolve(step, results=tuple(results))
    return step


def with_stores(kernel: Kernel, alive: set[int]) -> Kernel:
    """Returns the kernel with its stores to these buffers, and the statements that they need."""
    return changed(_with_stores, kernel, tuple([each in alive for each in stored(kernel)]))


def _with_stores(kernel: Kernel, is_alive: tuple[bool, ...]) -> Kernel:
    alive = {number for number, each in zip(stored(kernel), is_alive, strict=True) if each}
    kept: list[Statement] = []
    names: set[int] = set()
    for statement in reversed(kernel.body):
        if type(statement) is Store:
            is_needed = statement.buffer in alive
        else:
            is_needed = not names.isdisjoint(names_of(statement))
        if is_needed:
            kept.append(statement)
            names |= names_used(statement)
    if len(kept) == len(kernel.body):
        return kernel
    kept.reverse()
    return Kernel(kernel.name, kernel.extents, kernel.space, tuple(kept), vector=kernel.vector)
