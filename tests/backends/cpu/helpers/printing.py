"""Programs printed as C, many in one text, compiled, and run beside the interpreter."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aotlite.backends.cpu.emit.c_program import print_units
from aotlite.backends.cpu.emit.c_text import PrintedC
from aotlite.backends.loops.arena import planned
from aotlite.backends.loops.interpreter.program_interpreter import allocated, run_step
from aotlite.backends.loops.program import BufferKind, LoopProgram, ProgramBuffer
from aotlite.backends.native.libraries.library_loading import load_c

Memory = dict[int, Any]

RUNTIME = """
static void in_turn(void (*task)(void *context, i64 chunk), void *context, i64 chunks)
{
    for (i64 chunk = chunks; chunk--;) task(context, chunk);
}
#define PRODUCT(name, type) \\
    static void name(const al_product *p, type alpha, const type *a, const type *b, type beta, \\
                     type *c) \\
    { \\
        for (i64 g = 0; g < p->extents[0] * p->extents[1] * p->extents[2] * p->extents[3]; ++g) { \\
            i64 rest = g, at_a = 0, at_b = 0, at_c = 0; \\
            for (int k = 3; k >= 0; --k) { \\
                const i64 i = rest % p->extents[k]; \\
                rest /= p->extents[k]; \\
                at_a += i * p->strides_a[k]; \\
                at_b += i * p->strides_b[k]; \\
                at_c += i * p->strides_c[k]; \\
            } \\
            for (i64 i = 0; i < p->m; ++i) \\
                for (i64 j = 0; j < p->n; ++j) { \\
                    type sum = 0; \\
                    for (i64 k = 0; k < p->k; ++k) \\
                        sum += a[at_a + (p->transpose_a ? k * p->lda + i : i * p->lda + k)] \\
                             * b[at_b + (p->transpose_b ? j * p->ldb + k : k * p->ldb + j)]; \\
                    type *to = c + at_c + i * p->ldc + j; \\
                    *to = alpha * sum + (beta ? beta * *to : 0); \\
                } \\
        } \\
    }
PRODUCT(small_sgemm, f32)
PRODUCT(small_dgemm, f64)
int call_with(int (*run)(void **, const al_runtime *), void **slots, i32 threads)
{
    const al_runtime runtime = {in_turn, threads, 0, 0, small_sgemm, small_dgemm};
    return run(slots, &runtime);
}
"""
"""A runtime of one thread that claims to have more, and takes chunks from the end."""


class Compiled:
    """Several programs in one library."""

    def __init__(self, programs: Mapping[str, LoopProgram], **options: Any) -> None:
        self.programs = programs
        self.text, self.printed = print_units(programs)
        self.library = load_c(self.text + RUNTIME, "printed", **options)

    def run(
        self, name: str, inputs: Sequence[Any], threads: int = 2, *, shift: int | None = 0
    ) -> Memory:
        """The memory of inputs and outputs after a program has run on arrays of the inputs.

        Arrays begin `shift` elements behind an address that is a multiple of 64; None: they
        are of no more bytes than they need, and inputs are not copied.
        """
        program, printed = self.programs[name], self.printed[name]
        given = [array if shift is None else placed(array, shift) for array in inputs]
        memory: Memory = dict(zip(numbers_of(program), given, strict=True))
        for buffer in program.buffers:
            if buffer.kind is BufferKind.OUTPUT:
                old = before(buffer)
                memory[buffer.number] = old if shift is None else placed(old, shift)
            elif buffer.kind is BufferKind.CONSTANT:
                memory[buffer.number] = buffer.value
        arena = np.empty(planned(program).size + 64, np.uint8)
        for segment in printed.segments:
            assert isinstance(segment, str)
            self._call(segment, printed, memory, arena, threads)
        return memory

    def _call(
        self, segment: str, printed: PrintedC, memory: Memory, arena: Any, threads: int
    ) -> None:
        addresses = [memory[number].ctypes.data for number in printed.slots]
        slots = (ctypes.c_void_p * (len(addresses) + 1))(*addresses, arena.ctypes.data)
        run = ctypes.cast(getattr(self.library, segment), ctypes.c_void_p)
        assert self.library.call_with(run, slots, ctypes.c_int32(threads)) == 0


def before(buffer: ProgramBuffer) -> Any:
    """The contents of a buffer before any store: no zeros, so that a store without combining
    shows."""
    return np.full(buffer.size, 3, buffer.dtype.numpy)


def placed(array: Any, shift: int) -> Any:
    """A copy of an array that begins `shift` elements after a multiple of 64 bytes."""
    room = np.zeros(array.nbytes + 64 + shift * array.itemsize, np.uint8)
    start = -room.ctypes.data % 64 + shift * array.itemsize
    copy = room[start : start + array.nbytes].view(array.dtype)
    copy[...] = array
    return copy


def same_bits(a: Any, b: Any) -> bool:
    """Whether arrays are equal, with signs of zeros; all NaNs are equal."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind not in "fV":
        return bool(np.array_equal(a, b))
    unsigned = np.dtype(f"u{a.itemsize}")
    same = a.view(unsigned) == b.view(unsigned)
    return bool(np.all(same | ((a != a) & (b != b))))


def numbers_of(program: LoopProgram) -> list[int]:
    """The numbers of the input buffers."""
    return [number for number in program.inputs if number is not None]


def outputs_of(program: LoopProgram) -> list[int]:
    """The numbers of the output buffers."""
    return [buffer.number for buffer in program.buffers if buffer.kind is BufferKind.OUTPUT]


def interpreted(program: LoopProgram, inputs: Sequence[Any]) -> Memory:
    """The memory after the interpreter has run a program."""
    memory = allocated(program)
    for buffer in program.buffers:
        if buffer.kind is not BufferKind.CONSTANT and buffer.kind is not BufferKind.INPUT:
            memory[buffer.number] = before(buffer)
    copies = [array.copy() for array in inputs]
    memory.update(zip(numbers_of(program), copies, strict=True))
    for step in program.steps:
        run_step(step, memory)
    return memory
