"""The NumPy interpreter of the loop IR: the oracle of printers, and what runs without a compiler.

Sums are formed in the order that the IR prescribes. A value that was loaded from beside its buffer
may be made, since NumPy computes both sides of a `where`, but not used: that raises. Temporary
memory is there from its first use to its last. Spec: `specs/loops.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np

from aotlite.backends.loops.evaluation import apply, evaluate
from aotlite.backends.loops.kernel_run import KernelRun, Memory, nothing, strided
from aotlite.backends.loops.partials import reduced, scanned
from aotlite.backends.loops.program import (
    Buffer,
    Check,
    Extern,
    Gemm,
    GivenUp,
    Kernel,
    Kind,
    Placed,
    Program,
    Step,
    Window,
    happens,
    reads,
    slots,
    writes,
)
from aotlite.ir.arrays import NUMPY

__all__ = [
    "Abandoned",
    "KernelRun",
    "Memory",
    "allocated",
    "apply",
    "evaluate",
    "interpreted",
    "reduced",
    "run_extern",
    "run_program",
    "run_step",
    "scanned",
    "strided",
]

Array = Any
Stop = Callable[[], bool]
"""Whether somebody else has what computes the program."""


class Abandoned(Exception):
    """A run has stopped before it changed anything but its outputs. Never leaves a backend."""


def _never() -> bool:
    return False


def run_program(program: Program, inputs: Sequence[Array | None]) -> Memory:
    """Runs the steps on flat arrays of the inputs; the memory of all buffers afterwards."""
    memory = allocated(program)
    for number, array in zip(program.inputs, inputs, strict=True):
        if number is not None:
            memory[number] = array
    for step in program.steps:
        run_step(step, memory)
    return memory


def interpreted(program: Program, stop: Stop = _never) -> Callable[[list[Array]], bool]:
    """What computes a program on the arrays of its `slots`: inputs that are read, and outputs.

    Gives whether a check has given the program up. Where `stop` says so, and neither an input was
    written nor an effect has happened, a run raises Abandoned.
    """
    numbers = [buffer.number for buffer in slots(program)]
    constants = allocated(program, (Kind.CONSTANT,))
    plan = _plan(program)

    def execute(arrays: list[Array]) -> bool:
        memory = dict(zip(numbers, [array.reshape(-1) for array in arrays], strict=True))
        memory |= constants
        try:
            for step in plan:
                step.run(memory, stop)
        except GivenUp:
            return True
        return False

    return execute


@attrs.frozen
class _Planned:
    """A step, which temporaries it is the first to use and the last, and whether the program may
    be left before it is over."""

    step: Step
    begin: tuple[Buffer, ...]
    end: tuple[int, ...]
    may_stop: bool

    def run(self, memory: Memory, stop: Stop) -> None:
        """Runs the step on the memory, which has the temporaries of later steps alone after it."""
        for buffer in self.begin:
            memory[buffer.number] = np.empty(buffer.size, buffer.dtype.numpy)

        def between() -> None:
            if stop():
                raise Abandoned

        run_step(self.step, memory, between if self.may_stop else nothing)
        for number in self.end:
            del memory[number]


def _plan(program: Program) -> list[_Planned]:
    used = [reads(step) | writes(step) for step in program.steps]
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, numbers in enumerate(used):
        for number in numbers:
            first.setdefault(number, place)
            last[number] = place
    inputs = {buffer.number for buffer in program.buffers if buffer.kind is Kind.INPUT}
    plan: list[_Planned] = []
    may_stop = True
    for place, step in enumerate(program.steps):
        may_stop = may_stop and not happens(step) and not writes(step) & inputs
        own = [b for b in program.buffers if b.kind is Kind.TEMPORARY and b.number in used[place]]
        begin = tuple([b for b in own if first[b.number] == place])
        end = tuple([b.number for b in own if last[b.number] == place])
        plan.append(_Planned(step, begin, end, may_stop))
    return plan


def allocated(program: Program, kinds: Sequence[Kind] = tuple(Kind)) -> Memory:
    """Memory for the buffers of these kinds, never for the inputs."""
    memory: Memory = {}
    for buffer in program.buffers:
        if buffer.kind is Kind.INPUT or buffer.kind not in kinds:
            continue
        if buffer.kind is Kind.CONSTANT:
            memory[buffer.number] = buffer.value
        else:
            memory[buffer.number] = np.empty(buffer.size, buffer.dtype.numpy)
    return memory


def run_step(step: Step, memory: Memory, between: Callable[[], None] = nothing) -> None:
    """Runs one step on the memory. `between` is called before it, and before each operation on a
    block of points."""
    between()
    match step:
        case Kernel():
            NUMPY.quiet(KernelRun(step, memory, between).run)
        case Gemm():
            NUMPY.quiet(_run_gemm, step, memory)
        case Extern():
            run_extern(step, memory)
        case Check():
            if memory[step.buffer][0]:
                raise GivenUp


def _run_gemm(step: Gemm, memory: Memory) -> None:
    a = _matrix(step.a, step, (step.m, step.k), memory)
    b = _matrix(step.b, step, (step.k, step.n), memory)
    c = _matrix(step.c, step, (step.m, step.n), memory)
    if c.flags.c_contiguous:
        np.matmul(a, b, out=c)
    else:
        c[...] = np.matmul(a, b)


def _matrix(window: Window, step: Gemm, shape: tuple[int, int], memory: Memory) -> Array:
    strides = (*window.batch, window.row, window.column)
    return strided(memory[window.buffer], window.start, (*step.batch, *shape), strides)


def run_extern(step: Extern, memory: Memory) -> None:
    """Runs an op by its own kernel."""

    def array(value: Any) -> Any:
        if type(value) is Placed:
            meta = value.meta
            return strided(memory[value.buffer], value.start, meta.shape, meta.stride)
        if type(value) is tuple and value and type(value[0]) is Placed:
            return tuple([array(item) for item in value])
        return value

    library = NUMPY
    results = library.quiet(step.op.kernel, library, step.meta, *map(array, step.args))
    if type(step.meta) is not tuple:
        results = (results,)
    for placed, result in zip(step.results, results, strict=True):
        if placed is not None:
            library.copy(array(placed), result)
