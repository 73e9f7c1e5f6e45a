"""Each kernel of many programs alone: the memory before it, and the right memory after it.

Programs go through all passes for a GPU and then through the interpreter, step by step. What a
kernel finds before it and leaves behind it is a case; equal kernels are one case. Many cases are
printed as one text, since most of the time is the compiler's.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from aotlite.backends.c_family.c_types import SUPPORTED
from aotlite.backends.cuda.driver import nvrtc
from aotlite.backends.cuda.emit.cuda_program import print_units
from aotlite.backends.cuda.passes.device_passes import improved_for
from aotlite.backends.cuda.target import Target
from aotlite.backends.loops.backend import program_of
from aotlite.backends.loops.interpreter.program_interpreter import allocated, run_step
from aotlite.backends.loops.program import (
    BufferKind,
    GivenUp,
    Kernel,
    LoopProgram,
    loads_of,
    values_of,
    writes,
)
from aotlite.ir.errors import AotliteError
from aotlite.ir.graph import Graph
from aotlite.ir.scalar.expression import walk
from tests.backends.cpu.helpers.printing import same_bits
from tests.backends.cuda.helpers.hosted import ORDERS, build, call, in_place, placed

Named = tuple[str, Graph | LoopProgram, Any]
TARGETS = (Target("sm_90", 132, shared=227 << 10), Target("sm_80", 2, shared=163 << 10))
"""A large GPU, and one of so few multiprocessors that small programs are divided as large ones."""
MOST_POINTS = 1 << 14
MANY = 60
"""Kernels of one text: more of them in one unit do not compile faster."""


@attrs.frozen(eq=False)
class Case:
    """A kernel, a program of it alone, and memory before and after."""

    name: str
    program: LoopProgram
    before: dict[int, Any]
    after: dict[int, Any]

    @property
    def kernel(self) -> Kernel:
        (step,) = self.program.steps
        assert type(step) is Kernel
        return step

    def shift(self, number: int, order: int) -> int:
        """Elements before a buffer: an input may begin anywhere."""
        (kind,) = [b.kind for b in self.program.buffers if b.number == number]
        return order if kind is BufferKind.INPUT else 0


def key_of(kernel: Kernel, program: LoopProgram) -> str:
    """The identity of a kernel, without its name."""
    numbers = _numbers(kernel)
    sizes = [
        (b.number, b.dtype.name, b.size, b.kind) for b in program.buffers if b.number in numbers
    ]
    return f"{attrs.evolve(kernel, name='')!s} {kernel.space} {kernel.vector} {sizes}"


def _numbers(kernel: Kernel) -> set[int]:
    return {load.args[0] for load in loads_of(kernel)} | writes(kernel)


def is_real(kernel: Kernel) -> bool:
    """Whether it computes with dtypes that the printer has arithmetic for."""
    roots = [value for each in kernel.body for value in values_of(each)]
    return all(scalar.dtype in SUPPORTED for scalar in walk(roots))


def cases_of(
    name: str, program: LoopProgram, inputs: Sequence[Any], seen: set[str], share: int
) -> Iterator[Case]:
    """The new kernels of a program whose digest is a multiple of `share`."""
    wanted = {
        k
        for k, step in enumerate(program.steps)
        if type(step) is Kernel and _is_wanted(step, program, seen, share)
    }
    if not wanted:
        return
    memory = allocated(program)
    for buffer in program.buffers:
        if buffer.kind not in (BufferKind.INPUT, BufferKind.CONSTANT):
            memory[buffer.number][...] = 0
    numbers = [number for number in program.inputs if number is not None]
    memory.update(zip(numbers, inputs, strict=True))
    for k, step in enumerate(program.steps[: max(wanted) + 1]):
        before = _copied(step, memory) if k in wanted else {}
        try:
            run_step(step, memory)
        except GivenUp:
            return
        if k in wanted:
            assert type(step) is Kernel
            buffers = tuple([b for b in program.buffers if b.number in before])
            alone = LoopProgram(f"{name}, step {k}", buffers, (step,), (), ())
            yield Case(alone.name, alone, before, _copied(step, memory))


def _copied(kernel: Any, memory: dict[int, Any]) -> dict[int, Any]:
    return {number: np.array(memory[number]) for number in _numbers(kernel)}


def _is_wanted(kernel: Kernel, program: LoopProgram, seen: set[str], share: int) -> bool:
    if not is_real(kernel) or not kernel.body or 0 in kernel.extents[: kernel.space]:
        return False
    if np.prod(kernel.extents) > MOST_POINTS:
        return False
    key = key_of(kernel, program)
    if key in seen or zlib.crc32(key.encode()) % share:
        return False
    seen.add(key)
    return True


def cases_of_graphs(graphs: Iterable[Named], target: Target, share: int = 1) -> Iterator[Case]:
    """The kernels of graphs. Each comes with arrays for its inputs, or with None: small numbers."""
    seen: set[str] = set()
    for name, graph, arrays in graphs:
        before = program_of(graph) if isinstance(graph, Graph) else graph
        program = improved_for(before, target)
        if arrays is None:
            inputs = small_inputs(program)
        elif isinstance(graph, Graph):
            inputs = flat_inputs(graph, program, arrays)
        else:
            inputs = arrays
        yield from cases_of(name, program, inputs, seen, share)


def flat_inputs(graph: Graph, program: LoopProgram, arrays: Sequence[Any]) -> list[Any]:
    """Memory of the inputs' geometry, with these values."""
    from tests.backends.loops.test_lowered_ops import flat

    metas: list[Any] = [node.meta for node in graph.placeholders]
    every = zip(metas, arrays, program.inputs, strict=True)
    return [flat(meta, array) for meta, array, number in every if number is not None]


