"""A buffer filled with a number and then overwritten in part, in one go.

Input: a program after fusion; output: the same, bit for bit, with a fill of a whole buffer made by
the kernel that stores every n-th element, row or block of it: the elements between get the number
in the same pass over memory. The gradient of a strided slice is such a buffer.
Spec: `specs/fusion.md`, FUS-19.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from aotlite.backends.loops.analysis.cost import points
from aotlite.backends.loops.expr import Affine, Scalar
from aotlite.backends.loops.program import (
    Kernel,
    LoopProgram,
    Step,
    Store,
    reads,
    stores_of,
    writes,
)

MOST_PARTS = 8
"""Stores that one kernel may make of one."""


def with_fills(program: LoopProgram) -> LoopProgram:
    """The program with fills made by the kernels that overwrite them in part."""
    sizes = {buffer.number: buffer.size for buffer in program.buffers}
    steps: list[Step | None] = list(program.steps)
    for place, step in enumerate(program.steps):
        number = _filled(step, sizes)
        later = None if number is None else _next_use(program.steps, place + 1, number)
        if number is not None and later is not None:
            kernel = _with_rest(program.steps[later], number, sizes[number], _number_of(step))
            if kernel is not None:
                steps[place], steps[later] = None, kernel
    return attrs.evolve(program, steps=tuple([step for step in steps if step is not None]))


def _filled(step: Step, sizes: dict[int, int]) -> int | None:
    """The buffer that a kernel does nothing but fill with one number."""
    if type(step) is not Kernel or len(step.body) != 1 or 0 in step.extents:
        return None
    (store,) = step.body
    if not isinstance(store, Store) or store.value.op != "const" or store.combine is not None:
        return None
    whole = step.space == len(step.extents) and points(step) == sizes[store.buffer]
    return store.buffer if whole and not store.address.dynamic else None


def _number_of(step: Step) -> Scalar:
    assert type(step) is Kernel
    return stores_of(step)[0].value


def _next_use(steps: Sequence[Step], start: int, number: int) -> int | None:
    """The first step from there on that uses the buffer, if it does nothing but store to it."""
    for place in range(start, len(steps)):
        if number in reads(steps[place]):
            return None
        if number in writes(steps[place]):
            return place
    return None


def _with_rest(step: Step, number: int, size: int, value: Scalar) -> Kernel | None:
    """The kernel with stores of the number between the elements that it stores."""
    if type(step) is not Kernel:
        return None
    (store,) = [each for each in stores_of(step) if each.buffer == number]
    if store.combine is not None or store.address.dynamic or store.each_row:
        return None
    parts = _parts(store.address, step.extents, size)
    if parts is None:
        return None
    rest = [Store(number, each, value) for each in parts]
    return attrs.evolve(step, body=(*step.body, *rest))


def _parts(address: Affine, extents: Sequence[int], size: int) -> list[Affine] | None:
    """The addresses of the rest, if the stored ones are one of equal parts of the buffer."""
    axes = sorted([(c, n) for c, n in zip(address.coefficients, extents, strict=True) if n > 1])
    dense, block, count = 1, 0, 1
    for step, extent in [*axes, (size, 1)]:
        if step != dense:
            if block or step % dense:
                return None
            block, count = dense, step // dense
        dense = step * extent
    own, offset = divmod(address.start, block or 1)
    if not 1 < count <= MOST_PARTS or offset or own >= count:
        return None
    return [attrs.evolve(address, start=k * block) for k in range(count) if k != own]
