"""Programs of equal regions: a drawn program several times, each on its own and on common buffers.

A region reads what an earlier one has returned, or what all read; all may write one buffer. One of
them may differ in a constant or a dtype, and buffers have their numbers in any order.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import attrs

from aotlite.backends.loops.program import (
    BufferKind,
    Kernel,
    LoopProgram,
    Placed,
    ProgramBuffer,
    Step,
    values_of,
)
from aotlite.backends.loops.rewrite import replaced_body
from aotlite.backends.loops.templates.kernel_template import buffers_of, instance_of, renamed
from aotlite.backends.loops.templates.shared_templates import SharedTemplate, kernel_on
from aotlite.ir.dtypes import float64
from aotlite.ir.scalar.expression import cast, const, walk
from tests.backends.loops.helpers.drawn_programs import drawn

REGIONS = 4


def regions(seed: int) -> LoopProgram:
    """A program of `REGIONS` regions, which are equal but for one of every second seed."""
    program, _ = drawn(seed, 7)
    choose = random.Random(seed)
    buffers: list[ProgramBuffer] = []
    steps: list[Step] = []
    outputs: list[Placed] = []
    found: list[Mapping[int, int]] = []
    different = choose.randrange(REGIONS) if seed % 2 else -1
    for region in range(REGIONS):
        numbers: dict[int, int] = {}
        for each in program.buffers:
            if each.kind is BufferKind.INPUT:
                numbers[each.number] = _read(each, program, found, choose)
        own = [each for each in program.buffers if numbers.get(each.number, -1) < 0]
        order = list(range(len(buffers), len(buffers) + len(own)))
        if choose.random() < 0.3:
            choose.shuffle(order)
        numbers |= {each.number: number for each, number in zip(own, order, strict=True)}
        buffers += sorted(
            [attrs.evolve(each, number=numbers[each.number]) for each in own],
            key=lambda each: each.number,
        )
        own_steps = [renamed(step, numbers) for step in program.steps if type(step) is Kernel]
        if region == different:
            k = choose.randrange(len(own_steps))
            own_steps[k] = _changed(own_steps[k], choose)
        first = len(steps)
        steps += [attrs.evolve(x, name=f"{x.name}_{first + k}") for k, x in enumerate(own_steps)]
        placed = [each for each in program.outputs if each is not None]
        outputs += [attrs.evolve(each, buffer=numbers[each.buffer]) for each in placed]
        found.append(numbers)
    if choose.random() < 0.5:  # what regions hand on is returned only by the last one
        outputs = outputs[-len(program.outputs) :]
        last = {placed.buffer for placed in outputs}
        of_results = BufferKind.OUTPUT, BufferKind.TEMPORARY
        buffers = [
            attrs.evolve(x, kind=of_results[x.number not in last]) if x.kind in of_results else x
            for x in buffers
        ]
    inputs = tuple([x.number for x in buffers if x.kind is BufferKind.INPUT])
    return LoopProgram("regions", tuple(buffers), tuple(steps), inputs, tuple(outputs))


def _read(
    own: ProgramBuffer,
    program: LoopProgram,
    found: list[Mapping[int, int]],
    choose: random.Random,
) -> int:
    """The buffer of an earlier region that stands for an input of this one; -1 for a new one."""
    if not found or choose.random() < 0.2:
        return -1
    if choose.random() < 0.3:
        return found[0][own.number]
    alike = [
        each.number
        for each in program.buffers
        if each.kind is BufferKind.OUTPUT and each.size >= own.size and each.dtype is own.dtype
    ]
    return choose.choice(found[-2:])[choose.choice(alike)] if alike else -1


def _changed(kernel: Kernel, choose: random.Random) -> Kernel:
    """The kernel with other constants, or with its values computed in float64."""
    roots = [value for statement in kernel.body for value in values_of(statement)]
    memo = {each: const(each.args[0] + 1, each.dtype) for each in walk(roots) if each.op == "const"}
    if not memo or choose.random() < 0.5:
        loads = [each for each in walk(roots) if each.op == "load" and not each.args[1].dynamic]
        memo = {each: cast(cast(each, float64) + 0.5, each.dtype) for each in loads}
    return attrs.evolve(kernel, body=replaced_body(kernel.body, memo))


# --------------------------------------------------------------------------------------- templates
def knowing(program: LoopProgram) -> LoopProgram:
    """The program with kernels that know their templates and have not written their statements."""
    templates: dict[Kernel, SharedTemplate] = {}
    steps: list[Step] = []
    for step in program.steps:
        if type(step) is Kernel:
            own, template = buffers_of(step), instance_of(step).template
            first = templates.setdefault(template, SharedTemplate(forgetful(step), own))
            step = kernel_on(first, own, step.name)
        steps.append(step)
    return attrs.evolve(program, steps=tuple(steps))


def forgetful(kernel: Kernel) -> Kernel:
    """The kernel without what it knows of its template."""
    return Kernel(kernel.name, kernel.extents, kernel.space, kernel.body, vector=kernel.vector)


def unknowing(program: LoopProgram) -> LoopProgram:
    """The program with kernels that know nothing of templates."""
    steps = [forgetful(step) if type(step) is Kernel else step for step in program.steps]
    return attrs.evolve(program, steps=tuple(steps))
