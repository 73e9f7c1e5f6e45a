"""Reductions of columns inside kernels of rows, so that both share one reading of memory.

The backward of a layer norm computes a gradient row by row, and sums the same data by column for
the weight's gradient. Rows are divided into chunks, each of which has partial sums of all columns:

    rows[i0<1000, *i1<64]      b1[64*i0 + i1] = ... b0 ...
    columns[i1<64, *i0<1000]   b2[i1] = sum of b0[64*i0 + i1]
      ->  rows[c<8, r<125, *i1<64]    b1[..] = ... b0 ...;  from identity: b3[64*c + i1] sum= b0[..]
          rest[i1<64, *c<8]           b2[i1] = sum of b3[64*c + i1]

Within a chunk rows combine in ascending order. This changes the order of sums, on purpose. Spec:
`specs/fusion.md`.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from aotlite.backends.loops.analysis.affine import unit
from aotlite.backends.loops.analysis.cost import points
from aotlite.backends.loops.combiners import combiner
from aotlite.backends.loops.passes.dead_code import without_dead
from aotlite.backends.loops.passes.fusion.fuse import Replacement, StepOrder
from aotlite.backends.loops.passes.fusion.merge import joined
from aotlite.backends.loops.passes.split_reductions import (
    LONGEST_COLUMN,
    SMALL,
    UNITS,
    chunks_for,
    is_divisible,
    reduces_of,
)
from aotlite.backends.loops.passes.vectorization import vector_axis
from aotlite.backends.loops.program import (
    BufferKind,
    Kernel,
    LoopProgram,
    ProgramBuffer,
    Reduce,
    Statement,
    Step,
    Store,
    loads_of,
    stores_of,
)
from aotlite.backends.loops.rewrite import moved, restricted, split_axis
from aotlite.backends.loops.templates.shared_templates import about
from aotlite.ir.geometry.sizes import hint_of, is_symbolic
from aotlite.ir.scalar.expression import Affine, Scalar, load

ChunksOf = Callable[[Kernel, Kernel], int]
"""From a kernel of rows and one of columns to the number of chunks of rows."""
LONGEST = 4096
"""The most columns: their partial results stay in the first-level cache while rows go by."""
ROW_SET = 64
"""The rows of a chunk of which there is any number."""


def with_columns(program: LoopProgram, threads: int) -> LoopProgram:
    """Returns the program with reductions of columns merged into kernels of rows that load the
    same."""

    def chunks_of(row: Kernel, columns: Kernel) -> int:
        wanted = max(UNITS * threads, -(-row.extents[0] // LONGEST_COLUMN))
        return chunks_for(row.extents[0], wanted)

    return with_columns_beside(program, chunks_of, LONGEST, of_any_size=True)


def with_columns_beside(
    program: LoopProgram, chunks_of: ChunksOf, most: int, *, of_any_size: bool = False
) -> LoopProgram:
    """Returns the same for another device: `chunks_of` chunks of rows, at most `most` columns.
    `of_any_size`: also where extents are symbolic, in chunks of `ROW_SET` rows."""
    found = _families(program, most, of_any_size)
    if not found:
        return program
    steps = StepOrder(program)
    buffers = list(program.buffers)
    taken: set[int] = set()
    """The places of kernels that were merged already."""
    for row, columns in found:
        known = [k for k in columns if k in steps.steps and k not in taken]
        if row in steps.steps and known:
            column = _as_one(steps, known)
            if steps.may_be_one(row, column):
                parts = _Parts(steps.steps[row], steps.steps[column], buffers, chunks_of).steps()
                if parts is not None:
                    steps.replace(row, column, parts)
                    taken.add(column)
    program = attrs.evolve(program, buffers=tuple(buffers), steps=steps.in_order())
    return without_dead(program)


def _families(program: LoopProgram, most: int, of_any_size: bool) -> list[tuple[int, list[int]]]:
    """Returns the place of each kernel of rows, and the places of kernels of columns with the same
    extents."""
    kernels = {
        place: step
        for place, step in enumerate(program.steps)
        if type(step) is Kernel
        and step.space == 1
        and len(step.extents) == 2
        and (of_any_size or not is_symbolic(step.extents))
        and points(step) >= SMALL
    }
    columns = [
        k for k, x in kernels.items() if hint_of(x.extents[0]) <= most and about(x, _is_of_columns)
    ]
    found = []
    for row, kernel in kernels.items():
        turned = kernel.extents[::-1]
        own = [k for k in columns if k != row and _are_alike(kernels[k].extents, turned)]
        if own and row not in columns:
            found.append((row, own))
    return found


def _are_alike(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether extents are equal for all sizes: symbolic ones if they are one expression."""
    return all(x is y or (type(x) is type(y) is int and x == y) for x, y in zip(a, b, strict=True))


def _as_one(steps: StepOrder, columns: list[int]) -> int:
    """Merges kernels of columns, as far as possible, and returns the place of the result."""
    place = columns[0]
    for other in columns[1:]:
        one, two = steps.steps[place], steps.steps[other]
        assert type(one) is Kernel
        assert type(two) is Kernel
        kernel = joined(one, two) if steps.may_be_one(place, other) else None
        # A value that needs a whole column has to wait for all rows.
        if kernel is not None and _is_of_columns(kernel):
            steps.put(place, other, kernel)
            place = other
    return place


