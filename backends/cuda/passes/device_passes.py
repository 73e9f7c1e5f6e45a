"""The pipeline of passes for a GPU: fusion, axes, rewrites, chunks, scatters, lanes.

Input: a program of `lower`; output: a program ready for the CUDA printer, for a target. The
constants aim at busy memory: most threads of a multiprocessor, each with some loads of 16 bytes in
flight. Spec: `specs/cuda_printer.md`.
"""

from __future__ import annotations

import math
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
from aotlite.backends.loops.passes.split_reductions import (
    divided,
    is_divisible,
    is_of_any_length,
    reduces_of,
)
from aotlite.backends.loops.passes.vectorization import axis_of_memory
from aotlite.backends.loops.program import Kernel, LoopProgram, Reduce, in_order, loads_of
from aotlite.ir.geometry.sizes import hint_of, is_symbolic
from aotlite.ir.symbols.proving import is_proved

SHARE, SMALL_SHARE = 32, 8
"""The points of a row for each thread: enough for several loads in flight, few enough for
registers. The second if rows are few, or come one after the other."""
SEGMENT = 64
"""The bytes that the threads of a row should read side by side."""
FEW_WAVES, WAVES = 4, 8
"""Blocks for each multiprocessor. A kernel with fewer than the first is split, into about as many
as the second, which are resident together."""
SMALL = 1 << 14
"""A kernel of fewer points is not worth a second kernel."""
CHUNK, CHUNK_DOWN, LEAST_ROWS = 1 << 11, 64, 8
"""The least points of a chunk: of a row, of a column, and of a column beside rows once each
multiprocessor has a chunk."""
LENGTH, LENGTH_DOWN = 1 << 12, 1 << 7
"""The positions of a chunk along an axis of symbolic extent: of a row, and of a column."""
KEPT_BYTES, KEPT_DOWN = 1 << 17, 1 << 7
"""The bytes of a row's value that a block's registers hold, and the points of a column whose share
a thread can hold. Longer rows are "long" for online softmax."""
SWEPT_BYTES = 1 << 19
"""The bytes that a row of a kernel of several passes may load and store: about what a block keeps
if it loads each value once."""
ROWS_BESIDE = 1 << 15
"""The most columns that are reduced beside their rows: each has a place in its thread."""


def improved_for(
    program: LoopProgram, target: Target, *, deterministic: bool = True, wide: bool = False
) -> LoopProgram:
    """Returns the program fused and scheduled for a target. `deterministic`: it computes the same
    bits at each call (K-12). `wide`: one of symbolic sizes may have any number of points, else
    fewer than `NARROW`."""
    program = fused(program, SWEPT_BYTES)
    online = with_online(program, _is_long)
    program = program if online is program else fused(online, SWEPT_BYTES)
    program = canonical(ordered(program))
    chunks = partial(_chunks_beside, target=target)
    program = with_signs(with_fills(with_columns_beside(program, chunks, ROWS_BESIDE)))
    program = divided(program, partial(_chunks, target=target), _length)
    program = with_unordered(program, target, deterministic=deterministic, wide=wide)
    steps = [
        scheduled_kernel(step, target) if type(step) is Kernel and step.extents else step
        for step in program.steps
    ]
    return attrs.evolve(program, steps=tuple(steps))


def _is_long(kernel: Kernel) -> bool:
    """Whether a row is too long for a block to keep a value of all its points."""
    if 0 in kernel.extents or is_symbolic(kernel.extents[kernel.space :]):
        return False
    if kernel.space == len(kernel.extents):
        return False
    count = inner_points(kernel)
    if axis_of_memory(kernel) < kernel.space:
        return count > KEPT_DOWN
    sizes = [value.dtype.itemsize for each in reduces_of(kernel) for value in each.values]
    return count * max(sizes, default=0) > KEPT_BYTES


