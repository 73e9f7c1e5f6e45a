"""All passes on a program that a GPU is to run.

Input: what `lower` gives; output: a program as the CUDA printer should have it, for a target.
Where nothing can be measured, numbers stand for what a multiprocessor needs to keep memory busy:
most of its threads, each with some accesses of 16 bytes under way.
Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs

from aotlite.backends.cuda.emit.reductions.register_operands import (
    MOST_KEPT,
    computes_wide,
    registers_of_others,
)
from aotlite.backends.cuda.emit.reductions.thread_layout import (
    BLOCK,
    MOST_THREADS,
    STATIC_SHARED,
    WARP,
    is_in_order,
    is_of_columns,
    layout_of,
    most_team,
    power_above,
    threads_beside,
    width_along,
)
from aotlite.backends.cuda.passes.row_chunks import Division, best_chunks
from aotlite.backends.cuda.passes.unordered_scatter import with_unordered
from aotlite.backends.cuda.target import Target
from aotlite.backends.loops.analysis.cost import inner_points, points, row_bytes, rows
from aotlite.backends.loops.passes.axis_order import ordered
from aotlite.backends.loops.passes.canonicalize import canonical
from aotlite.backends.loops.passes.fill_forwarding import with_fills
from aotlite.backends.loops.passes.fusion.fuse import fused
from aotlite.backends.loops.passes.fusion.row_column_reduction import with_columns_beside
from aotlite.backends.loops.passes.online_softmax import with_online
from aotlite.backends.loops.passes.sign_analysis import with_signs
from aotlite.backends.loops.passes.split_reductions import divided, is_divisible, reduces_of
from aotlite.backends.loops.passes.vectorization import axis_of_memory
from aotlite.backends.loops.program import Kernel, LoopProgram, Reduce, in_order, loads_of

SHARE, SMALL_SHARE = 32, 8
"""Points of a row that a thread should have: in registers, and some accesses under way at once; the
second where rows are few, or go one after the other."""
SEGMENT = 64
"""Bytes that the threads of a row should read side by side."""
FEW_WAVES, WAVES = 4, 8
"""Blocks that each multiprocessor finds: fewer than the first are divided, so that there are about
as many as the second, which are there at once."""
SMALL = 1 << 14
"""Points that are not worth a second kernel."""
CHUNK, CHUNK_DOWN, LEAST_ROWS = 1 << 11, 64, 8
"""Points of a chunk at least: of a row, of a column, and of a column beside rows if there are so
many chunks that each multiprocessor has one."""
KEPT_BYTES, KEPT_DOWN = 1 << 17, 1 << 7
"""Of one value of all points of a row, which a block's registers hold; the points of a column of
which a thread has room for its part."""
SWEPT_BYTES = 1 << 19
"""What a row may load and store that is gone over several times by one kernel: about what a block
keeps, if each value is loaded once."""
ROWS_BESIDE = 1 << 15
"""Columns that are added up beside their rows, each in a place of its own thread, at most."""


def improved_for(
    program: LoopProgram, target: Target, *, deterministic: bool = True
) -> LoopProgram:
    """The program with its work divided for a GPU's multiprocessors. `deterministic`: whether it
    computes the same bits at each call (K-12)."""
    program = fused(program, SWEPT_BYTES)
    online = with_online(program, _is_long)
    program = program if online is program else fused(online, SWEPT_BYTES)
    program = canonical(ordered(program))
    chunks = partial(_chunks_beside, target=target)
    program = with_signs(with_fills(with_columns_beside(program, chunks, ROWS_BESIDE)))
    program = divided(program, partial(_chunks, target=target))
    program = with_unordered(program, target, deterministic=deterministic)
    steps = [
        scheduled_kernel(step, target) if type(step) is Kernel and step.extents else step
        for step in program.steps
    ]
    return attrs.evolve(program, steps=tuple(steps))


def _is_long(kernel: Kernel) -> bool:
    """Whether a block does not keep a value of all points of a row."""
    if 0 in kernel.extents or kernel.space == len(kernel.extents):
        return False
    count = inner_points(kernel)
    if axis_of_memory(kernel) < kernel.space:
        return count > KEPT_DOWN
    sizes = [value.dtype.itemsize for each in reduces_of(kernel) for value in each.values]
    return count * max(sizes, default=0) > KEPT_BYTES


# ----------------------------------------------------------------------------------------- chunks
def _chunks_beside(kernel: Kernel, columns: Kernel, target: Target) -> int:
    """How many chunks the rows are divided into that columns are added up beside: one is a block's,
    and has partial results of all columns."""
    count, width = kernel.extents
    threads = min(power_above(-(-width // SMALL_SHARE)), _most_threads(kernel))
    if width * _kept_bytes(kernel, columns) > _room_of_block(kernel, threads, target):
        return 1
    room = max(target.threads // 2 // threads, 1)
    most = max(count // LEAST_ROWS, min(count, target.multiprocessors))
    sizes = count * row_bytes(kernel), _partial_bytes(columns)
    return best_chunks(Division(count, 1, room, *sizes, most), target)


def _kept_bytes(kernel: Kernel, columns: Kernel) -> int:
    """What a block keeps of a row's point while it adds up columns: sums, and what it loads."""
    loads = {v.args[0]: v.dtype.itemsize for v in loads_of(kernel) if all(v.args[1].coefficients)}
    sizes = [v.dtype.itemsize for each in reduces_of(columns) for v in each.values]
    return sum(loads.values()) + sum(sizes)