def _is_of_columns(kernel: Kernel) -> bool:
    """Whether a kernel only reduces, by combiners of one part."""
    if not is_divisible(kernel) or not all(store.each_row for store in stores_of(kernel)):
        return False
    return all(combiner(statement.kind).parts == 1 for statement in reduces_of(kernel))


class _Parts:
    """The kernels that replace one of rows and one of columns."""

    def __init__(
        self,
        row: Step,
        column: Step,
        buffers: list[ProgramBuffer],
        chunks_of: ChunksOf,
    ) -> None:
        assert type(row) is Kernel
        assert type(column) is Kernel
        self.row, self.column = row, column
        self.buffers = buffers
        extent = row.extents[0]
        if type(extent) is int:
            self.chunks = chunks_of(row, column)
            self.left = extent % self.chunks
            self.even = extent - self.left
            self.each = self.even // self.chunks
            self.parts = self.chunks + (self.left > 0)
            self.has_rest = self.left > 0
        else:  # the same chunks for all sizes, and one more with the rows that are left over
            self.each, self.has_rest = ROW_SET, True
            self.chunks, self.parts = extent // ROW_SET, -(-extent // ROW_SET)
            self.even = self.chunks * ROW_SET
            self.left = extent - self.even

    def steps(self) -> Replacement | None:
        """Returns the kernels that compute and the one that combines; None if they share no
        load."""
        inner = self.row.extents[1]
        is_one = type(self.chunks) is int and self.chunks < 2
        if is_one or any(store.combine for store in stores_of(self.row)):
            return None
        # Axes (chunk, row | column), and (row | column) of the rows that are left over.
        first = split_axis(restricted(self.row, 0, 0, self.even), 0, self.each)
        kernels = [self._joined(first, Affine((self.each, 1, 0)), Affine((inner, 0, 1)))]
        if self.has_rest:
            last = restricted(self.row, 0, self.even, self.left)
            row, into = Affine((1, 0), self.even), Affine((0, 1), self.chunks * inner)
            kernels.append(self._joined(last, row, into))
        done = [kernel for kernel in kernels if kernel is not None]
        if len(done) < len(kernels) or vector_axis(done[0]) != 2:
            return None
        numbers = [self._buffer(reduce.values[0]) for reduce in reduces_of(self.column)]
        done = [self._combining(kernel, numbers) for kernel in done]
        return Replacement(tuple(done), self._rest(numbers))

    def _joined(self, first: Kernel, row: Affine, into: Affine) -> Kernel | None:
        """Returns the kernel of rows with a store of each value that the columns reduce, into
        buffers with negative numbers, which `_combining` replaces."""
        count = len(first.extents)
        forms, memo = (unit(count - 1, count), row), dict[Scalar, Scalar]()
        values = [moved(s.values[0], forms, count, memo) for s in reduces_of(self.column)]
        stores = [Store(-1 - k, into, value) for k, value in enumerate(values)]
        second = Kernel(self.column.name, first.extents, count - 1, tuple(stores))
        return joined(first, second) if _share(first, second) else None

    def _combining(self, kernel: Kernel, numbers: list[int]) -> Kernel:
        """Returns the kernel with these stores combining into the partial results."""
        kinds = [reduce.kind for reduce in reduces_of(self.column)]
        body: list[Statement] = []
        for statement in kernel.body:
            if isinstance(statement, Store) and statement.buffer < 0:
                k = -1 - statement.buffer
                statement = attrs.evolve(
                    statement, buffer=numbers[k], combine=kinds[k], from_identity=True
                )
            body.append(statement)
        return Kernel(kernel.name, kernel.extents, kernel.space, tuple(body))

    def _buffer(self, value: Scalar) -> int:
        number = 1 + max([buffer.number for buffer in self.buffers])
        size = self.parts * self.column.extents[0]
        self.buffers.append(ProgramBuffer(number, value.dtype, size, BufferKind.TEMPORARY))
        return number

    def _rest(self, numbers: list[int]) -> Kernel:
        """Returns the kernel over (column | chunk) that combines the partial results."""
        count = self.column.extents[0]
        partial = iter(numbers)
        body: list[Statement] = []
        for statement in self.column.body:
            if isinstance(statement, Reduce):
                dtype = statement.values[0].dtype
                value = load(next(partial), Affine((1, count)), dtype)
                body.append(attrs.evolve(statement, values=(value,)))
            else:
                body.append(statement)
        return Kernel(f"{self.column.name}_rest", (count, self.parts), 1, tuple(body))


def _share(first: Kernel, second: Kernel) -> bool:
    """Whether the second loads, at each point, an element that the first loads or stores."""
    known = {(value.args[0], value.args[1]) for value in loads_of(first)}
    known |= {(store.buffer, store.address) for store in stores_of(first)}
    return any(
        value.args[1].coefficients[-1] and (value.args[0], value.args[1]) in known
        for value in loads_of(second)
    )
