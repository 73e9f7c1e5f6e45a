"""The schedule: the vector axis of each kernel, and the lanes of its reductions.

Input: a program after fusion; output: the same with `Kernel.vector` chosen and `Reduce.lanes` set.
Lanes change the order of sums, on purpose (see the note on `lanes_of`). Spec: `specs/fusion.md`.

"""

from __future__ import annotations

import math

import attrs

from aotlite.backends.loops.analysis.size_proofs import is_axis
from aotlite.backends.loops.program import (
    Kernel,
    LoopProgram,
    Reduce,
    Statement,
    loads_of,
    stores_of,
)
from aotlite.backends.loops.templates.shared_templates import changed
from aotlite.ir.geometry.sizes import hint_of, is_symbolic
from aotlite.ir.scalar.expression import Affine

PARTIAL_BYTES = 256
"""Bytes of the partial results of one reduction: four registers of 64 bytes."""

SHORT = 8
"""Along an axis of fewer points strides do not matter."""


SHORT_ROW, MANY_ROWS = 32, 64
"""Rows of fewer than 32 points that fill no vectors are computed side by side, if there are at
least 64 of them: the vector axis is then a space axis."""


def scheduled(program: LoopProgram) -> LoopProgram:
    """Returns the program with vector axis and lanes of each kernel chosen."""
    steps = [
        changed(scheduled_kernel, step) if type(step) is Kernel and 0 not in step.extents else step
        for step in program.steps
    ]
    return attrs.evolve(program, steps=tuple(steps))


def scheduled_kernel(kernel: Kernel) -> Kernel:
    """Returns the kernel with vector axis and lanes chosen."""
    if not kernel.extents:
        return kernel
    vector = vector_axis(kernel)
    body = tuple([_with_lanes(statement, kernel, vector) for statement in kernel.body])
    return Kernel(kernel.name, kernel.extents, kernel.space, body, vector=vector)


def vector_axis(kernel: Kernel) -> int:
    """Returns the axis along which most bytes move with stride 1; stored bytes count twice.

    Of inner axes only the last one can be the vector axis, since reductions go in their order.
    Short rows that fill no vectors are computed side by side, along a space axis.
    """
    best = axis_of_memory(kernel)
    if best >= kernel.space and _leaves_points_over(kernel):
        rows = max(range(kernel.space), key=lambda k: (hint_of(kernel.extents[k]), k))
        best = rows if hint_of(kernel.extents[rows]) >= MANY_ROWS else best
    return best


def axis_of_memory(kernel: Kernel) -> int:
    """Returns the axis along which most bytes move with stride 1, however short rows are."""
    gains = neighbors(kernel)
    return max(gains, key=lambda k: (gains[k] if is_axis(kernel.extents[k]) else -1, k))


def neighbors(kernel: Kernel) -> dict[int, int]:
    """Returns, for each axis that could be the vector axis, the bytes that move with stride 1."""
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
    """Whether rows are short and no multiple of a vector: the scalar remainder loop would do much
    of the work. Rows of any size count as long ones."""
    inner = kernel.extents[kernel.space :]
    if is_symbolic(inner):
        return False
    least = min([value.dtype.itemsize for value in loads_of(kernel)], default=1)
    return kernel.space > 0 and math.prod(inner) < SHORT_ROW and inner[-1] % (32 // least) > 0


def _count(gains: dict[int, int], address: Affine, itemsize: int, extents: tuple[int, ...]) -> None:
    """Adds the bytes of an access to the axes along which it has stride 1."""
    weight = itemsize
    for coefficient, extent in zip(address.coefficients, extents, strict=True):
        weight *= hint_of(extent) if coefficient else 1
    for k in gains:
        if is_one(address.coefficients[k]):
            gains[k] += weight


def across(kernel: Kernel) -> int:
    """Returns the number of accesses that lie across the vector axis.

    Neighbors along it are far apart in memory. In kernels without inner axes printers transpose
    such accesses through tiles; in others each of them costs a cache line.
    """
    vector = vector_axis(kernel)
    addresses = [value.args[1] for value in loads_of(kernel)]
    addresses += [store.address for store in stores_of(kernel)]
    return sum([lies_across(address, vector, kernel.extents) for address in addresses])


def lies_across(address: Affine, vector: int, extents: tuple[int, ...]) -> bool:
    """Whether an access has a large stride along the vector axis and stride 1 along another."""
    if abs(hint_of(address.coefficients[vector])) < 2 or hint_of(extents[vector]) < SHORT:
        return False
    return any(
        is_one(c) and hint_of(n) >= SHORT
        for c, n in zip(address.coefficients, extents, strict=True)
    )


def is_one(coefficient: int) -> bool:
    """Whether neighbors along an axis are neighbors in memory."""
    return coefficient == 1 or coefficient == -1


def _with_lanes(statement: Statement, kernel: Kernel, vector: int) -> Statement:
    if not isinstance(statement, Reduce):
        return statement
    lanes = 1
    if vector >= kernel.space:
        lanes = lanes_of(kernel, max([value.dtype.itemsize for value in statement.values]))
    return attrs.evolve(statement, lanes=lanes)


# Note [lanes]
#     s = 0; for (i = 0; i < 1000; i++) s += x[i];
# A compiler may not vectorize this sum: another order gives other bits, unless -ffast-math lets it
# choose. So the order is part of the IR: with 64 lanes, x[i] goes to partial i mod 64, in ascending
# order, and the partials are then added in halves. C compilers make vectors of that without any
# license (64 floats are four registers of AVX-512), and the interpreter, gcc and clang give the
# same bits. The number of lanes depends on the shape alone, never on the machine.
def lanes_of(kernel: Kernel, itemsize: int) -> int:
    """Returns the number of lanes of a reduction along the last inner axis, a power of two.

    If there are several inner axes it divides the last extent, so that each run along the last axis
    begins at lane 0. Of a last extent that is symbolic nothing is known: a row has the most lanes,
    and several inner axes have one.
    """
    inner = kernel.extents[kernel.space :]
    most = PARTIAL_BYTES // itemsize
    last = inner[-1]
    several = any(map(is_axis, inner[:-1]))
    if type(last) is not int:
        return 1 if several else most
    if several:
        return math.gcd(last, most)
    return min(most, 1 << max(last.bit_length() - 1, 0))
