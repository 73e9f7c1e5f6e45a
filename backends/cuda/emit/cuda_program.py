"""The kernels of a program as one CUDA C++ text, and the grid of each launch.

    extern "C" __global__ void __launch_bounds__(256) kernel_0(const m_f32 *__restrict__ b0, ...)

The text is for NVRTC, and for the emulation on a CPU (`host.h`). Steps other than kernels, and
complex dtypes, are refused. Input: a `LoopProgram` of kernels; output: `PrintedKernels`. Spec:
`specs/cuda_printer.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from aotlite.backends.c_family.c_types import DIVISIONS, SUPPORTED, memory_type
from aotlite.backends.c_family.scalar_text import FunctionTexts, indented
from aotlite.backends.c_family.size_names import SizeNames
from aotlite.backends.cuda.emit.cuda_kernel import body_of
from aotlite.backends.cuda.emit.cuda_types import BFLOAT16, FLOAT16, PRELUDE
from aotlite.backends.cuda.emit.kernel_code import KernelCode, reaches
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
from aotlite.backends.loops.templates.shared_templates import known_instance
from aotlite.ir import dtypes
from aotlite.ir.errors import BackendError
from aotlite.ir.geometry.sizes import Size, minimum
from aotlite.ir.scalar.expression import walk
from aotlite.ir.symbols.floats.size_float import is_bits

MOST_BLOCKS = 2**31 - 1
"""The most blocks of a grid. Kernels loop by whole grids, so that a smaller grid is right, too."""


@attrs.frozen
class Launch:
    """The launch of a kernel: its grid, and the buffers whose addresses are its arguments."""

    name: str
    buffers: tuple[int, ...]
    blocks: Size
    threads: int
    shared: int = 0
    """Bytes of dynamic shared memory."""
    sizes: tuple[Size, ...] = ()
    """The sizes that a kernel for all sizes takes, after the addresses."""
    units: Size = 1
    """What the blocks divide among them. Without any the kernel is not launched."""
    short: tuple[Size, int, Launch] | None = None
    """(points of a row, the most of them, the launch of the kernel for rows that are as short)."""
    step: int = 0
    """The index of the step in its program. Steps with equal kernels launch one function (REG-6).
    """

    def at(self, put: Callable[[Size], int]) -> Launch | None:
        """Returns the launch for numbers in place of symbols; None if there is nothing to do."""
        if not put(self.units):
            return None
        if self.short is not None and put(self.short[0]) <= self.short[1]:
            return self.short[2].at(put)
        sizes = tuple(map(put, self.sizes))
        return attrs.evolve(self, blocks=put(self.blocks), sizes=sizes, units=1, short=None)


@attrs.frozen
class PrintedKernels:
    """The CUDA C++ text of a program, and the launches of its kernels in order."""

    text: str
    launches: tuple[Launch, ...]
    reaches: tuple[Size, ...] = ()
    """What has to be below `NARROW` where a text for all sizes counts in 32 bits."""

    @property
    def functions(self) -> list[Launch]:
        """The launches of all kernels of the text, of which a call takes some."""
        short = [launch.short[2] for launch in self.launches if launch.short is not None]
        return [*self.launches, *short]


def print_program(
    program: LoopProgram, stem: str = "kernel", target: Target = H100
) -> PrintedKernels:
    """Returns the CUDA C++ text of a program, whose buffers must not share memory.

    Raises BackendError for a step that is no kernel, and for complex numbers.
    """
    text, found = print_units({stem: program}, target)
    return PrintedKernels(text, found[stem])


def print_sized(
    program: LoopProgram, names: SizeNames, target: Target, *, wide: bool
) -> PrintedKernels:
    """Returns the text of a program of symbolic sizes, which a launch passes to its kernels.

    `names` spells them. `wide`: numbers of points and sizes have 64 bits, else 32.
    """
    printer = _SizedPrinter(names, target, wide=wide)
    text, found = _units({"kernel": program}, printer)
    launches = tuple([printer.with_sizes(each) for each in found["kernel"]])
    reaches = () if wide else tuple(dict.fromkeys(printer.reaches))
    return PrintedKernels(text, launches, reaches)


def print_units(
    programs: Mapping[str, LoopProgram], target: Target = H100
) -> tuple[str, dict[str, tuple[Launch, ...]]]:
    """Returns one text for several programs, and the launches of each; keys are the stems of the
    kernels' names."""
    return _units(programs, _Printer(target))


def _units(
    programs: Mapping[str, LoopProgram], printer: _Printer
) -> tuple[str, dict[str, tuple[Launch, ...]]]:
    library, lines = printer.library, []
    launches: dict[str, tuple[Launch, ...]] = {}
    for stem, program in programs.items():
        buffers = {buffer.number: buffer for buffer in program.buffers}
        library.dtypes |= {buffer.dtype for buffer in program.buffers}
        found = []
        for k, step in enumerate(program.steps):
            kernel = _kernel(step)
            if 0 in kernel.extents[: kernel.space] or not kernel.body:
                continue
            text, launch = printer.step(kernel, buffers, f"{stem}_{k}")
            lines += text
            found.append(attrs.evolve(launch, step=k))
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


