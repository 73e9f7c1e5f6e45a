"""Split reductions: few long rows are reduced by two kernels, so that threads share the work.

    total[*i0<1000000]  b1[0] = sum of b0[i0]
      ->  total[c<32, *i0<31250]    b2[c] = sum of b0[31250*c + i0]
          total_rest[*c<32]         b1[0] = sum of b2[c]

The number of chunks depends on shapes and the number of threads alone, so that a program is
deterministic. Chunks also bound the error of float32 sums. This changes the order of sums, on
purpose. Spec: `specs/fusion.md`.
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
    loaded,
    named_by,
    stores_of,
)
from aotlite.backends.loops.rewrite import moved_body, replaced_body, restricted, split_axis
from aotlite.backends.loops.templates.shared_templates import about
from aotlite.ir.geometry.sizes import hint_of, is_symbolic
from aotlite.ir.scalar.expression import Affine, Scalar, load, name

SMALL = 1 << 15
"""A kernel of fewer points runs as fast on one thread as on several."""
UNITS = 4
"""The units of work for each thread, so that a slow one does not delay the rest."""
SHORTEST = 16
"""About the fewest values of a chunk for a thread. Its partial result is stored and loaded again:
of shorter chunks, that takes longer than the thread saves."""
ROW_CHUNK, COLUMN_CHUNK = 1 << 14, 1 << 7
"""The positions of a chunk along an axis of any size: of rows, and of columns."""
LONGEST_LANE, LONGEST_COLUMN = 512, 4096
"""The most float32 values that are added one after the other, which bounds the rounding error: in a
lane of a row, and in a column. (NumPy adds whole columns one after the other.)"""


def split(program: LoopProgram, threads: int) -> LoopProgram:
    """Returns the program with long reductions in chunks. What combines chunks of any number is not
    divided again."""
    kernels = [step for step in program.steps if type(step) is Kernel]
    partial = {number for kernel in kernels for number in named_by(kernel, _from_identity)}

    def chunks(kernel: Kernel) -> int:
        if about(kernel, is_of_any_length) and set(loaded(kernel)) <= partial:
            return 1
        return about(kernel, chunks_of, threads)

    return divided(program, chunks)


def _from_identity(kernel: Kernel) -> list[int]:
    return [store.buffer for store in stores_of(kernel) if store.from_identity]


def divided(
    program: LoopProgram,
    chunks_of: Callable[[Kernel], int],
    length_of: Callable[[Kernel], int] | None = None,
) -> LoopProgram:
    """Returns the program with the rows of each kernel in `chunks_of(kernel)` chunks. Along an axis
    of symbolic extent a chunk has `length_of(kernel)` positions, by default `chunk_of_sizes`."""
    buffers = list(program.buffers)
    steps: list[Step] = []
    for step in program.steps:
        chunks = chunks_of(step) if type(step) is Kernel else 1
        if type(step) is Kernel and chunks > 1:
            length = (length_of or chunk_of_sizes)(step) if is_symbolic(step.extents) else 0
            steps += _Halves(step, chunks, buffers, length).kernels()
        else:
            steps.append(step)
    return attrs.evolve(program, buffers=tuple(buffers), steps=tuple(steps))


def chunks_of(kernel: Kernel, threads: int) -> int:
    """Returns the number of chunks of each row; 1 for a kernel that is not split. Along an axis of
    symbolic extent any larger number stands for chunks of `chunk_of_sizes`."""
    if 0 in kernel.extents:
        return 1
    if is_of_any_length(kernel):
        return 2
    if points(kernel) < SMALL or not is_divisible(kernel):
        return 1
    vector = vector_axis(kernel)
    units = rows(kernel)
    if vector < kernel.space:
        extent = hint_of(kernel.extents[vector])
        units = units // extent * -(-extent // columns_abreast(kernel))
    shared = 1 if units >= UNITS * threads else -(-UNITS * threads // units)
    wanted = max(min(shared, inner_points(kernel) // SHORTEST), _exact(kernel), 1)
    return 1 if wanted == 1 else chunks_for(kernel.extents[kernel.space], wanted)


def is_of_any_length(kernel: Kernel) -> bool:
    """Whether a kernel reduces along an axis of symbolic extent, and the whole or columns. Rows are
    divided only if the hints ask for it, since mostly there are many of them."""
    return (
        kernel.space < len(kernel.extents)
        and type(kernel.extents[kernel.space]) is not int
        and (not kernel.space or vector_axis(kernel) < kernel.space)
        and is_divisible(kernel)
    )


def chunk_of_sizes(kernel: Kernel) -> int:
    """Returns the positions along the first inner axis in a chunk, if that is of symbolic extent.

    The number is the same for all sizes, so that the order of sums is: whole chunks, and one more
    with the positions that are left over, which may be none.
    """
    if vector_axis(kernel) < kernel.space:
        return COLUMN_CHUNK
    return max(ROW_CHUNK // max(hint_of(math.prod(kernel.extents[kernel.space + 1 :])), 1), 1)


def _exact(kernel: Kernel) -> int:
    """Returns the number of chunks that keeps the rounding error of sums small."""
    if not any(rounds(statement) for statement in reduces_of(kernel)):
        return 1
    if vector_axis(kernel) < kernel.space:
        return -(-inner_points(kernel) // LONGEST_COLUMN)
    return -(-inner_points(kernel) // (LONGEST_LANE * lanes_of(kernel, 4)))


def is_inexact(kernel: Kernel) -> bool:
    """Whether the sums of a kernel should be split for their accuracy. Fusion keeps such a kernel
    at one pass, since kernels of several passes are not split."""
    return points(kernel) >= SMALL and _exact(kernel) > 1


def rounds(statement: Reduce) -> bool:
    """Whether a reduction accumulates rounding errors in float32 or less."""
    dtype = statement.values[-1].dtype
    is_short = dtype.is_floating_point and dtype.itemsize <= 4
    return is_short and statement.kind in ("sum", "prod", "sum_exp", "moments")


def chunks_for(extent: int, wanted: int) -> int:
    """Returns the number of chunks of `extent` points: the least divisor from `wanted` to twice
    that. Without such a divisor it is `wanted`, and the last extent % wanted points are left over.
    """
    if type(extent) is not int:
        return wanted
    most = min(extent, 2 * wanted)
    return next((n for n in range(wanted, most + 1) if extent % n == 0), min(wanted, extent))


def is_divisible(kernel: Kernel) -> bool:
    """Whether a kernel can be split: it reduces, in one pass, and has no scan."""
    scans = any(type(statement) is Scan for statement in kernel.body)
    return bool(reduces_of(kernel)) and has_one_pass(kernel) and not scans


def reduces_of(kernel: Kernel) -> list[Reduce]:
    """Returns the reductions of a kernel."""
    return [statement for statement in kernel.body if type(statement) is Reduce]


class _Halves:
    """The kernels of a split: two, or three if some points are left over."""

    def __init__(
        self, kernel: Kernel, chunks: int, buffers: list[ProgramBuffer], length: int
    ) -> None:
        self.kernel = kernel
        self.buffers = buffers
        self.outer = kernel.extents[: kernel.space]
        extent = kernel.extents[kernel.space]
        if type(extent) is int:
            self.chunks = chunks
            self.each = extent // chunks
        else:
            self.each = length
            self.chunks = extent // self.each
        self.even = self.chunks * self.each
        self.left = extent - self.even
        self.parts = self.chunks + (1 if self.left else 0)

    def kernels(self) -> list[Step]:
        """Returns the kernels: partial results of chunks, then their combination."""
        kernel = self.kernel
        partials = {k: self._partial(v) for s in reduces_of(kernel) for k, v in _parts(s)}
        first, second = self._first(partials), self._second(partials)
        return [first, self._last(partials), second] if self.left else [first, second]

    def _partial(self, value: Scalar) -> Scalar:
        """Adds the buffer of a partial result and returns its load over (chunk, *rows)."""
        number = 1 + max([buffer.number for buffer in self.buffers])
        size = self.parts * math.prod(self.outer)
        self.buffers.append(ProgramBuffer(number, value.dtype, size, BufferKind.TEMPORARY))
        strides = [math.prod(self.outer[k:]) for k in range(len(self.outer) + 1)]
        return load(number, Affine(tuple(strides)), value.dtype)

    def _first(self, partials: dict[int, Scalar]) -> Kernel:
        """Returns the kernel of the chunks, over (chunk, *rows | rest of the first inner axis,
        *other inner axes)."""
        kernel, space = self.kernel, self.kernel.space
        even = restricted(kernel, space, 0, self.even)
        whole = split_axis(even, space, self.each)
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
        """Returns the kernel of the points left over, one more chunk: over (*rows | inner axes)."""
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
        """Returns the kernel that combines the partial results, over (*rows | chunk)."""
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
