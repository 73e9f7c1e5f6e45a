"""The NumPy interpreter of the loop IR: the oracle of printers, and the backend without a compiler.

Sums have the order that the IR prescribes, so that compiled kernels must agree bit for bit. NumPy
computes both branches of a `where`: a value loaded from outside its buffer may exist, but raises
where it is used. Temporaries are allocated at their first use and dropped after their last. While a
compiler works in the background, a run can be abandoned as soon as the compiled program is there.
Spec: `specs/loops.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from types import EllipsisType
from typing import Any

import attrs
import numpy as np

from aotlite.backends.loops.interpreter.kernel_interpreter import (
    KernelRun,
    Memory,
    nothing,
    strided,
)
from aotlite.backends.loops.interpreter.partial_reductions import reduced, scanned
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
from aotlite.ir.arrays import NUMPY, Array, ArrayBackend
from aotlite.ir.errors import BUILTIN, in_words
from aotlite.ir.scalar.evaluation import apply, evaluate
from aotlite.ir.scalar.expression import walk

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

_OF_AN_EXTERN = 16
"""Estimated operations of an extern op for each number that it reads or writes. A sort or a
convolution takes more."""
_PANEL = 1 << 26
"""Multiplications of one part of a matrix product, some milliseconds; between parts a run can be
abandoned."""
Stop = Callable[[], bool]
"""Returns whether to abandon the run, since the compiled program is ready. It may wait for that."""
Warn = Callable[[int], None]
"""Gets the estimated operations that follow, and that cannot be abandoned or would be repeated."""


class Abandoned(Exception):
    """Raised by a run that stops before it has written anything but its outputs. Never leaves a
    backend, which then runs the compiled program."""


def _never() -> bool:
    return False


def _nobody(operations: int) -> None:
    """Ignores the estimate."""


def run_program(program: LoopProgram, inputs: Sequence[Any]) -> Memory:
    """Runs the steps on flat arrays of the inputs. Returns the memory of all buffers."""
    memory = allocated(program)
    for number, array in zip(program.inputs, inputs, strict=True):
        if number is not None:
            memory[number] = array
    for step in program.steps:
        run_step(step, memory)
    return memory


def interpreted(program: LoopProgram, stop: Stop = _never) -> Callable[..., bool]:
    """Returns a function that runs a program on the arrays of its `slots`: inputs, then outputs.

    The function returns whether a `ValueCheck` failed. It raises Abandoned when `stop()` is true,
    unless an input was written or an effect has happened. Callers may pass `stop` and `warn` with
    each run. Before an extern, and before the first step that cannot be abandoned, `warn` gets the
    estimated operations, and `stop` is asked once more.
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
    """A step and its part of the plan."""

    step: Step
    begin: tuple[ProgramBuffer, ...]
    """Temporaries that are allocated before the step."""
    end: tuple[int, ...]
    """Temporaries that are dropped after the step."""
    may_stop: bool
    """Whether the run may be abandoned during the step."""
    at_once: int = 0
    """Estimated operations from here on that cannot be interrupted; 0: nothing to warn of."""

    def run(self, memory: Memory, stop: Stop, warn: Warn) -> None:
        """Runs the step: allocates its first temporaries, and drops those that end with it."""
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
    """Returns the buffers that a result of the extern fills: its array becomes their memory."""
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
    """Returns the estimated number of operations of a step."""
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
    """Returns memory for the buffers of these kinds, except for inputs."""
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
    """Runs one step. `between` is called before it and before each operation on a block."""
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


def _panels(step: Gemm) -> Iterator[tuple[EllipsisType | tuple[int, ...], slice, slice]]:
    """Yields the parts of a matrix product as (batch, rows, columns), of about `_PANEL`
    multiplications each."""
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
    """Writes the product of two arrays of matrices into `c`."""
    if c.flags.c_contiguous:
        np.matmul(a, b, out=c)
    else:
        c[...] = np.matmul(a, b)


def _matrix(window: MatrixWindow, step: Gemm, shape: tuple[int, int], memory: Memory) -> Array:
    strides = (*window.batch, window.row, window.column)
    return strided(memory[window.buffer], window.start, (*step.batch, *shape), strides)


def results_of(step: Extern, library: ArrayBackend, args: Sequence[Any]) -> tuple[Any, ...]:
    """The results of an op's own kernel. Raises eager's errors."""
    try:
        found = library.quiet(step.op.kernel, library, step.meta, *args)
    except BUILTIN as error:
        told = in_words(step.op.name, step.args, error)
        if told is error:
            raise
        raise told from error
    return found if type(step.meta) is tuple else (found,)


def run_extern(step: Extern, memory: Memory) -> None:
    """Runs an op by its own kernel."""

    def array(value: object) -> Any:
        if type(value) is Placed:
            meta = value.meta
            return strided(memory[value.buffer], value.start, meta.shape, meta.stride)
        if type(value) is tuple and value and type(value[0]) is Placed:
            return tuple([array(item) for item in value])
        return value

    library = NUMPY
    results = results_of(step, library, [array(value) for value in step.args])
    for placed, result in zip(step.results, results, strict=True):
        if placed is None:
            continue
        if placed.buffer in memory:
            library.copy(array(placed), result)
        else:  # the result is the whole buffer, which was not allocated
            memory[placed.buffer] = library.adopt(result, placed.meta).reshape(-1)
