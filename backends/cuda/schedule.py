"""All passes on a program that a GPU is to run.

Input: what `lower` gives; output: a program as the CUDA printer should have it, for a target.
Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

import math

import attrs

from aotlite.backends.cuda.layout import MOST_THREADS, WARP, most_team, width_along
from aotlite.backends.cuda.target import Target
from aotlite.backends.loops.improve import improved
from aotlite.backends.loops.program import Kernel, Program, Reduce, Statement

SHARE = 32
"""Points of a row that a thread should have: in registers, and some accesses under way at once."""
SEGMENT = 64
"""Bytes that the threads of a row should read side by side."""


def improved_for(program: Program, target: Target) -> Program:
    """The program with its work divided for a GPU's multiprocessors."""
    program = improved(program, target.multiprocessors)
    steps = [
        scheduled_kernel(step) if type(step) is Kernel and 0 not in step.extents else step
        for step in program.steps
    ]
    return attrs.evolve(program, steps=tuple(steps))


def scheduled_kernel(kernel: Kernel) -> Kernel:
    """The kernel with lanes for the threads that shall compute a row."""
    if not any(type(each) is Reduce for each in kernel.body):
        return kernel
    lanes = lanes_of(kernel)
    body = tuple([_with_lanes(each, lanes) for each in kernel.body])
    return attrs.evolve(kernel, body=body)


def _with_lanes(statement: Statement, lanes: int) -> Statement:
    return attrs.evolve(statement, lanes=lanes) if type(statement) is Reduce else statement


def lanes_of(kernel: Kernel) -> int:
    """As many lanes as a row's threads have neighbours, together."""
    points = math.prod(kernel.extents[kernel.space :])
    if kernel.vector is not None and kernel.vector < kernel.space:
        return _lanes_of_columns(kernel, points)
    width = width_along(kernel, len(kernel.extents) - 1)
    return width * _team(kernel, points, width)


def _team(kernel: Kernel, points: int, width: int) -> int:
    """Threads of a row: so many that each has a small share, but that memory is read in runs."""
    size = min([v.dtype.itemsize for s in kernel.body if type(s) is Reduce for v in s.values])
    least = max(SEGMENT // (width * size), 1)
    wanted = _power(-(-points // SHARE))
    most = min(_power(-(-points // width)), MOST_THREADS, most_team(kernel, width))
    return min(max(wanted, least), most)


def _lanes_of_columns(kernel: Kernel, points: int) -> int:
    """Threads that go down the same columns: enough to fill a block, if there are points."""
    return min(256 // WARP, _power(points) // 2 or 1)


def _power(number: int) -> int:
    """The least power of two that is not less."""
    return 1 << max(number - 1, 0).bit_length()