def small_inputs(program: LoopProgram) -> list[Any]:
    """Small numbers; integers are 0 or 1, which are positions that are there."""
    from tests.backends.loops.test_fused_graphs import inputs_of

    return [array for array in inputs_of(program) if array is not None]


def batches(cases: Iterable[Case], count: int = MANY) -> Iterator[list[Case]]:
    """Yields the cases in batches of `count`."""
    batch: list[Case] = []
    for case in cases:
        batch.append(case)
        if len(batch) == count:
            yield batch
            batch = []
    if batch:
        yield batch


def check(cases: Sequence[Case], target: Target, folder: Path, *flags: str) -> list[str]:
    """The faults of kernels: wrong bits on fibers in three orders, or reports."""
    programs = {f"k{k}": case.program for k, case in enumerate(cases)}
    text, launches = print_units(programs, target)
    every = [launch for found in launches.values() for launch in found]
    library = build(text, every, folder, *flags)
    wrong = []
    for case, found in zip(cases, launches.values(), strict=True):
        (launch,) = found
        for order in ORDERS:
            arrays = [placed(case.before[n], case.shift(n, order)) for n in launch.buffers]
            # Reversed, a block computes many rows; else it computes one.
            most = 2 if order == 1 else launch.blocks
            try:
                both = in_place(case.kernel)
                call(library, launch, arrays, order, min(launch.blocks, most), both)
            except AotliteError as error:
                wrong.append(f"{case.name}, order {order}: {error}\n{case.kernel}")
                break
            pairs = zip(launch.buffers, arrays, strict=True)
            if not all(same_bits(case.after[number], array) for number, array in pairs):
                wrong.append(f"{case.name}, order {order}: other bits\n{case.kernel}")
                break
    return wrong


def quick_flags() -> tuple[str, ...]:
    """Flags with which NVRTC takes and refuses the same texts in half the time: what it spends on
    optimisations."""
    can = int(nvrtc.version().split(".")[0]) >= 13
    return (*nvrtc.FLAGS, "--Ofast-compile=max") if can else nvrtc.FLAGS


def check_cubins(
    cases: Sequence[Case],
    targets: Sequence[Target] = TARGETS,
    flags: tuple[str, ...] = nvrtc.FLAGS,
) -> None:
    """NVRTC takes the text of kernels for each architecture, printed for it."""
    programs = {f"k{k}": case.program for k, case in enumerate(cases)}
    for target in targets:
        text, launches = print_units(programs, target)
        cubin = nvrtc.compile_cubin(text, target.architecture, flags)
        names = [launch.name for found in launches.values() for launch in found]
        assert [] == [name for name in names if f".text.{name}\0".encode() not in cubin]
