"""A program of symbolic sizes as compiled code: printed and compiled once, run at every size.

    graph with symbols -> program -> C text with names of sizes -> library
    at(sizes)          -> table of sizes, places of temporaries -> a launch of the same library

What a call needs is made of numbers: buffers, the plan of the arena, arguments of externs. Input: a
pure graph with symbols. Output: a `SizedRun`. Spec: `specs/sized_kernels.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import attrs
import numpy as np

from aotlite.backends.c_family.size_names import ArenaPlace, MostChunks, SizeNames
from aotlite.backends.calling_convention import Run
from aotlite.backends.cpu.compiled_program import execution, held_temporaries
from aotlite.backends.cpu.emit.c_program import Work, most_chunks, print_sized
from aotlite.backends.cpu.emit.c_text import PrintedC, ProgramText
from aotlite.backends.cpu.runtime.result_memory import RESULTS
from aotlite.backends.loops.arena import ArenaPlan, planned
from aotlite.backends.loops.program import Extern, LoopProgram, ProgramBuffer
from aotlite.backends.loops.program_run import Kernels, ProgramRun
from aotlite.backends.loops.program_sizes import SizesAt
from aotlite.backends.native.libraries.library_loading import load_c
from aotlite.backends.native.libraries.shared_library import SharedLibrary
from aotlite.ir.graph import Graph
from aotlite.ir.symbols.proving import Demands, proving
from aotlite.ir.symbols.table import SymbolTable


@attrs.frozen
class SizedText:
    """The C text of a program of symbolic sizes, and the data for calling it."""

    program: LoopProgram
    printed: PrintedC
    entries: tuple[object, ...]
    """The table that a call passes: sizes, and the places of temporaries."""
    work: Work
    held: tuple[ProgramBuffer, ...]
    """The temporaries that are arrays of each call."""


def sized_text(
    program: LoopProgram, table: SymbolTable | None, demands: Demands | None = None
) -> SizedText:
    """Returns the C text; `demands` are those of the program. Raises Unproved where no text is
    right for all sizes that meet them."""
    names, held = SizeNames(), held_temporaries(program)
    text = ProgramText(program, PrintedC("", (), (), 0.0), 0, held)
    with proving(table, names.spell, demands):
        printed, work = print_sized(text.given, names)
    return SizedText(program, printed, tuple(names.entries), work, held)


class SizedProgramRun:
    """A compiled program of symbolic sizes."""

    def __init__(self, graph: Graph, text: SizedText, *, contract: bool) -> None:
        self.graph, self.text = graph, text
        self.program = text.program
        self.library: SharedLibrary | None = None
        if any(type(each) is str for each in text.printed.segments):
            load = partial(load_c, contract=contract, libraries=False)
            self.library = load(text.printed.text, graph.name)

    def at(self, sizes: Mapping[str, int]) -> Run:
        """Returns the run for these sizes of the symbols."""
        put, text = SizesAt(sizes), self.text
        program = put.outline(self.program)
        held = tuple(map(put.buffer, text.held))
        outline = ProgramText(program, self._printed(put), 0, held)
        plan = planned(outline.given, in_place=False)
        table = np.array([_number(entry, put, plan) for entry in text.entries], np.int64)
        outline = attrs.evolve(outline, arena_bytes=plan.size)
        execute = execution(outline, library=self.library, table=table)
        run = ProgramRun(put.graph(self.graph), program, execute, RESULTS.allocator)
        run.kernels = Kernels(lambda: put.program(self.program), text.printed.text)
        return run

    def _printed(self, put: SizesAt) -> PrintedC:
        """Returns the record of the text at these sizes."""
        printed = self.text.printed
        segments = [put.extern(x) if type(x) is Extern else x for x in printed.segments]
        nanoseconds = printed.nanoseconds + sum([put.put(n) * each for n, each in self.text.work])
        return attrs.evolve(printed, segments=tuple(segments), nanoseconds=nanoseconds)


def _number(entry: object, put: SizesAt, plan: ArenaPlan) -> object:
    """Returns what an entry of the table is at these sizes."""
    if isinstance(entry, ArenaPlace):
        return plan.offsets.get(entry.buffer, 0)
    if isinstance(entry, MostChunks):
        return most_chunks(put.put(entry.units), put.put(entry.picoseconds) / 1000)
    return put.put(entry)
