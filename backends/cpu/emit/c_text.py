"""The records of the C printer: a program's C text, and the data for calling it."""

from __future__ import annotations

import attrs

from aotlite.backends.loops.program import BufferKind, Extern, LoopProgram, ProgramBuffer


@attrs.frozen
class PrintedC:
    """The C text of a program."""

    text: str
    segments: tuple[str | Extern, ...]
    """In order: the names of exported functions `int name(void **slots, const al_runtime *)`, and
    the externs that Python calls between them. A function returns 1 if a check failed, else 0."""
    slots: tuple[int, ...]
    """The buffer of each slot: inputs, outputs, constants. One more slot points to the arena."""
    nanoseconds: float
    """The estimated time on one thread."""
    kernels: int = 0
    """The number of kernels."""
    different: int = 0
    """The number of kernels of the text: those that are alike count once (REG-2)."""


@attrs.frozen
class ProgramText:
    """A program as C text, and the data for calling it."""

    program: LoopProgram
    """The program as its caller sees it. From the cache it has no steps, and no temporaries but
    those that are held."""
    printed: PrintedC
    arena_bytes: int
    held: tuple[ProgramBuffer, ...]
    """The temporaries that are arrays of each call, not parts of the arena."""

    @property
    def given(self) -> LoopProgram:
        """The program as it is printed: held temporaries are outputs, which a caller passes."""
        numbers = {buffer.number for buffer in self.held}
        if not numbers:
            return self.program
        buffers = [
            attrs.evolve(b, kind=BufferKind.OUTPUT) if b.number in numbers else b
            for b in self.program.buffers
        ]
        return attrs.evolve(self.program, buffers=tuple(buffers))
