"""A program of symbolic sizes as compiled code: printed and compiled once, run at every size.

    graph with symbols -> program -> C text with names of sizes -> library
    at(sizes)          -> table of sizes, places of temporaries -> a launch of the same library

What a call needs is made of numbers: buffers, the plan of the arena, arguments of externs. Input: a
pure graph with symbols. Output: a `SizedRun`. Spec: `specs/sized_kernels.md`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np

from aotlite.backends.c_family.size_names import ArenaPlace, MostChunks, SizeNames
from aotlite.backends.calling_convention import Run
from aotlite.backends.cpu.compiled_program import BRIEF, execution, held_temporaries
from aotlite.backends.cpu.emit.c_program import Work, print_sized
from aotlite.backends.cpu.emit.c_text import PrintedC, ProgramText
from aotlite.backends.cpu.emit.calls.kernel_calls import most_chunks
from aotlite.backends.cpu.runtime.launch import Signature, launcher
from aotlite.backends.cpu.runtime.result_memory import RESULTS
from aotlite.backends.loops.arena import in_order, lives_of, placed, rounded
from aotlite.backends.loops.program import BufferKind, Extern, LoopProgram, ProgramBuffer, slots
from aotlite.backends.loops.program_run import Execute, Kernels, ProgramRun, SizedCall, raise_for
from aotlite.backends.loops.program_sizes import SizesAt
from aotlite.backends.native.libraries.library_loading import load_c
from aotlite.backends.native.libraries.shared_library import SharedLibrary
from aotlite.ir.graph import Graph
from aotlite.ir.graph.symbolic.size_code import SizeCode
from aotlite.ir.symbols.proving import Demands, proving
from aotlite.ir.symbols.table import SymbolTable

MOST_CALLS = 8
"""Python functions that are kept: each is for all sizes with the same answers."""


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
        self.launches = SizedLaunches(text, self.library)
        self._calls: list[SizedCall] = []

    def at(self, sizes: Mapping[str, int]) -> Run:
        """Returns the run for these sizes of the symbols."""
        call = self._call(sizes)
        own, numbers = call.at(sizes)
        return SizedRunAt(self, sizes, call, self.launches.at(sizes, numbers), own)

    def _call(self, sizes: Mapping[str, int]) -> SizedCall:
        """Returns the Python function for these sizes, and others with the same answers."""
        for each in self._calls:
            if each.holds(sizes):
                return each
        given = self.graph, self.program, RESULTS.allocator, self.launches.numbers
        made = SizedCall(*given, Demands(dict(sizes)))
        self._calls.append(made)
        del self._calls[:-MOST_CALLS]
        return made


class SizedRunAt(ProgramRun):
    """A compiled program for one vector of sizes: graph and loops get the numbers when somebody
    looks at them."""

    def __init__(
        self,
        of: SizedProgramRun,
        sizes: Mapping[str, int],
        call: SizedCall,
        execute: Execute,
        own: Sequence[object],
    ) -> None:
        self._of, self._sizes, self._own, self._call = of, sizes, own, call
        self.reads, self.source = call.reads, call.text
        self.use(execute)

    def use(self, execute: Execute) -> None:
        """Replaces the function that computes, from the next call on."""
        self._execute = execute
        self.call = self._call.make(execute, partial(_refused, self._of, self._sizes), *self._own)

    @property
    def execute(self) -> Execute:
        """The function that computes."""
        return self._execute

    @property
    def graph(self) -> Graph:  # type: ignore[override]
        """The graph at these sizes; a new one each time."""
        return SizesAt(self._sizes).graph(self._of.graph)

    @property
    def program(self) -> LoopProgram:  # type: ignore[override]
        """The buffers and outputs at these sizes."""
        return SizesAt(self._sizes).outline(self._of.program)

    @property
    def kernels(self) -> Kernels:
        """The program at these sizes, and the text for all of them."""
        put, whole = SizesAt(self._sizes), self._of.program
        return Kernels(lambda: put.program(whole), self._of.text.printed.text)


def _refused(of: SizedProgramRun, sizes: Mapping[str, int], arrays: list[Any]) -> None:
    put = SizesAt(sizes)
    raise_for(put.graph(of.graph), put.outline(of.program), arrays)


class SizedLaunches:
    """What makes the function that computes: the buffers and the table of each vector of sizes."""

    def __init__(self, text: SizedText, library: SharedLibrary | None) -> None:
        self.text, self.library = text, library
        given = ProgramText(text.program, text.printed, 0, text.held).given
        lives = in_order(lives_of(given))
        self.lives = lives
        self.temporaries = [each for each in given.buffers if each.number in lives]
        places = [each.buffer if type(each) is ArenaPlace else None for each in text.entries]
        self.places = [(k, number) for k, number in enumerate(places) if number is not None]
        constants = [b for b in text.program.buffers if b.kind is BufferKind.CONSTANT]
        self.constants = [np.ascontiguousarray(each.value) for each in constants]
        self.item_sizes = np.array([each.dtype.itemsize for each in slots(given)], np.int64)
        segments = text.printed.segments
        self.alone = segments[0] if len(segments) == 1 and not text.held else None

    def numbers(self, sizes: SizeCode) -> list[str]:
        """Returns the expressions of what `at` takes: the estimated time, sizes of temporaries in
        bytes, and the table without its places."""
        time = [repr(self.text.printed.nanoseconds)]
        time += [f"{sizes.text(units)} * {each!r}" for units, each in self.text.work]
        bytes_of = [sizes.call(_room, b.size, b.dtype.itemsize) for b in self.temporaries]
        entries = [_entry(each, sizes) for each in self.text.entries]
        listed = [f"({' '.join([f'{each},' for each in parts])})" for parts in (bytes_of, entries)]
        return [" + ".join(time), *listed]

    def at(self, sizes: Mapping[str, int], numbers: Sequence[Any]) -> Execute:
        """Returns the function for these sizes."""
        nanoseconds, rooms, entries = numbers
        named = zip(self.temporaries, rooms, strict=True)
        plan = placed(self.lives, {each.number: room for each, room in named}, {})
        table = np.array(entries, np.int64)
        for k, number in self.places:
            table[k] = plan.offsets.get(number, 0)
        if type(self.alone) is str and self.library is not None:
            constants = [*self.constants, table]
            is_brief = nanoseconds < BRIEF
            signature = Signature(self.item_sizes, constants, plan.size, is_brief)
            return launcher(self.library.function(self.alone), signature)
        put, text = SizesAt(sizes), self.text
        held, outline = tuple(map(put.buffer, text.held)), put.outline(text.program)
        segments = [put.extern(x) if type(x) is Extern else x for x in text.printed.segments]
        changes = {"segments": tuple(segments), "nanoseconds": nanoseconds}
        printed = attrs.evolve(text.printed, **changes)
        made = ProgramText(outline, printed, plan.size, held)
        return execution(made, library=self.library, table=table)


def _room(size: int, item_size: int) -> int:
    return rounded(size * item_size)


def _entry(entry: object, sizes: SizeCode) -> str:
    """Returns the expression of an entry of the table; 0 for a place, which the plan says."""
    if isinstance(entry, ArenaPlace):
        return "0"
    if isinstance(entry, MostChunks):
        return sizes.call(_most_chunks, entry.units, entry.picoseconds)
    return sizes.text(entry)


def _most_chunks(units: int, picoseconds: int) -> int:
    return most_chunks(units, picoseconds / 1000)
