"""Checks of values that lie on the host are done there, before any launch.

A check on the device makes the call wait for it. Input: a lowered program; output: the program
without checks that depend on host values alone, and functions that do them. Values of a random
generator are trusted. Spec: `specs/cuda_backend.md` (CUB-1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from aotlite.backends.cuda.passes.merge_checks import needed_by
from aotlite.backends.loops.interpreter.program_interpreter import run_step
from aotlite.backends.loops.program import (
    BufferKind,
    Kernel,
    LoopProgram,
    ProgramBuffer,
    Step,
    ValueCheck,
    reads,
    writes,
)
from aotlite.backends.loops.program_sizes import SizesAt, is_idle
from aotlite.ir.arrays.device import CPU
from aotlite.ir.graph import Graph
from aotlite.ir.graph.role import RNG_INPUTS


@attrs.frozen(eq=False)
class HostCheck:
    """A check of values of the host: called with the arrays of buffers, it says whether it refuses
    them."""

    steps: tuple[Step, ...]
    """What computes the flag."""
    buffers: tuple[ProgramBuffer, ...]
    """The buffers that the steps write."""
    constants: Mapping[int, Any]
    flag: int

    def __call__(self, arrays: Mapping[int, Any]) -> bool:
        memory = {**self.constants, **{n: array.reshape(-1) for n, array in arrays.items()}}
        memory |= {b.number: np.empty(b.size, b.dtype.numpy) for b in self.buffers}
        for step in self.steps:
            run_step(step, memory)
        return bool(memory[self.flag][0])

    def at(self, put: SizesAt) -> HostCheck:
        """Returns the check with numbers in place of symbols."""
        steps = [each for each in map(put.step, self.steps) if not is_idle(each)]
        buffers = tuple(map(put.buffer, self.buffers))
        return attrs.evolve(self, steps=tuple(steps), buffers=buffers)


def without_host_checks(
    program: LoopProgram, graph: Graph
) -> tuple[LoopProgram, tuple[HostCheck, ...]]:
    """Returns the program without checks of host values, and functions that do these checks."""
    hosted, generators = set[int](), set[int]()
    for node, number in zip(graph.placeholders, program.inputs, strict=True):
        if number is not None and node.meta.device is CPU:  # type: ignore[union-attr]
            hosted.add(number)
            if isinstance(node.role, RNG_INPUTS):
                generators.add(number)
    known = hosted | {b.number for b in program.buffers if b.kind is BufferKind.CONSTANT}
    steps, found = list[Step](), list[HostCheck]()
    for place, step in enumerate(program.steps):
        needed = [program.steps[k] for k in sorted(needed_by(program.steps, place))]
        if type(step) is not ValueCheck or not _is_of(needed, known):
            steps.append(step)
        elif {number for each in needed for number in reads(each)} & (hosted - generators):
            found.append(_looking(program, needed, step.buffer))
    return attrs.evolve(program, steps=tuple(steps)), tuple(found)


def _is_of(steps: Sequence[Step], known: set[int]) -> bool:
    """Whether the steps are kernels that depend on known buffers alone."""
    own = {number for step in steps for number in writes(step)}
    return all(type(step) is Kernel and reads(step) <= known | own for step in steps)


def _looking(program: LoopProgram, steps: Sequence[Step], flag: int) -> HostCheck:
    own = {number for step in steps for number in writes(step)}
    buffers = tuple([buffer for buffer in program.buffers if buffer.number in own])
    constants = {b.number: b.value for b in program.buffers if b.kind is BufferKind.CONSTANT}
    return HostCheck(tuple(steps), buffers, constants, flag)
