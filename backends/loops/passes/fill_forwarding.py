"""Fill forwarding: a buffer that is filled with a number and then overwritten in part is written
once.

The gradient of `x[::2]` is zeros, of which every other element is then stored:

    fill:     b1[i0] = 0.0          i0<1000         store:    b1[2*i0] = b0[i0]      i0<500
    store:    b1[2*i0] = b0[i0]     i0<500    ->              b1[2*i0 + 1] = 0.0

The result is the same, bit for bit, with one pass over memory in place of two. Spec:
`specs/fusion.md`, FUS-19.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from aotlite.backends.loops.program import (
    Kernel,
    LoopProgram,
    Step,
    Store,
    reads,
    stored,
    stores_of,
    writes,
)
from aotlite.backends.loops.templates.shared_templates import about
from aotlite.ir.geometry.sizes import is_symbolic
from aotlite.ir.scalar.expression import Affine, Scalar

MOST_PARTS = 8
"""The most parts of a buffer: the kernel gets a store for each."""


def with_fills(program: LoopProgram) -> LoopProgram:
    """Returns the program with fills moved into the kernels that overwrite them in part."""
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
    """Returns the buffer of a kernel that only fills one buffer with a number; else None."""
    if type(step) is not Kernel or not about(step, _fills):
        return None
    (number,) = stored(step)
    return number if math.prod(step.extents) == sizes[number] else None


def _fills(kernel: Kernel) -> bool:
    """Whether a kernel only stores a number, at all points of its space axes."""
    if len(kernel.body) != 1 or 0 in kernel.extents:
        return False
    (store,) = kernel.body
    if not isinstance(store, Store) or store.value.op != "const" or store.combine is not None:
        return False
    return kernel.space == len(kernel.extents) and not store.address.dynamic


def _number_of(step: Step) -> Scalar:
    assert type(step) is Kernel
    return stores_of(step)[0].value


def _next_use(steps: Sequence[Step], start: int, number: int) -> int | None:
    """Returns the first step from `start` on that uses the buffer, if it stores and does not load
    it; else None."""
    for place in range(start, len(steps)):
        if number in reads(steps[place]):
            return None
        if number in writes(steps[place]):
            return place
    return None


def _with_rest(step: Step, number: int, size: int, value: Scalar) -> Kernel | None:
    """Returns the kernel with stores of the number to the other elements of the buffer; None where
    its stores are not one of equal parts."""
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
    """Returns the addresses of the other parts, if the stored elements are one of up to
    `MOST_PARTS` equal parts of the buffer; else None."""
    if is_symbolic((*address.coefficients, address.start, *extents, size)):
        return None
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
