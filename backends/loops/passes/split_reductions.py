"""Reductions of few long rows as two kernels, so that they can run in parallel.

Input: a program after fusion; output: one in which such a kernel stores partial results of chunks
of its rows, and a second one combines them. The number of chunks depends on shapes and threads
alone. This changes the order of sums, on purpose. Spec: `specs/fusion.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs

from aotlite.backends.loops.analysis.affine import fixed, unit
from aotlite.backends.loops.analysis.cost import (
    columns_abreast,
    has_one_pass,
    inner_points,
    points,
    rows,
)
from aotlite.backends.loops.expr import Affine, Scalar, load, name
from aotlite.backends.loops.passes.vectorization import lanes_of, vector_axis
from aotlite.backends.loops.program import (
    BufferKind,
    Kernel,
    LoopProgram,
    ProgramBuffer,
    Reduce,
    Scan,
    Statement,
    Step,
    Store,
)
from aotlite.backends.loops.rewrite import moved_body, replaced_body, restricted, split_axis

SMALL = 1 << 15
"""Points that one thread computes about as fast as several."""
UNITS = 4
"""Units of work a thread should find."""
LONGEST_LANE, LONGEST_COLUMN = 512, 4096
"""Values that are added in order, in float32: by one of many partial results of a row, and by that
of a column. NumPy adds columns in order, however long they are."""


def split(program: LoopProgram, threads: int) -> LoopProgram:
    """The program with long reductions in chunks."""
    return divided(program, lambda kernel: chunks_of(kernel, threads))


def divided(program: LoopProgram, chunks_of: Callable[[Kernel], int]) -> LoopProgram:
    """The program with the rows of each kernel in so many chunks; 1: it stays as it is."""
    buffers = list(program.buffers)
    steps: list[Step] = []
    for step in program.steps:
        chunks = chunks_of(step) if type(step) is Kernel else 1
        if type(step) is Kernel and chunks > 1:
            steps += _Halves(step, chunks, buffers).kernels()
        else:
            steps.append(step)
    return attrs.evolve(program, buffers=tuple(buffers), steps=tuple(steps))


def chunks_of(kernel: Kernel, threads: int) -> int:
    """How many chunks each row is divided into; 1: the kernel stays as it is."""
    if 0 in kernel.extents or points(kernel) < SMALL or not is_divisible(kernel):
        return 1
    vector = vector_axis(kernel)
    units = rows(kernel)
    if vector < kernel.space:
        extent = kernel.extents[vector]
        units = units // extent * -(-extent // columns_abreast(kernel))
    wanted = max(1 if units >= UNITS * threads else -(-UNITS * threads // units), _exact(kernel))
    return 1 if wanted == 1 else chunks_for(kernel.extents[kernel.space], wanted)


def _exact(kernel: Kernel) -> int:
    """How many chunks keep the error of sums small, which grows with what is added in order."""
    if not any(rounds(statement) for statement in reduces_of(kernel)):
        return 1
    if vector_axis(kernel) < kernel.space:
        return -(-inner_points(kernel) // LONGEST_COLUMN)
    return -(-inner_points(kernel) // (LONGEST_LANE * lanes_of(kernel, 4)))


def is_inexact(kernel: Kernel) -> bool:
    """Whether its sums ought to be divided, which those of kernels of several passes are not."""
    return points(kernel) >= SMALL and _exact(kernel) > 1


def rounds(statement: Reduce) -> bool:
    """Whether a reduction adds up rounding errors of float32."""
    dtype = statement.values[-1].dtype
    is_short = dtype.is_floating_point and dtype.itemsize <= 4
    return is_short and statement.kind in ("sum", "prod", "sum_exp", "moments")


def chunks_for(extent: int, wanted: int) -> int:
    """The least divisor from what is wanted to twice that; where there is none, what is wanted,
    with fewer points than chunks left over."""
    most = min(extent, 2 * wanted)
    return next((n for n in range(wanted, most + 1) if extent % n == 0), min(wanted, extent))


def is_divisible(kernel: Kernel) -> bool:
    """Whether the kernel reduces, and nothing of element level waits for a reduction."""
    scans = any(type(statement) is Scan for statement in kernel.body)
    return bool(reduces_of(kernel)) and has_one_pass(kernel) and not scans


def reduces_of(kernel: Kernel) -> list[Reduce]:
    """The reductions of a kernel."""
    return [statement for statement in kernel.body if type(statement) is Reduce]


class _Halves:
    """The two kernels of one, or three if some points are left over."""

    def __init__(self, kernel: Kernel, chunks: int, buffers: list[ProgramBuffer]) -> None:
        self.kernel = kernel
        self.chunks = chunks
        self.buffers = buffers
        self.outer = kernel.extents[: kernel.space]
        self.left = kernel.extents[kernel.space] % chunks
        self.even = kernel.extents[kernel.space] - self.left
        self.parts = chunks + (self.left > 0)

    def kernels(self) -> list[Step]:
        """Partial results of chunks, then their combination."""
        kernel = self.kernel
        partials = {k: self._partial(v) for s in reduces_of(kernel) for k, v in _parts(s)}
        first, second = self._first(partials), self._second(partials)
        return [first, self._last(partials), second] if self.left else [first, second]

    def _partial(self, value: Scalar) -> Scalar:
        """The load of a partial result, over (chunk, *rows)."""
        number = 1 + max([buffer.number for buffer in self.buffers])
        size = self.parts * math.prod(self.outer)
        self.buffers.append(ProgramBuffer(number, value.dtype, size, BufferKind.TEMPORARY))
        strides = [math.prod(self.outer[k:]) for k in range(len(self.outer) + 1)]
        return load(number, Affine(tuple(strides)), value.dtype)

    def _first(self, partials: dict[int, Scalar]) -> Kernel:
        """Axes (chunk, *rows | rest of the first inner axis, *other inner axes)."""
        kernel, space = self.kernel, self.kernel.space
        even = restricted(kernel, space, 0, self.even)
        whole = split_axis(even, space, self.even // self.chunks)
        count = len(whole.extents)
        forms = [unit(k + 1 if k < space else k, count) for k in range(count)]
        forms[space] = unit(0, count)
        extents = (self.chunks, *self.outer, *whole.extents[space + 1 :])
        kept = [s for s in whole.body if not (isinstance(s, Store) and s.each_row)]
        body = list(moved_body(kept, tuple(forms), count))
        for k, value in partials.items():
            buffer, address = value.args
            padding = (0,) * (count - len(address.coefficients))
            into = Affine((*address.coefficients, *padding))
            is_marked = count > space + 1
            body.append(Store(buffer, into, name(k, value.dtype), each_row=is_marked))
        return Kernel(kernel.name, extents, space + 1, tuple(body))

    def _last(self, partials: dict[int, Scalar]) -> Kernel:
        """The points that are left over, as one more chunk: axes (*rows | inner axes)."""
        space = self.kernel.space
        kernel = restricted(self.kernel, space, self.even, self.left)
        body = [s for s in kernel.body if not (isinstance(s, Store) and s.each_row)]
        for k, value in partials.items():
            buffer, address = value.args
            row, *steps = address.coefficients
            padding = (0,) * (len(kernel.extents) - space)
            into = Affine((*steps, *padding), self.chunks * row)
            body.append(Store(buffer, into, name(k, value.dtype), each_row=True))
        return Kernel(f"{kernel.name}_last", kernel.extents, space, tuple(body))

    def _second(self, partials: dict[int, Scalar]) -> Kernel:
        """Axes (*rows | chunk)."""
        kernel, space = self.kernel, self.kernel.space
        count = space + 1
        memo: dict[Scalar, Scalar] = {}
        for value in partials.values():
            buffer, address = value.args
            turned = Affine((*address.coefficients[1:], address.coefficients[0]))
            memo[value] = load(buffer, turned, value.dtype)
        body: list[Statement] = []
        for statement in kernel.body:
            if isinstance(statement, Reduce):
                values = tuple([memo[partials[k]] for k in statement.names])
                body.append(attrs.evolve(statement, values=values))
            elif isinstance(statement, Store) and statement.each_row:
                forms = [unit(k, count) for k in range(space)]
                forms += [fixed(0, count)] * (len(kernel.extents) - space)
                body += moved_body([statement], tuple(forms), count)
        extents = (*self.outer, self.parts)
        return Kernel(f"{kernel.name}_rest", extents, space, tuple(replaced_body(body, {})))


def _parts(statement: Reduce) -> list[tuple[int, Scalar]]:
    return list(zip(statement.names, statement.values, strict=True))
