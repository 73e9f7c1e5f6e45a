"""The kernels of a program as one CUDA C++ text, and the grid of each launch.

    extern "C" __global__ void __launch_bounds__(256) kernel_0(const m_f32 *__restrict__ b0, ...)

The text is for NVRTC, and for the emulation on a CPU (`host.h`). Steps other than kernels, and
complex dtypes, are refused. Input: a `LoopProgram` of kernels; output: `PrintedKernels`. Spec:
`specs/cuda_printer.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from aotlite.backends.c_family.c_types import DIVISIONS, SUPPORTED, memory_type
from aotlite.backends.c_family.scalar_text import FunctionTexts, indented
from aotlite.backends.cuda.emit.cuda_kernel import body_of
from aotlite.backends.cuda.emit.cuda_types import BFLOAT16, FLOAT16, PRELUDE
from aotlite.backends.cuda.emit.reductions.vector_access import VECTORS
from aotlite.backends.cuda.target import H100, Target
from aotlite.backends.loops.program import (
    Kernel,
    LoopProgram,
    ProgramBuffer,
    Step,
    loads_of,
    values_of,
    writes,
)
from aotlite.ir import dtypes
from aotlite.ir.errors import BackendError
from aotlite.ir.scalar.expression import walk

MOST_BLOCKS = 2**31 - 1
"""The most blocks of a grid. Kernels loop by whole grids, so that a smaller grid is right, too."""


@attrs.frozen
class Launch:
    """The launch of a kernel: its grid, and the buffers whose addresses are its arguments."""

    name: str
    buffers: tuple[int, ...]
    blocks: int
    threads: int
    shared: int = 0
    """Bytes of dynamic shared memory."""


@attrs.frozen
class PrintedKernels:
    """The CUDA C++ text of a program, and the launches of its kernels in order."""

    text: str
    launches: tuple[Launch, ...]


def print_program(
    program: LoopProgram, stem: str = "kernel", target: Target = H100
) -> PrintedKernels:
    """Returns the CUDA C++ text of a program, whose buffers must not share memory.

    Raises BackendError for a step that is no kernel, and for complex numbers.
    """
    text, found = print_units({stem: program}, target)
    return PrintedKernels(text, found[stem])


def print_units(
    programs: Mapping[str, LoopProgram], target: Target = H100
) -> tuple[str, dict[str, tuple[Launch, ...]]]:
    """Returns one text for several programs, and the launches of each; keys are the stems of the
    kernels' names."""
    library, lines = FunctionTexts(), []
    launches: dict[str, tuple[Launch, ...]] = {}
    for stem, program in programs.items():
        buffers = {buffer.number: buffer for buffer in program.buffers}
        library.dtypes |= {buffer.dtype for buffer in program.buffers}
        found = []
        for k, step in enumerate(program.steps):
            kernel = _kernel(step)
            if 0 in kernel.extents[: kernel.space] or not kernel.body:
                continue
            text, launch = _printed(kernel, buffers, f"{stem}_{k}", library, target)
            lines += text
            found.append(launch)
        launches[stem] = tuple(found)
    return "\n".join([*_head(library), *indented(lines), ""]), launches


def _kernel(step: Step) -> Kernel:
    """Returns the step, if it is a kernel of real dtypes. Raises BackendError otherwise."""
    if type(step) is not Kernel:
        kind = type(step).__name__
        raise BackendError(f"cuda: a step is {kind}, expected kernels alone; run it on the CPU")
    for scalar in walk([value for each in step.body for value in values_of(each)]):
        if scalar.dtype not in SUPPORTED:
            raise BackendError(
                f"cuda: kernel {step.name} computes with {scalar.dtype}, expected a real dtype"
            )
    return step


def _printed(
    kernel: Kernel,
    buffers: Mapping[int, ProgramBuffer],
    name: str,
    library: FunctionTexts,
    target: Target,
) -> tuple[list[str], Launch]:
    numbers = sorted({load.args[0] for load in loads_of(kernel)} | writes(kernel))
    code = body_of(kernel, buffers, library, target)
    parameters = ", ".join([_parameter(buffers[n], n in writes(kernel)) for n in numbers])
    bounds = f"{code.threads}, {code.resident}" if code.resident else str(code.threads)
    head = f'extern "C" __global__ void __launch_bounds__({bounds}) {name}({parameters})'
    notes = [f"/* {line} */" for line in str(kernel).splitlines()]
    launch = Launch(name, tuple(numbers), min(code.blocks, MOST_BLOCKS), code.threads, code.shared)
    return [*notes, head, "{", *code.lines, "}"], launch


def _parameter(buffer: ProgramBuffer, written: bool) -> str:
    const = "" if written else "const "
    return f"{const}{memory_type(buffer.dtype)} *__restrict__ b{buffer.number}"


def _head(library: FunctionTexts) -> Iterable[str]:
    lines = [PRELUDE, DIVISIONS, VECTORS]
    if dtypes.float16 in library.dtypes:
        lines.append(FLOAT16)
    if dtypes.bfloat16 in library.dtypes:
        lines.append(BFLOAT16)
    functions = [line for text in library.texts.values() for line in text.split("\n")]
    return [*lines, *indented(functions)]
