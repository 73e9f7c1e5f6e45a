"""Prints the resources of CUDA modules, by the compiler's report, without a GPU or driver.

    python -m benchmarks.cuda_modules

Each program of `benchmarks/gpu.py` is compiled by NVRTC for sm_80 and sm_90. Printed are, for each
graph, how many kernels are launched, the bytes that they move over the least that they must, the
registers of a thread, the bytes that do not fit into them, the threads that a multiprocessor holds
at once, and the seconds of NVRTC. Ends with 1 where a kernel spills, or moves more than 1.05 of the
least.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
from rich import box
from rich.console import Console
from rich.table import Table

import aotlite as al
from aotlite.backends.cuda.driver.kernel_resources import compile_without_spills
from aotlite.backends.cuda.emit.cuda_program import print_program
from aotlite.backends.cuda.memory_traffic import traffic
from aotlite.backends.cuda.passes.device_passes import improved_for
from aotlite.backends.cuda.target import A100, H100, Target
from aotlite.backends.loops.backend import program_of
from aotlite.backends.loops.program import Kernel, LoopProgram
from aotlite.inspect import stages_of
from benchmarks.gpu_programs import FULL, ROWS, Row

MOST_MOVED = 1.05
DTYPES = {"float32": al.float32, "bfloat16": al.bfloat16, "float16": al.float16}


@attrs.frozen
class Measured:
    """The figures of one module."""

    name: str
    architecture: str
    launches: int
    registers: int
    """The registers of a thread in the kernel with the most."""
    spills: int
    """The spilled bytes, stored and loaded, of all kernels."""
    stack: int
    occupancy: float
    """The resident threads of a multiprocessor, for the kernel with the fewest."""
    moved: float
    """The moved bytes, divided by the least possible."""
    seconds: float

    @property
    def is_right(self) -> bool:
        """Whether nothing spills, and few bytes are read more than once."""
        return not self.spills and self.moved <= MOST_MOVED


def programs(row: Row, dtype: Any, size: int, target: Target) -> Iterator[tuple[str, LoopProgram]]:
    """The forward's program, or the backward's."""
    shapes = row.shapes(size)
    args = [al.zeros(shape, dtype=dtype) for shape in shapes]
    if row.labels:
        args[-1] = al.zeros(shapes[-1], dtype=al.int64)
    if row.backward:
        args = [each.requires_grad_() for each in args]
    compiled = al.compile(lambda *given: row.function(al, *given), backend="reference")
    stages = stages_of(compiled, *args)
    graph = stages["backward" if row.backward else "simplify"]
    program = improved_for(program_of(graph), target)
    # Checks of indices are read by the host between kernels.
    kernels = tuple([step for step in program.steps if type(step) is Kernel])
    yield f"{row.name}, {dtype}", attrs.evolve(program, steps=kernels)


def measured(name: str, program: LoopProgram, target: Target) -> Measured:
    """Compiles the program for the target."""
    printed = print_program(program, target=target)
    start = time.perf_counter()
    _, found = compile_without_spills(printed.text, target)
    seconds = time.perf_counter() - start
    used = [(found[each.name], each) for each in printed.launches]
    return Measured(
        name,
        target.architecture,
        len(used),
        max([kernel.registers for kernel, _ in used]),
        sum([kernel.spill_stores + kernel.spill_loads for kernel, _ in used]),
        max([kernel.stack for kernel, _ in used]),
        min([k.occupancy(e.threads, target, getattr(e, "shared", 0)) for k, e in used]),
        traffic(program, target).ratio,
        seconds,
    )


def every(names: Sequence[str], dtypes: Sequence[str], size: int) -> Iterator[Measured]:
    """All modules of these rows."""
    for target in (A100, H100):
        for name in names:
            for dtype in dtypes:
                for label, program in programs(ROWS[name], DTYPES[dtype], size, target):
                    yield measured(label, program, target)


def table_of(found: Sequence[Measured]) -> Table:
    """The modules as a table."""
    table = Table(box=box.MARKDOWN)
    heads = ("module", "for", "launches", "moved", "registers", "spills", "stack", "threads", "s")
    for head in heads:
        table.add_column(head, justify="left" if head in heads[:2] else "right")
    for each in found:
        numbers = (each.launches, f"{each.moved:.3f}", each.registers, each.spills, each.stack)
        occupancy, seconds = f"{each.occupancy:.0%}", f"{each.seconds:.2f}"
        table.add_row(each.name, each.architecture, *map(str, numbers), occupancy, seconds)
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 if all modules are right, else 1."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cuda_modules", description=__doc__)
    parser.add_argument("--rows", default=",".join(ROWS), help="names, by commas")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="names, by commas")
    parser.add_argument("--size", type=int, default=FULL, help="elements, as a power of 2")
    given = parser.parse_args(arguments)
    console = Console(width=110)
    found = list(every(given.rows.split(","), given.dtypes.split(","), given.size))
    console.print(table_of(found))
    wrong = [each for each in found if not each.is_right]
    for each in wrong:
        console.print(f"{each.name} for {each.architecture}: spills or moves too much")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
