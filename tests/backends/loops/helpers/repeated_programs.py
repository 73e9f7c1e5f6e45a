"""Programs with planted repetitions: a program several times, on buffers of its own each time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from aotlite.backends.loops.program import (
    Gemm,
    Kernel,
    LoopProgram,
    Placed,
    ProgramBuffer,
    Step,
    ValueCheck,
)
from aotlite.backends.loops.templates.kernel_template import buffers_of, renamed


def repeated(
    program: LoopProgram, inputs: Sequence[Any], times: int
) -> tuple[LoopProgram, list[Any]]:
    """The program `times` times, one after the other, and its inputs as many times."""
    apart = 1 + max([buffer.number for buffer in program.buffers])
    buffers: list[ProgramBuffer] = []
    steps: list[Step] = []
    given: list[int | None] = []
    outputs: list[Placed | None] = []
    for k in range(times):
        by = k * apart
        buffers += [attrs.evolve(each, number=each.number + by) for each in program.buffers]
        steps += [moved(step, by) for step in program.steps]
        given += [None if each is None else each + by for each in program.inputs]
        outputs += [
            each and attrs.evolve(each, buffer=each.buffer + by) for each in program.outputs
        ]
    parts = tuple(buffers), tuple(steps), tuple(given), tuple(outputs)
    return LoopProgram(program.name, *parts), [*inputs] * times


def moved(step: Step, by: int) -> Step:
    """The step on buffers whose numbers are greater by so much."""
    match step:
        case Kernel():
            return renamed(step, {number: number + by for number in buffers_of(step)})
        case Gemm(a=a, b=b, c=c):
            windows = [attrs.evolve(each, buffer=each.buffer + by) for each in (a, b, c)]
            return attrs.evolve(step, a=windows[0], b=windows[1], c=windows[2])
        case ValueCheck(buffer=buffer):
            return ValueCheck(buffer + by)
    raise AssertionError(f"{step}: repeated programs have no externs")
