"""Calls of printed kernels, directly or in chunks for the pool of threads, and their cost.

    run_k0_task(&(call){slots, 1}, 0);          short: the caller's thread runs it
    runtime->parallel(run_k0_task, &c, n);      long: n chunks of its units

Spec: `specs/c_printer.md`, `specs/equal_regions.md`.
"""

from __future__ import annotations

import math

from aotlite.backends.c_family.axis_passes import cost
from aotlite.backends.c_family.loop_geometry import LoopGeometry
from aotlite.backends.loops.program import Kernel, loads_of, stores_of, values_of
from aotlite.ir.scalar.expression import walk

INLINE_NANOSECONDS = 8000
"""The estimated time of a kernel above which waking other threads pays."""
CHUNK_NANOSECONDS = 20000
CHUNKS_A_THREAD = 8


def parallel(name: str, units: int, cost_: float) -> list[str]:
    """Returns the call of a kernel: direct if it is short, else in chunks for the thread pool."""
    most = most_chunks(units, cost_)
    if most < 2:
        return [f"{name}_task(&(call){{slots, 1}}, 0);"]
    return [
        "{",
        f"i64 chunks = runtime->threads * {CHUNKS_A_THREAD};",
        f"if (chunks > {most}) chunks = {most};",
        "call c = {slots, runtime->threads > 1 ? chunks : 1};",
        f"if (c.chunks == 1) {name}_task(&c, 0);",
        f"else runtime->parallel({name}_task, &c, c.chunks);",
        "}",
    ]


def parallel_sized(name: str, units: str, chunks: str, needed: str) -> list[str]:
    """Returns the call of a kernel of symbolic units, or time: `chunks` says how many there are at
    most (`most_chunks`), `needed` whether it has anything to do. Without units nothing is called.
    """
    return [
        *([f"if ({needed})"] if needed else []),
        f"if ({chunks} > 1 && runtime->threads > 1) {{",
        f"call c = {{slots, least(runtime->threads * {CHUNKS_A_THREAD}, {chunks})}};",
        f"runtime->parallel({name}_task, &c, c.chunks);",
        f"}} else if ({chunks}) {{",
        f"{name}_on(slots, 0, {units});",
        "}",
    ]


def most_chunks(units: int, cost_: float) -> int:
    """Returns the most chunks of a kernel of so many units and nanoseconds: 0 without units, 1 if
    it is short."""
    if cost_ < INLINE_NANOSECONDS or units < 2:
        return min(units, 1)
    return max(2, min(units, int(cost_ / CHUNK_NANOSECONDS) + 1))


def nanoseconds(kernel: Kernel) -> float:
    """Returns the estimated time of a kernel on one thread, by bytes moved and operations."""
    return math.prod(kernel.extents) * nanoseconds_of_point(kernel)


def nanoseconds_of_point(kernel: Kernel) -> float:
    """Returns the estimated time of one point of a kernel."""
    roots = [value for statement in kernel.body for value in values_of(statement)]
    operations = sum(cost(scalar) for scalar in walk(roots))
    moved = sum(4 for _ in loads_of(kernel)) + 8 * len(stores_of(kernel))
    return 0.02 * operations + 0.03 * moved


def units_of(loops: LoopGeometry) -> tuple[int, int]:
    """Returns the sets of units of a kernel that chunks are made of, and the units of a set."""
    together = loops.together
    return (loops.units // together if together == 1 else loops.sets), together
