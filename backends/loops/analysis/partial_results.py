"""Partial results that are the result: a division into chunks of which there is one.

    k0: b2[i0] = sum of rows 0..127 of b0      k1: b1[i0] = sum of the rows of b2

With one row in b2 the second kernel has nothing to do, if the first one stores into b1. How many
rows there are depends on sizes. Spec: `specs/sized_kernels.md`.
"""

from __future__ import annotations

from aotlite.backends.loops.program import (
    BufferKind,
    Kernel,
    LoopProgram,
    Reduce,
    Store,
    reads,
    writes,
)
from aotlite.ir.scalar.expression import Affine


def direct_results(program: LoopProgram) -> dict[int, tuple[int, int]]:
    """Returns the temporaries that are the result if they hold one partial result: for each the
    buffer of the result, and the number of partial results.

    The kernels that compute these then write to the result, and the one that combines them has
    nothing to do: a partial result begins with the identity, too.
    """
    found: dict[int, tuple[int, int]] = {}
    buffers = {buffer.number: buffer for buffer in program.buffers}
    for k, kernel in enumerate(program.steps):
        if type(kernel) is not Kernel or len(kernel.extents) != kernel.space + 1:
            continue
        pairs = _combined(kernel)
        written = [set(writes(step)) for step in program.steps[:k]]
        used = [reads(step) for step in program.steps]
        for partial, result in pairs.items():
            whole = buffers[partial], buffers[result]
            alone = sum(partial in each for each in used) == 1
            first = not any(result in each for each in (*used[:k], *written))
            temporary = whole[0].kind is BufferKind.TEMPORARY and whole[0].dtype is whole[1].dtype
            if not (alone and first and temporary):
                pairs = {}
                break
        found.update({x: (y, kernel.extents[-1]) for x, y in pairs.items()})
    return found


def _combined(kernel: Kernel) -> dict[int, int]:
    """Returns the buffer of the result for each buffer of partial results, if a kernel does nothing
    but combine these, and one partial result would lie as the result does; else nothing."""
    reduces = {each.names[0]: each for each in kernel.body if type(each) is Reduce}
    stores = [each for each in kernel.body if type(each) is Store]
    found: dict[int, int] = {}
    for store in stores:
        value = store.value
        reduce = reduces.pop(value.args[0], None) if value.op == "name" else None
        load = reduce.values[0] if reduce is not None and len(reduce.values) == 1 else None
        plain = store.each_row and store.combine is None and not store.unordered
        if load is None or load.op != "load" or not plain:
            return {}
        partial, address = load.args
        axes = address.coefficients[: kernel.space]
        own = Affine((*axes, 0), address.start)
        if address.dynamic or store.address != own or store.value.dtype is not load.dtype:
            return {}
        found[partial] = store.buffer
    whole = len(found) == len(stores) == len(set(found.values())) and not reduces
    return found if whole and len(kernel.body) == 2 * len(stores) else {}
