"""Inner axes in the order of memory, where reductions allow any order.

A reduction of a transposed array goes over it as the array lies, not as its indexes say.
Input: a program after fusion; output: one in which fewer reductions load across. This changes the
order of sums, on purpose. Spec: `specs/fusion.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from aotlite.backends.loops.analysis.affine import is_injective, unit
from aotlite.backends.loops.expr import Affine, Scalar
from aotlite.backends.loops.passes.vectorization import across, neighbours
from aotlite.backends.loops.program import Kernel, LoopProgram, Scan, Store, loads_of
from aotlite.backends.loops.rewrite import moved_body


def ordered(program: LoopProgram) -> LoopProgram:
    """The program with kernels that go over memory as it lies."""
    steps = [ordered_kernel(step) if type(step) is Kernel else step for step in program.steps]
    return attrs.evolve(program, steps=tuple(steps))


def ordered_kernel(kernel: Kernel) -> Kernel:
    """The kernel with its inner axes by the strides of what it loads, if it loads less across, or
    more of what it loads are neighbours."""
    if len(kernel.extents) - kernel.space < 2 or not takes_any_order(kernel):
        return kernel
    loads = sorted(loads_of(kernel), key=lambda load: -_bytes(load, kernel.extents))

    def strides(k: int) -> list[float]:
        return [-abs(load.args[1].coefficients[k]) or -math.inf for load in loads]

    inner = range(kernel.space, len(kernel.extents))
    changed = with_order(kernel, [*range(kernel.space), *sorted(inner, key=strides)])
    return changed if _rank(changed) > _rank(kernel) else kernel


def _rank(kernel: Kernel) -> tuple[int, int]:
    """How well the accesses of a kernel lie: more is better."""
    return -across(kernel), max(neighbours(kernel).values())


def with_order(kernel: Kernel, order: Sequence[int]) -> Kernel:
    """The kernel with its axes in this order."""
    count = len(order)
    forms = tuple([unit(order.index(k), count) for k in range(count)])
    extents = tuple([kernel.extents[k] for k in order])
    body = moved_body(kernel.body, forms, count)
    return Kernel(kernel.name, extents, kernel.space, body)


def _bytes(load: Scalar, extents: tuple[int, ...]) -> int:
    """What a load moves, if each address is read once."""
    address: Affine = load.args[1]
    moved = [n for c, n in zip(address.coefficients, extents, strict=True) if c]
    return load.dtype.itemsize * math.prod(moved)


def takes_any_order(kernel: Kernel) -> bool:
    """Whether nothing asks for the order of the inner axes: no scan, no store that combines, and
    none where several points may write one address, of which the last one stays."""
    for statement in kernel.body:
        if type(statement) is Scan:
            return False
        if type(statement) is Store and not statement.each_row:
            address = statement.address
            is_plain = statement.combine is None and not address.dynamic
            if not is_plain or not is_injective(address.coefficients, kernel.extents):
                return False
    return True