class _Printer:
    """Prints kernels for a target."""

    def __init__(self, target: Target, *, wide: bool = False) -> None:
        self.target, self.wide = target, wide
        self.library = FunctionTexts()
        self.printed: dict[object, tuple[tuple[int, ...], Launch]] = {}
        """For each template and memory of its buffers the first kernel's buffers, and its launch.
        """

    def step(
        self, kernel: Kernel, buffers: Mapping[int, ProgramBuffer], name: str
    ) -> tuple[list[str], Launch]:
        """Returns the function of a kernel, and its launch; no text for a kernel that is one before
        on other buffers."""
        instance = known_instance(kernel)
        own = [buffers[number] for number in instance.buffers]
        key = instance.template, tuple([(b.dtype, b.size, b.kind) for b in own])
        found = self.printed.get(key)
        if found is not None:
            first, launch = found
            numbers = dict(zip(first, instance.buffers, strict=True))
            return [], _on_buffers(launch, numbers)
        lines, launch = self.kernel(kernel, buffers, name)
        self.printed[key] = instance.buffers, launch
        return lines, launch

    def kernel(
        self, kernel: Kernel, buffers: Mapping[int, ProgramBuffer], name: str
    ) -> tuple[list[str], Launch]:
        """Returns the function of a kernel, and its launch."""
        code = body_of(kernel, buffers, self.library, self.target, wide=self.wide)
        notes = [f"/* {line} */" for line in str(kernel).splitlines()]
        lines, launch = self._function(kernel, buffers, name, code)
        if code.short is None:
            return [*notes, *lines], launch
        points, most, short = code.short
        stem, _, number = name.rpartition("_")
        again, other = self._function(kernel, buffers, f"{stem}_short_{number}", short)
        launch = attrs.evolve(launch, short=(points, most, other))
        return [*notes, *lines, *again], launch

    def _function(
        self, kernel: Kernel, buffers: Mapping[int, ProgramBuffer], name: str, code: KernelCode
    ) -> tuple[list[str], Launch]:
        numbers = sorted({load.args[0] for load in loads_of(kernel)} | writes(kernel))
        parameters = [_parameter(buffers[n], n in writes(kernel)) for n in numbers]
        parameters += self.sizes(kernel, code, name)
        bounds = f"{code.threads}, {code.resident}" if code.resident else str(code.threads)
        given = ", ".join(parameters)
        head = f'extern "C" __global__ void __launch_bounds__({bounds}) {name}({given})'
        grid = minimum(code.blocks, MOST_BLOCKS), code.threads, code.shared
        launch = Launch(name, tuple(numbers), *grid, units=code.units)
        return [head, "{", *code.lines, "}"], launch

    def sizes(self, kernel: Kernel, code: KernelCode, name: str) -> list[str]:
        """Returns the parameters for sizes: none."""
        return []


class _SizedPrinter(_Printer):
    """Prints kernels for all sizes, which take sizes as arguments."""

    def __init__(self, names: SizeNames, target: Target, *, wide: bool) -> None:
        super().__init__(target, wide=wide)
        self.names = names
        self.used: dict[str, list[int]] = {}
        self.reaches: list[Size] = []

    def step(
        self, kernel: Kernel, buffers: Mapping[int, ProgramBuffer], name: str
    ) -> tuple[list[str], Launch]:
        """Returns the function of a kernel for all sizes, which has its own, and its launch."""
        return self.kernel(kernel, buffers, name)

    def sizes(self, kernel: Kernel, code: KernelCode, name: str) -> list[str]:
        """Returns the parameters for the sizes that the code names."""
        used = SizeNames.used(code.lines)
        self.used[name] = list(used)
        self.reaches += [*reaches(kernel.extents, kernel.body), code.units]
        entries = list(self.names.entries)
        wide = {k: self.wide or is_bits(entries[k]) for k in used}
        return [f"const {'i64' if wide[k] else 'i32'} {size}" for k, size in used.items()]

    def with_sizes(self, launch: Launch) -> Launch:
        """Returns the launch with the sizes that its kernel takes."""
        entries = list(self.names.entries)
        sizes: list[Any] = [entries[k] for k in self.used[launch.name]]
        self.reaches += [each for each in sizes if not is_bits(each)]
        short = launch.short
        if short is not None:
            short = (*short[:2], self.with_sizes(short[2]))
        return attrs.evolve(launch, sizes=tuple(sizes), short=short)


def _on_buffers(launch: Launch, numbers: Mapping[int, int]) -> Launch:
    """Returns the launch of the same function on other buffers."""
    short = launch.short
    if short is not None:
        short = (*short[:2], _on_buffers(short[2], numbers))
    own = tuple([numbers[number] for number in launch.buffers])
    return attrs.evolve(launch, buffers=own, short=short)


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