# ----------------------------------------------------------------------------------------- chunks
def _chunks_beside(kernel: Kernel, columns: Kernel, target: Target) -> int:
    """Returns the number of chunks of rows beside which columns are reduced. A block computes a
    chunk, and holds partial results of all columns."""
    count, width = kernel.extents
    threads = min(power_above(-(-width // SMALL_SHARE)), _most_threads(kernel))
    if width * _kept_bytes(kernel, columns) > _room_of_block(kernel, threads, target):
        return 1
    room = max(target.threads // 2 // threads, 1)
    most = max(count // LEAST_ROWS, min(count, target.multiprocessors))
    sizes = count * row_bytes(kernel), _partial_bytes(columns)
    return best_chunks(Division(count, 1, room, *sizes, most), target)


def _kept_bytes(kernel: Kernel, columns: Kernel) -> int:
    """Returns the bytes that a block holds for each column: its sums and its loads."""
    loads = {v.args[0]: v.dtype.itemsize for v in loads_of(kernel) if all(v.args[1].coefficients)}
    sizes = [v.dtype.itemsize for each in reduces_of(columns) for v in each.values]
    return sum(loads.values()) + sum(sizes)


def _room_of_block(kernel: Kernel, threads: int, target: Target) -> int:
    """Returns the bytes that a block can hold if it has a multiprocessor alone."""
    others = registers_of_others(kernel.body, width_along(kernel, len(kernel.extents) - 1))
    registers = max(min(target.registers // threads - others, MOST_KEPT), 0)
    return 4 * registers * threads + max(target.shared - STATIC_SHARED, 0)


def _partial_bytes(kernel: Kernel) -> int:
    """Returns the bytes of storing and loading the partial results of a chunk."""
    sizes = [v.dtype.itemsize for each in reduces_of(kernel) for v in each.values]
    return 2 * rows(kernel) * sum(sizes)


def _chunks(kernel: Kernel, target: Target) -> int:
    """Returns the number of chunks of each row; 1 for a kernel that is not split."""
    if 0 in kernel.extents or not is_divisible(kernel):
        return 1
    if is_of_any_length(kernel):  # any larger number stands for chunks of `_length`
        return 1 if is_proved(math.prod(kernel.extents) < SMALL) else 2
    if points(kernel) < SMALL:
        return 1
    units, least = rows(kernel), CHUNK
    k = axis_of_memory(kernel)
    if k < kernel.space:
        extent, least = hint_of(kernel.extents[k]), CHUNK_DOWN
        width = width_along(kernel, k)
        units = units // extent * -(-extent // (threads_beside(extent, width, WARP) * width))
    if units >= FEW_WAVES * target.multiprocessors:
        return 1
    count, most = hint_of(kernel.extents[kernel.space]), inner_points(kernel) // least
    if most <= 1:
        return 1
    sizes = rows(kernel) * row_bytes(kernel), _partial_bytes(kernel)
    return best_chunks(Division(count, units, WAVES, *sizes, most), target)


def _length(kernel: Kernel) -> int:
    """Returns the positions along the first inner axis in a chunk, if that is of symbolic extent.
    They are the same for all sizes, so that the order of sums is (SIZ-5)."""
    if axis_of_memory(kernel) < kernel.space:
        return LENGTH_DOWN
    return max(LENGTH // max(hint_of(math.prod(kernel.extents[kernel.space + 1 :])), 1), 1)


# ------------------------------------------------------------------------------------------ lanes
def scheduled_kernel(kernel: Kernel, target: Target) -> Kernel:
    """Returns the kernel with lanes for the threads that compute a row."""
    kernel = attrs.evolve(kernel, vector=axis_of_memory(kernel))
    if 0 in kernel.extents or not any(type(each) is Reduce for each in kernel.body):
        return kernel
    lanes = _lanes(kernel, target)
    return with_neighbors(on_reduces(kernel, lambda each: attrs.evolve(each, lanes=lanes)))


def with_neighbors(kernel: Kernel) -> Kernel:
    """Returns the kernel with `near` set: a thread combines its own neighbors first."""
    if 0 in kernel.extents or is_in_order(kernel) or is_of_columns(kernel):
        return kernel
    layout, _ = layout_of(kernel, 1)
    return on_reduces(kernel, lambda each: attrs.evolve(each, near=layout.width))


def on_reduces(kernel: Kernel, change: Callable[[Reduce], Reduce]) -> Kernel:
    """Returns the kernel with its reductions changed."""
    body = [change(each) if type(each) is Reduce else each for each in kernel.body]
    return attrs.evolve(kernel, body=tuple(body))


def _lanes(kernel: Kernel, target: Target) -> int:
    """Returns the lanes of a kernel: the neighbors of all threads of a row."""
    if kernel.space == len(kernel.extents):
        return 1
    k = kernel.vector
    if k is not None and k < kernel.space and not in_order(kernel):
        return _lanes_down(kernel, k)
    if is_in_order(kernel):
        return width_along(kernel, len(kernel.extents) - 1)
    width = width_along(kernel, len(kernel.extents) - 1, by_hint=True)
    return width * _team(kernel, width, target)


def _team(kernel: Kernel, width: int, target: Target) -> int:
    """Returns the threads of a row: enough for small shares, few enough for coalesced runs."""
    size = min([v.dtype.itemsize for s in kernel.body if type(s) is Reduce for v in s.values])
    count = inner_points(kernel)
    is_alone = in_order(kernel) or rows(kernel) < target.multiprocessors
    wanted = power_above(-(-count // (SMALL_SHARE if is_alone else SHARE)))
    least = max(SEGMENT // (width * size), 1)
    most = min(power_above(-(-count // width)), _most_threads(kernel), most_team(kernel, width))
    return min(max(wanted, least), most)


def _most_threads(kernel: Kernel) -> int:
    """Returns the most threads of a row that leave each enough registers."""
    return MOST_THREADS // 2 if computes_wide(kernel.body) else MOST_THREADS


def _lanes_down(kernel: Kernel, axis: int) -> int:
    """Returns the threads that share the same columns: enough to fill a block."""
    width = width_along(kernel, axis, by_hint=True)
    beside = threads_beside(hint_of(kernel.extents[axis]), width, WARP)
    return min(BLOCK // beside, max(power_above(inner_points(kernel)) // 4, 1))
