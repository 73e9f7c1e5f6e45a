"""Along which axis a kernel is vectorised, and in how many partial results it sums.

Input: a program after fusion; output: the same with `Kernel.vector` chosen and `Reduce.lanes` set,
which changes the order of sums on purpose. Spec: `specs/fusion.md`.
"""

from __future__ import annotations

import math

import attrs

from aotlite.backends.loops.expr import Affine
from aotlite.backends.loops.program import (
    Kernel,
    LoopProgram,
    Reduce,
    Statement,
    loads_of,
    stores_of,
)

PARTIAL_BYTES = 256
"""Of the partial results of one reduction: four registers of 64 bytes."""

SHORT = 8
"""Points of an axis along which it does not matter how memory lies."""


SHORT_ROW, MANY_ROWS = 32, 64
"""Rows of fewer points than the first are computed side by side if they are as many as the second,
or more, and fill no vectors."""


def scheduled(program: LoopProgram) -> LoopProgram:
    """The program with the vector axis of each kernel chosen."""
    steps = [
        scheduled_kernel(step) if type(step) is Kernel and 0 not in step.extents else step
        for step in program.steps
    ]
    return attrs.evolve(program, steps=tuple(steps))


def scheduled_kernel(kernel: Kernel) -> Kernel:
    """The kernel with a vector axis and lanes."""
    if not kernel.extents:
        return kernel
    vector = vector_axis(kernel)
    body = tuple([_with_lanes(statement, kernel, vector) for statement in kernel.body])
    return Kernel(kernel.name, kernel.extents, kernel.space, body, vector=vector)


def vector_axis(kernel: Kernel) -> int:
    """The axis along which most bytes move with stride 1, those stored counted twice.

    Of inner axes only the last can be: the order of reductions is that of the inner axes. What
    does not move along an axis costs nothing there, what moves with another stride costs most.
    Short rows that fill no vectors are computed side by side.
    """
    best = axis_of_memory(kernel)
    if best >= kernel.space and _leaves_points_over(kernel):
        rows = max(range(kernel.space), key=lambda k: (kernel.extents[k], k))
        best = rows if kernel.extents[rows] >= MANY_ROWS else best
    return best


def axis_of_memory(kernel: Kernel) -> int:
    """The axis along which most bytes move with stride 1, however short rows are."""
    gains = neighbours(kernel)
    return max(gains, key=lambda k: (gains[k] if kernel.extents[k] > 1 else -1, k))


def neighbours(kernel: Kernel) -> dict[int, int]:
    """The bytes that move with stride 1 along each axis that could be the vector axis."""
    count = len(kernel.extents)
    gains = dict.fromkeys(range(min(kernel.space, count)), 0)
    if kernel.space < count:
        gains[count - 1] = 0
    for value in loads_of(kernel):
        _count(gains, value.args[1], value.dtype.itemsize, kernel.extents)
    for store in stores_of(kernel):
        _count(gains, store.address, 2 * store.value.dtype.itemsize, kernel.extents)
    return gains


def _leaves_points_over(kernel: Kernel) -> bool:
    """Whether rows are short, and their last points, computed one by one, much of the work."""
    inner = kernel.extents[kernel.space :]
    least = min([value.dtype.itemsize for value in loads_of(kernel)], default=1)
    return kernel.space > 0 and math.prod(inner) < SHORT_ROW and inner[-1] % (32 // least) > 0


def _count(gains: dict[int, int], address: Affine, itemsize: int, extents: tuple[int, ...]) -> None:
    """Adds the bytes that an access moves to the axes along which they are neighbours."""
    weight = itemsize
    for coefficient, extent in zip(address.coefficients, extents, strict=True):
        weight *= extent if coefficient else 1
    for k in gains:
        if abs(address.coefficients[k]) == 1:
            gains[k] += weight


def across(kernel: Kernel) -> int:
    """How many accesses have stride 1 along another axis than the vector axis, and move along it:
    between neighbours there they jump, unless a printer transposes them through tiles, which is
    done in kernels without inner axes."""
    vector = vector_axis(kernel)
    addresses = [value.args[1] for value in loads_of(kernel)]
    addresses += [store.address for store in stores_of(kernel)]
    return sum([lies_across(address, vector, kernel.extents) for address in addresses])


def lies_across(address: Affine, vector: int, extents: tuple[int, ...]) -> bool:
    """Whether an access has stride 1 along another axis than this one."""
    if abs(address.coefficients[vector]) < 2 or extents[vector] < SHORT:
        return False
    return any(
        abs(c) == 1 and n >= SHORT for c, n in zip(address.coefficients, extents, strict=True)
    )


def _with_lanes(statement: Statement, kernel: Kernel, vector: int) -> Statement:
    if not isinstance(statement, Reduce):
        return statement
    lanes = 1
    if vector >= kernel.space:
        lanes = lanes_of(kernel, max([value.dtype.itemsize for value in statement.values]))
    return attrs.evolve(statement, lanes=lanes)


def lanes_of(kernel: Kernel, itemsize: int) -> int:
    """Partial results of a reduction along the last inner axis: a power of two.

    Runs of the last axis begin at the first partial where there are several of them.
    """
    inner = kernel.extents[kernel.space :]
    most = PARTIAL_BYTES // itemsize
    last = inner[-1]
    if math.prod(inner[:-1]) > 1:
        return math.gcd(last, most)
    return min(most, 1 << max(last.bit_length() - 1, 0))
