"""A loop program as compiled code: printed, compiled, loaded, called.

Externs split a program into segments. A program of one segment is called directly; another one by
`_Segments`, which calls C functions and externs in turn:

    run_0(slots)    kernels before the sort     A temporary that an extern or two segments use is
    sort            NumPy, on arrays            an array of the call; others lie in the arena.
    run_1(slots)    kernels after it

Input: a program after its passes. Output: the `execute` of a `ProgramRun`. Spec:
`specs/cpu_backend.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from aotlite.backends.cpu.emit.c_text import PrintedC, ProgramText
from aotlite.backends.cpu.runtime.launch import Launch, Signature, launcher
from aotlite.backends.loops.interpreter.program_interpreter import run_extern
from aotlite.backends.loops.program import (
    BufferKind,
    Extern,
    LoopProgram,
    ProgramBuffer,
    reads,
    slots,
    writes,
)
from aotlite.backends.loops.program_run import Execute
from aotlite.backends.native.compiler.toolchain import key_of_c
from aotlite.backends.native.libraries.library_loading import load_c
from aotlite.backends.native.libraries.shared_library import SharedLibrary
from aotlite.ir.deferred import deferred

if TYPE_CHECKING:
    from aotlite.backends.cpu.emit import c_program as emit
    from aotlite.backends.loops import arena as memory
else:  # a graph found in the cache needs neither
    emit = deferred("aotlite.backends.cpu.emit.c_program")
    memory = deferred("aotlite.backends.loops.arena")

BRIEF = 20_000
"""Nanoseconds. A program of a shorter estimated time keeps the GIL while it runs."""


def text_of(program: LoopProgram) -> ProgramText:
    """Returns the C text of a program, and the data for calling it."""
    text = ProgramText(program, PrintedC("", (), (), 0.0), 0, held_temporaries(program))
    plan = memory.planned(text.given)
    return attrs.evolve(text, printed=emit.print_program(text.given, plan), arena_bytes=plan.size)


def held_temporaries(program: LoopProgram) -> tuple[ProgramBuffer, ...]:
    """Returns the temporaries that an extern or more than one segment of C uses."""
    segment, users = 0, dict[int, set[int]]()
    for step in program.steps:
        is_extern = type(step) is Extern
        segment += is_extern
        for number in reads(step) | writes(step):
            users.setdefault(number, set()).add(-1 if is_extern else segment)
    return tuple(
        buffer
        for buffer in program.buffers
        if buffer.kind is BufferKind.TEMPORARY
        and (-1 in users.get(buffer.number, ()) or len(users.get(buffer.number, ())) > 1)
    )


def key_of_text(text: ProgramText, *, contract: bool) -> str:
    """Returns the key of a program's library in the cache."""
    return key_of_c(text.printed.text, contract=contract, libraries=False)


def execution(
    text: ProgramText,
    *,
    contract: bool = True,
    library: SharedLibrary | None = None,
    table: np.ndarray | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> Execute:
    """Returns the function that runs a program: finds its library in the cache or compiles it, and
    loads it, unless it is given. `table` has the sizes of a text that serves several. `meanwhile`
    is called while a compiler runs."""
    signature = _signature(text, table)
    launches: list[Launch | Extern] = []
    for segment in text.printed.segments:
        if isinstance(segment, Extern):
            launches.append(segment)
            continue
        if library is None:
            printed = text.printed
            facts = {"kernels": printed.kernels, "different": printed.different}
            name = text.program.name
            library = load_c(
                printed.text,
                name,
                contract=contract,
                libraries=False,
                facts=facts,
                meanwhile=meanwhile,
            )
        launches.append(launcher(library.function(segment), signature))
    if len(launches) == 1 and not isinstance(launches[0], Extern) and not text.held:
        return launches[0]
    return _Segments(text, launches).run


def _signature(text: ProgramText, table: np.ndarray | None) -> Signature:
    constants = [b for b in text.program.buffers if b.kind is BufferKind.CONSTANT]
    tables = [] if table is None else [table]
    is_brief = text.printed.nanoseconds < BRIEF
    return Signature(
        [buffer.dtype.itemsize for buffer in slots(text.given)],
        [*[np.ascontiguousarray(buffer.value) for buffer in constants], *tables],
        text.arena_bytes,
        is_brief,
    )


class _Segments:
    """A program of several segments of C, with externs between them."""

    def __init__(self, text: ProgramText, launches: Sequence[Launch | Extern]) -> None:
        self.text = text
        self.launches = launches
        self.numbers = [buffer.number for buffer in slots(text.given)]
        held = {buffer.number: buffer for buffer in text.held}
        self.own = [(k, held[n]) for k, n in enumerate(self.numbers) if n in held]
        """(index among the arrays, buffer) of the temporaries that are allocated here, in order."""
        self.constants = {
            b.number: b.value for b in text.program.buffers if b.kind is BufferKind.CONSTANT
        }

    def run(self, arrays: list[Any]) -> Any:
        """Runs the program on the arrays of inputs and outputs. Returns a true value where a check
        failed."""
        for place, buffer in self.own:
            arrays.insert(place, np.empty(buffer.size, buffer.dtype.numpy))
        arrays_of: dict[int, Any] = {}
        for launch in self.launches:
            if not isinstance(launch, Extern):
                refused = launch(arrays)
                if refused:
                    return refused
                continue
            if not arrays_of:
                flat = [array.reshape(-1) for array in arrays]
                arrays_of = {**self.constants, **dict(zip(self.numbers, flat, strict=True))}
            run_extern(launch, arrays_of)
        return None
