"""The NumPy interpreter of the loop IR: the oracle of printers, and what runs without a compiler.

Sums are formed in the order that the IR prescribes. A value that was loaded from beside its buffer
may be made, since NumPy computes both sides of a `where`, but not used: that raises. Temporary
memory is there from its first use to its last. Spec: `specs/loops.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from aotlite.backends.loops.expr import walk
from aotlite.backends.loops.interpreter.kernel_interpreter import (
    KernelRun,
    Memory,
    nothing,
    strided,
)
from aotlite.backends.loops.interpreter.partial_reductions import reduced, scanned
from aotlite.backends.loops.interpreter.scalar_evaluation import apply, evaluate
from aotlite.backends.loops.program import (
    BufferKind,
    Extern,
    Gemm,
    GivenUp,
    Kernel,
    LoopProgram,
    MatrixWindow,
    Placed,
    ProgramBuffer,
    Step,
    ValueCheck,
    happens,
    operands_of,
    reads,
    slots,
    values_of,
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
_OF_AN_EXTERN = 16
"""Operations on each number that it reads or gives, where a sort or a convolution takes more."""
_PANEL = 1 << 26
"""Products at once, which take some milliseconds, of who may leave."""
Stop = Callable[[], bool]
"""Whether somebody else has what computes the program; it may take its time."""
Warn = Callable[[int], None]
"""Told how many operations follow, roughly, that cannot be left or would be done again."""


class Abandoned(Exception):
    """A run has stopped before it changed anything but its outputs. Never leaves a backend."""


def _never() -> bool:
    return False


def _nobody(operations: int) -> None:
    """Does not mind."""


def run_program(program: LoopProgram, inputs: Sequence[Array | None]) -> Memory:
    """Runs the steps on flat arrays of the inputs; the memory of all buffers afterwards."""
    memory = allocated(program)
    for number, array in zip(program.inputs, inputs, strict=True):
        if number is not None:
            memory[number] = array
    for step in program.steps:
        run_step(step, memory)
    return memory


def interpreted(program: LoopProgram, stop: Stop = _never) -> Callable[..., bool]:
    """What computes a program on the arrays of its `slots`: inputs that are read, and outputs.

    Gives whether a check has given the program up. Where `stop` says so, and neither an input was
    written nor an effect has happened, a run raises Abandoned. A run may be given a `stop` of its
    own, and a `warn`, which is called, and `stop` after it, before what writes an input or has an
    effect, and before an extern.
    """
    numbers = [buffer.number for buffer in slots(program)]
    constants = allocated(program, (BufferKind.CONSTANT,))
    plan = _plan(program)

    def execute(arrays: list[Array], stop: Stop = stop, warn: Warn = _nobody) -> bool:
        memory = dict(zip(numbers, [array.reshape(-1) for array in arrays], strict=True))
        memory |= constants
        try:
            for step in plan:
                step.run(memory, stop, warn)
        except GivenUp:
            return True
        return False

    return execute


@attrs.frozen
class _Planned:
    """A step, which temporaries it is the first to use and the last, and whether the program may
    be left before it is over; how many operations follow at once that it may not be left in."""

    step: Step
    begin: tuple[ProgramBuffer, ...]
    end: tuple[int, ...]
    may_stop: bool
    at_once: int = 0

    def run(self, memory: Memory, stop: Stop, warn: Warn) -> None:
        """Runs the step on the memory, which has the temporaries of later steps alone after it."""
        if self.at_once:
            warn(self.at_once)
            if stop():
                raise Abandoned
        for buffer in self.begin:
            memory[buffer.number] = np.empty(buffer.size, buffer.dtype.numpy)

        def between() -> None:
            if stop():
                raise Abandoned

        run_step(self.step, memory, between if self.may_stop else nothing)
        for number in self.end:
            del memory[number]


def _plan(program: LoopProgram) -> list[_Planned]:
    used = [reads(step) | writes(step) for step in program.steps]
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for place, numbers in enumerate(used):
        for number in numbers:
            first.setdefault(number, place)
            last[number] = place
    inputs = {buffer.number for buffer in program.buffers if buffer.kind is BufferKind.INPUT}
    plan: list[_Planned] = []
    could_stop = True
    for place, step in enumerate(program.steps):
        may_stop = could_stop and not happens(step) and not writes(step) & inputs
        at_once = 0
        if could_stop and not may_stop:
            at_once = sum(map(_operations, program.steps[place:]))
        elif may_stop and type(step) is Extern:
            at_once = _operations(step)
        could_stop = may_stop
        own = [
            b for b in program.buffers if b.kind is BufferKind.TEMPORARY and b.number in used[place]
        ]
        given = _given(step, own) if type(step) is Extern else set()
        begin = tuple([b for b in own if first[b.number] == place and b.number not in given])
        end = tuple([b.number for b in own if last[b.number] == place])
        plan.append(_Planned(step, begin, end, may_stop, at_once))
    return plan


def _given(step: Extern, own: Sequence[ProgramBuffer]) -> set[int]:
    """Of some buffers those that a result fills, whose array becomes their memory."""
    buffers = {buffer.number: buffer for buffer in own if buffer.number not in reads(step)}
    found: set[int] = set()
    for placed in step.results:
        buffer = None if placed is None else buffers.get(placed.buffer)
        if buffer is not None and placed is not None:
            meta = placed.meta
            if (placed.start, meta.numel, meta.dtype) == (0, buffer.size, buffer.dtype):
                found |= {placed.buffer} if meta.contiguous else set()
    return found


def _operations(step: Step) -> int:
    """How many operations on numbers a step takes, roughly."""
    match step:
        case Kernel():
            roots = [value for statement in step.body for value in values_of(statement)]
            return math.prod(step.extents) * len(list(walk(roots)))
        case Gemm():
            return math.prod(step.batch) * step.m * step.n * step.k
        case Extern():
            placed = [*operands_of(step), *[each for each in step.results if each is not None]]
            return _OF_AN_EXTERN * sum([math.prod(each.meta.shape) for each in placed])
    return 0


def allocated(program: LoopProgram, kinds: Sequence[BufferKind] = tuple(BufferKind)) -> Memory:
    """Memory for the buffers of these kinds, never for the inputs."""
    memory: Memory = {}
    for buffer in program.buffers:
        if buffer.kind is BufferKind.INPUT or buffer.kind not in kinds:
            continue
        if buffer.kind is BufferKind.CONSTANT:
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
            NUMPY.quiet(_run_gemm, step, memory, between)
        case Extern():
            run_extern(step, memory)
        case ValueCheck():
            if memory[step.buffer][0]:
                raise GivenUp


def _run_gemm(step: Gemm, memory: Memory, between: Callable[[], None]) -> None:
    a = _matrix(step.a, step, (step.m, step.k), memory)
    b = _matrix(step.b, step, (step.k, step.n), memory)
    c = _matrix(step.c, step, (step.m, step.n), memory)
    if between is nothing:
        _multiply(a, b, c)
        return
    for batch, rows, columns in _panels(step):
        between()
        _multiply(a[batch][..., rows, :], b[batch][..., :, columns], c[batch][..., rows, columns])


def _panels(step: Gemm) -> Iterator[tuple[Any, slice, slice]]:
    """Parts of a product of matrices: batches, rows and columns of at most _PANEL products, where
    there are so few."""
    m, n, k = step.m, step.n, step.k
    if math.prod(step.batch) * m * n * k <= _PANEL:
        yield ..., slice(None), slice(None)
        return
    height = max(_PANEL // max(n * k, 1), min(m, 64))
    width = max(_PANEL // max(height * k, 1), min(n, 64))
    for batch in np.ndindex(*step.batch):
        for row in range(0, m, height):
            for column in range(0, n, width):
                yield batch, slice(row, row + height), slice(column, column + width)


def _multiply(a: Array, b: Array, c: Array) -> None:
    """Writes the product of two arrays of matrices."""
    if c.flags.c_contiguous:
        np.matmul(a, b, out=c)
    else:
        c[...] = np.matmul(a, b)


def _matrix(window: MatrixWindow, step: Gemm, shape: tuple[int, int], memory: Memory) -> Array:
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
        if placed is None:
            continue
        if placed.buffer in memory:
            library.copy(array(placed), result)
        else:  # of which it is the whole
            memory[placed.buffer] = library.adopt(result, placed.meta).reshape(-1)