def _room_of_block(kernel: Kernel, threads: int, target: Target) -> int:
    """Bytes that a block which has a multiprocessor alone may keep."""
    others = registers_of_others(kernel.body, width_along(kernel, len(kernel.extents) - 1))
    registers = max(min(target.registers // threads - others, MOST_KEPT), 0)
    return 4 * registers * threads + max(target.shared - STATIC_SHARED, 0)


def _partial_bytes(kernel: Kernel) -> int:
    """What storing and loading the partial results of a chunk moves."""
    sizes = [v.dtype.itemsize for each in reduces_of(kernel) for v in each.values]
    return 2 * rows(kernel) * sum(sizes)


def _chunks(kernel: Kernel, target: Target) -> int:
    """How many chunks each row is divided into; 1: the kernel stays as it is."""
    if 0 in kernel.extents or points(kernel) < SMALL or not is_divisible(kernel):
        return 1
    units, least = rows(kernel), CHUNK
    k = axis_of_memory(kernel)
    if k < kernel.space:
        extent, least = kernel.extents[k], CHUNK_DOWN
        width = width_along(kernel, k)
        units = units // extent * -(-extent // (threads_beside(extent, width, WARP) * width))
    if units >= FEW_WAVES * target.multiprocessors:
        return 1
    count, most = kernel.extents[kernel.space], inner_points(kernel) // least
    if most <= 1:
        return 1
    sizes = rows(kernel) * row_bytes(kernel), _partial_bytes(kernel)
    return best_chunks(Division(count, units, WAVES, *sizes, most), target)


# ------------------------------------------------------------------------------------------ lanes
def scheduled_kernel(kernel: Kernel, target: Target) -> Kernel:
    """The kernel with lanes for the threads that shall compute a row."""
    kernel = attrs.evolve(kernel, vector=axis_of_memory(kernel))
    if 0 in kernel.extents or not any(type(each) is Reduce for each in kernel.body):
        return kernel
    lanes = _lanes(kernel, target)
    return with_neighbours(on_reduces(kernel, lambda each: attrs.evolve(each, lanes=lanes)))


def with_neighbours(kernel: Kernel) -> Kernel:
    """The kernel, in which a thread combines its neighbours before other threads see anything."""
    if 0 in kernel.extents or is_in_order(kernel) or is_of_columns(kernel):
        return kernel
    layout, _ = layout_of(kernel, 1)
    return on_reduces(kernel, lambda each: attrs.evolve(each, near=layout.width))


def on_reduces(kernel: Kernel, change: Callable[[Reduce], Reduce]) -> Kernel:
    """The kernel with its reductions changed."""
    body = [change(each) if type(each) is Reduce else each for each in kernel.body]
    return attrs.evolve(kernel, body=tuple(body))


def _lanes(kernel: Kernel, target: Target) -> int:
    """As many lanes as a row's threads have neighbours, together."""
    if kernel.space == len(kernel.extents):
        return 1
    k = kernel.vector
    if k is not None and k < kernel.space and not in_order(kernel):
        return _lanes_down(kernel, k)
    width = width_along(kernel, len(kernel.extents) - 1)
    if is_in_order(kernel):
        return width
    return width * _team(kernel, width, target)


def _team(kernel: Kernel, width: int, target: Target) -> int:
    """Threads of a row: so many that each has a small share, but that memory is read in runs."""
    size = min([v.dtype.itemsize for s in kernel.body if type(s) is Reduce for v in s.values])
    count = inner_points(kernel)
    is_alone = in_order(kernel) or rows(kernel) < target.multiprocessors
    wanted = power_above(-(-count // (SMALL_SHARE if is_alone else SHARE)))
    least = max(SEGMENT // (width * size), 1)
    most = min(power_above(-(-count // width)), _most_threads(kernel), most_team(kernel, width))
    return min(max(wanted, least), most)


def _most_threads(kernel: Kernel) -> int:
    """Of a row: so many that each has registers for what is not kept, and some more."""
    return MOST_THREADS // 2 if computes_wide(kernel.body) else MOST_THREADS


def _lanes_down(kernel: Kernel, axis: int) -> int:
    """Threads that go down the same columns: enough to fill a block, if there are points."""
    beside = threads_beside(kernel.extents[axis], width_along(kernel, axis), WARP)
    return min(BLOCK // beside, max(power_above(inner_points(kernel)) // 4, 1))
