"""What printing a program gives, and what it takes to call it."""

from __future__ import annotations

import attrs

from aotlite.backends.loops.program import BufferKind, Extern, LoopProgram, ProgramBuffer


@attrs.frozen
class PrintedC:
    """The C text of a program."""

    text: str
    segments: tuple[str | Extern, ...]
    """In order: the names of exported functions `int name(void **slots, const al_runtime *)`, and
    the externs that Python calls between them. A function returns 1 if a check gave up, else 0."""
    slots: tuple[int, ...]
    """The buffers whose first elements the slots point to, in order: inputs and outputs, then
    constants; the arena comes last."""
    nanoseconds: float
    """How long one thread takes, roughly."""


@attrs.frozen
class ProgramText:
    """A program as C text, and what it takes to call it."""

    program: LoopProgram
    """As who calls it sees it; of one that was remembered the steps are missing, and temporaries
    that are not held."""
    printed: PrintedC
    arena_bytes: int
    held: tuple[ProgramBuffer, ...]
    """Temporaries that are arrays of their own."""

    @property
    def given(self) -> LoopProgram:
        """As it is printed: temporaries that are arrays of their own are outputs."""
        numbers = {buffer.number for buffer in self.held}
        if not numbers:
            return self.program
        buffers = [
            attrs.evolve(b, kind=BufferKind.OUTPUT) if b.number in numbers else b
            for b in self.program.buffers
        ]
        return attrs.evolve(self.program, buffers=tuple(buffers))
