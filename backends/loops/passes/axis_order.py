"""Loop interchange of inner axes: reductions go over memory in the order in which it lies.

`x.t().sum()` reads x row by row, not column by column. Input: a program after fusion; output: one
in which fewer loads of reductions jump. This changes the order of sums, on purpose: the new order
is part of the program, so that all printers and the interpreter keep it. Spec: `specs/fusion.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from aotlite.backends.loops.analysis.affine import is_injective, unit
from aotlite.backends.loops.passes.vectorization import across, neighbors
from aotlite.backends.loops.program import Kernel, LoopProgram, Scan, Store, loads_of
from aotlite.backends.loops.rewrite import moved_body
from aotlite.backends.loops.templates.shared_templates import changed
from aotlite.ir.geometry.sizes import hint_of
from aotlite.ir.scalar.expression import Affine, Scalar


def ordered(program: LoopProgram) -> LoopProgram:
    """Returns the program with the inner axes of each kernel in the order of memory."""
    steps = [
        changed(ordered_kernel, step) if type(step) is Kernel else step for step in program.steps
    ]
    return attrs.evolve(program, steps=tuple(steps))


def ordered_kernel(kernel: Kernel) -> Kernel:
    """Returns the kernel with its inner axes ordered by the strides of its loads, the largest load
    first, if fewer accesses jump or more bytes have stride 1; else the kernel itself."""
    if len(kernel.extents) - kernel.space < 2 or not takes_any_order(kernel):
        return kernel
    loads = sorted(loads_of(kernel), key=lambda load: -_bytes(load, kernel.extents))

    def strides(k: int) -> list[float]:
        return [-abs(hint_of(load.args[1].coefficients[k])) or -math.inf for load in loads]

    inner = range(kernel.space, len(kernel.extents))
    other = with_order(kernel, [*range(kernel.space), *sorted(inner, key=strides)])
    return other if _rank(other) > _rank(kernel) else kernel


def _rank(kernel: Kernel) -> tuple[int, int]:
    """Returns how well the accesses of a kernel lie in memory: a larger tuple is better."""
    return -across(kernel), max(neighbors(kernel).values())


def with_order(kernel: Kernel, order: Sequence[int]) -> Kernel:
    """Returns the kernel with its axes in this order."""
    count = len(order)
    forms = tuple([unit(order.index(k), count) for k in range(count)])
    extents = tuple([kernel.extents[k] for k in order])
    body = moved_body(kernel.body, forms, count)
    return Kernel(kernel.name, extents, kernel.space, body)


def _bytes(load: Scalar, extents: tuple[int, ...]) -> int:
    """Returns the bytes of a load, each address read once."""
    address: Affine = load.args[1]
    moved = [n for c, n in zip(address.coefficients, extents, strict=True) if c]
    return load.dtype.itemsize * hint_of(math.prod(moved))


def takes_any_order(kernel: Kernel) -> bool:
    """Whether the inner axes may be reordered: the kernel has no scan, no store that combines, and
    no store in which several points may write one address, of which the last one must stay."""
    for statement in kernel.body:
        if type(statement) is Scan:
            return False
        if type(statement) is Store and not statement.each_row:
            address = statement.address
            is_plain = statement.combine is None and not address.dynamic
            if not is_plain or not is_injective(address.coefficients, kernel.extents):
                return False
    return True
