"""A program as one C11 text: a function for each kernel, and one that calls them in order.

    static void run_k0(const m_f32 *restrict b0, m_f32 *restrict b1, i64 begin, i64 end) {...}
    static void run_k0_task(void *context, i64 chunk) {...}     // a chunk of its units
    int run_0(void **slots, const al_runtime *runtime) {   // slots: inputs, outputs, constants,
        runtime->parallel(run_k0_task, &c, c.chunks);      // the arena
        return 0; }

Each extern step ends a segment; Python calls the functions run_0, run_1, ... and the externs
between them. Input: a `LoopProgram` and the plan of its arena; output: `PrintedC`. Spec:
`specs/c_printer.md`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from aotlite.backends.c_family.c_types import (
    BFLOAT16,
    DIVISIONS,
    FLOAT16,
    PRELUDE,
    STREAM,
    memory_type,
)
from aotlite.backends.c_family.scalar_text import FunctionTexts, KernelFacts, indented
from aotlite.backends.c_family.size_names import SizeNames
from aotlite.backends.cpu.emit.c_kernel import KernelPrinter
from aotlite.backends.cpu.emit.c_text import PrintedC
from aotlite.backends.cpu.emit.calls.gemm_calls import gemm_lines, shared_gemm, shared_products
from aotlite.backends.cpu.emit.calls.kernel_calls import (
    nanoseconds_of_point,
    parallel,
    parallel_sized,
    units_of,
)
from aotlite.backends.cpu.emit.calls.shared_steps import (
    RUN_STEPS,
    SPREAD,
    Alike,
    Place,
    SharedCall,
    SharedKernel,
    SharedSteps,
)
from aotlite.backends.cpu.emit.loop_text import WHOLE, of_whole_rows
from aotlite.backends.cpu.emit.masked_loops import IN_LINE, MASKS, narrowed
from aotlite.backends.cpu.emit.transpose_tiles import TILES
from aotlite.backends.cpu.runtime.runtime_library import declarations
from aotlite.backends.loops.analysis.partial_results import direct_results
from aotlite.backends.loops.analysis.size_proofs import is_axis
from aotlite.backends.loops.arena import ArenaPlan, planned
from aotlite.backends.loops.program import (
    BufferKind,
    Extern,
    Gemm,
    Kernel,
    LoopProgram,
    ProgramBuffer,
    Reduce,
    Store,
    ValueCheck,
    loads_of,
    slots,
    writes,
)
from aotlite.backends.loops.templates.kernel_memory import KernelMemory
from aotlite.ir import dtypes
from aotlite.ir.dtypes import DType

MOST_LINES = 280
"""The longest kernel that has one: each version is compiled."""

Work = tuple[tuple[int, float], ...]
"""(number of points, estimated nanoseconds of a point) of each step of symbolic extents."""


def print_program(
    program: LoopProgram, plan: ArenaPlan | None = None, stem: str = "run"
) -> PrintedC:
    """Returns the C text of a program. `plan` places its temporaries, by default `planned`."""
    return _ProgramPrinter(program, plan or planned(program), stem).printed()


def print_sized(program: LoopProgram, names: SizeNames) -> tuple[PrintedC, Work]:
    """Returns the C text of a program of symbolic sizes, and its work. `names` gets the sizes that
    it needs, as the table that a call passes."""
    printer = _ProgramPrinter(program, ArenaPlan(0, {}), "run", None, names)
    return printer.printed(), tuple(printer.work)


def print_units(programs: Mapping[str, LoopProgram]) -> tuple[str, dict[str, PrintedC]]:
    """Returns one C text for several programs, and the record of each; keys are the stems of the
    functions' names."""
    library = FunctionTexts()
    printers = {
        stem: _ProgramPrinter(program, planned(program), stem, library)
        for stem, program in programs.items()
    }
    bodies = {stem: printer.body() for stem, printer in printers.items()}
    kernels = [line for lines in bodies.values() for line in indented(lines)]
    text = "\n".join([*preamble(library), *kernels, ""])
    return text, {stem: printer.record(text) for stem, printer in printers.items()}


class _ProgramPrinter:
    def __init__(
        self,
        program: LoopProgram,
        plan: ArenaPlan,
        stem: str,
        library: FunctionTexts | None = None,
        sizes: SizeNames | None = None,
    ) -> None:
        self.program, self.plan, self.stem, self.sizes = program, plan, stem, sizes
        self.library = library or FunctionTexts()
        self.buffers = {buffer.number: buffer for buffer in program.buffers}
        self.kinds: dict[int, DType] = {n: b.dtype for n, b in self.buffers.items()}
        self.memory = KernelMemory(self.buffers, plan)
        constants = [b for b in program.buffers if b.kind is BufferKind.CONSTANT]
        self.slots = tuple([buffer.number for buffer in (*slots(program), *constants)])
        self.slot_of = {number: k for k, number in enumerate(self.slots)}
        self.sizes_of = {n: buffer.size for n, buffer in self.buffers.items()}
        self.nanoseconds = 0.0
        self.count = self.different = 0
        """The kernels, and those of them that are printed."""
        self.work: list[tuple[int, float]] = []
        """(points, nanoseconds of a point) of kernels and products of symbolic extents."""
        self.segments: list[str | Extern] = []
        self.calls: list[list[str | SharedCall]] = []
        self.direct = {} if sizes is None else direct_results(program)

    def printed(self) -> PrintedC:
        """Returns the whole text and its record."""
        body = self.body()
        lines = [*preamble(self.library), *indented(body)]
        if self.sizes is not None:
            lines = [IN_LINE, *preamble(self.library), MASKS, *indented(body)]
        return self.record("\n".join([*lines, ""]))

    def record(self, text: str) -> PrintedC:
        """Returns the record of a text: the data for calling it."""
        counts = self.count, self.different
        return PrintedC(text, tuple(self.segments), self.slots, self.nanoseconds, *counts)

    def body(self) -> list[str]:
        """Returns the lines of the kernels and of the functions that call them."""
        lines: list[str] = []
        for buffer in self.buffers.values():
            self.library.dtypes.add(buffer.dtype)
        is_sized = self.sizes is not None
        self.alike = {} if is_sized else self._alike()
        products = shared_products(() if is_sized else self.program.steps, self.stem)
        for k, step in enumerate(self.program.steps):
            if type(step) is Extern:
                self.segments.append(step)
                continue
            if not self.segments or type(self.segments[-1]) is Extern:
                count = len(self.calls)
                self.segments.append(f"{self.stem}_{count}")
                self.calls.append([])
            self.count += type(step) is Kernel
            if type(step) is Kernel and k in self.alike:
                lines += self._shared(step, *self.alike[k])
            elif type(step) is Kernel:
                lines += self._kernel(step, f"{self.stem}_k{k}")
            elif type(step) is ValueCheck:
                self.calls[-1].append(f"if (*{self._in_slots(step.buffer)}) return 1;")
            elif type(step) is Gemm:
                self._count(math.prod(step.batch) * step.m * step.n * step.k, 0.02)
                kind = self.kinds[step.c.buffer]
                call = shared_gemm(step, kind, self._place, self._in_slots, products)
                self.calls[-1] += [call] if call else gemm_lines(step, kind, self._in_slots)
        shared = [
            f"static const al_product {name} = {{{p}}};" for p, name in products.names.items()
        ]
        lines = [*shared, *lines]
        names = [each for each in self.segments if type(each) is str]
        tables = SharedSteps(self.library)
        texts = [tables.called(calls, name) for name, calls in zip(names, self.calls, strict=True)]
        lines += tables.text()
        for name, calls in zip(names, texts, strict=True):
            lines += [
                f"int {name}(void **slots, const al_runtime *runtime)",
                "{",
                *self._declared(calls, "slots"),
                *calls,
                "return 0;",
                "}",
            ]
        return lines

    # --- kernels that several steps run
    def _alike(self) -> dict[int, tuple[tuple[int, ...], Alike]]:
        """Returns, for each step whose kernel is that of another step on other buffers, its buffers
        and all these steps (REG-2)."""
        found: dict[object, Alike] = {}
        kernels = [(k, step) for k, step in enumerate(self.program.steps) if type(step) is Kernel]
        keys = {k: self.memory.key(step) for k, step in kernels} if len(kernels) > 1 else {}
        for k, (_, key) in keys.items():
            found.setdefault(key, Alike()).steps.append(k)
        several = {k: (buffers, found[key]) for k, (buffers, key) in keys.items()}
        return {k: each for k, each in several.items() if len(each[1].steps) > 1}

    def _shared(self, kernel: Kernel, buffers: tuple[int, ...], alike: Alike) -> list[str]:
        """Returns the text of a kernel that several steps run, if this is the first of them. Adds
        the call for this step."""
        lines: list[str] = []
        if alike.printed is None:
            lines = self._kernel(kernel, f"{self.stem}_k{alike.steps[0]}", (buffers, alike))
        if alike.printed is not None:
            self._count(alike.printed.points, alike.printed.each)
            own = [buffers[place] for place in alike.printed.places]
            call = alike.printed.call(
                kernel.name, list(map(self._place, own)), lambda: list(map(self._in_slots, own))
            )
            self.calls[-1].append(call)
        return lines

    # --- kernels
    def _kernel(
        self, kernel: Kernel, name: str, shared: tuple[tuple[int, ...], Alike] | None = None
    ) -> list[str]:
        """Returns the text of a kernel, and adds its call, unless several steps share it."""
        if 0 in kernel.extents[: kernel.space] or not kernel.body:
            self.count -= 1
            return []
        self.different += 1
        facts = self._facts(kernel)
        printer = KernelPrinter(kernel, self.kinds, facts, self.library)
        body = printer.text()
        numbers = sorted({load.args[0] for load in loads_of(kernel)} | writes(kernel))
        heirs = self.memory.heirs(numbers, facts.regions)
        given = [n for n in numbers if n not in heirs]
        written = writes(kernel) | set(heirs.values())
        alone = {n for n in given if [facts.region(k) for k in given].count(facts.region(n)) == 1}
        own = [(n, self.kinds[n], n in written, n in alone) for n in given]
        slots = "c->slots" if self.sizes is None else "slots"
        pointers = [self._pointer(n, slots) for n in given]
        if shared is not None:  # the slots of a call of its task are the pointers that it needs
            kinds = [memory_type(self.kinds[n]) for n in given]
            pointers = [f"(({kind} *)c->slots[{place}])" for place, kind in enumerate(kinds)]
        own_sizes = [] if self.sizes is None else [self._sizes_in(slots)]
        arguments = ", ".join([*pointers, *own_sizes, "begin", "end"])
        choices, more = self._versions(kernel, printer, body, name, own)
        # Not inlined: copies in the task and in its caller would double the compile time.
        table = "" if self.sizes is None else "const i64 *sizes, "
        head = f"static NEVER_INLINE void {name}({_parameters(own)}, {table}i64 begin, i64 end)"
        chosen = [f"{choice}({arguments});" for choice in choices]
        if self.sizes is not None:
            more += [
                f"INLINE void {name}_on(void **slots, i64 begin, i64 end)",
                "{",
                *self._declared([*choices, *pointers], "slots"),
                *chosen,
                "}",
            ]
            chosen = [f"{name}_on(c->slots, begin, end);"]
        task = self._task(kernel, name, printer, chosen)
        notes = [f"/* {line} */" for line in str(kernel).splitlines()]
        if shared is None:
            self._add_call(kernel, name, printer)
        else:
            buffers, alike = shared
            places = tuple([buffers.index(n) for n in given])
            alike.printed = SharedKernel.of(kernel, name, printer.loops, places)
            notes.append(f"/* of the steps {', '.join(map(str, alike.steps))} */")
            task = task if alike.printed.most > 1 else []
            self.library.spreads |= alike.printed.most > 1
        return notes + [
            head,
            "{",
            *[f"{memory_type(self.kinds[n])} *b{n} = (void *)b{k};" for n, k in heirs.items()],
            *self._declared(body, None),
            *body,
            "}",
            *more,
            *task,
        ]

    def _add_call(self, kernel: Kernel, name: str, printer: KernelPrinter) -> None:
        """Adds the call that runs all chunks of a kernel."""
        units, together = units_of(printer.loops)
        times = f" * {together}" if is_axis(together) else ""
        points, each = math.prod(kernel.extents), nanoseconds_of_point(kernel)
        self._count(points, each)
        self.calls[-1] += (
            parallel(name, units, points * each)
            if self.sizes is None or type(points) is type(units) is int
            else parallel_sized(
                name,
                f"{units}{times}",
                self.sizes.most_chunks(units, points * round(1000 * each)),
                self._is_needed(kernel),
            )
        )

    def _task(
        self, kernel: Kernel, name: str, printer: KernelPrinter, chosen: Sequence[str]
    ) -> list[str]:
        """Returns the function of a kernel's chunk."""
        units, together = units_of(printer.loops)
        times = f" * {together}" if is_axis(together) else ""
        return [
            f"static void {name}_task(void *context, i64 chunk)",
            "{",
            "const call *c = context;",
            *self._declared([f"{units}{times}"], "c->slots"),
            f"const i64 begin = {units} * chunk / c->chunks{times};",
            f"const i64 end = {units} * (chunk + 1) / c->chunks{times};",
            *chosen,
            "}",
        ]

    def _is_needed(self, kernel: Kernel) -> str:
        """Returns the condition under which a kernel is called; nothing if it always is."""
        found = {load.args[0] for load in loads_of(kernel)} & self.direct.keys()
        return " && ".join([f"{self.direct[each][1]} != 1" for each in sorted(found)][:1])

    def _versions(
        self,
        kernel: Kernel,
        printer: KernelPrinter,
        body: list[str],
        name: str,
        own: list[tuple[int, DType, bool, bool]],
    ) -> tuple[list[str], list[str]]:
        """Returns the calls of a kernel's versions without arguments, each with its condition, and
        the functions of all but the general one.

        Short rows keep values between passes. Rows that are a multiple of `WHOLE` points have no
        remainders: where masks say so, the compiler leaves the code for these out.
        """
        choices, more = [], list[str]()
        given = f"{_parameters(own)}, const i64 *sizes, i64 begin, i64 end"

        def add(version: str, condition: str, lines: list[str], whole: str = "") -> None:
            inside = [*self._declared(lines, None), *lines]
            if whole:
                inside = of_whole_rows(inside, whole)
            head = f"static NEVER_INLINE void {name}_{version}({given})"
            more.extend([head, "{", *inside, "}"])
            choices.append(f"if ({condition}) {name}_{version}")

        row, short = self._row_name(printer), self._of_short_rows(kernel)
        row = "" if printer.usual.lines.declared else row  # remainders take little of its time
        narrow, most = self._of_narrow_rows(kernel) if row else ([], 0)
        if narrow and len(narrow) <= MOST_LINES:
            add("narrow", f"HAS_MASKS && {row} <= {most}", narrow)
        is_whole = f"{row} > 0 && ({row} & {WHOLE - 1}) == 0"
        if short:
            fits = f"{printer.loops.points} <= {printer.short_row}"
            if row and len(short) <= MOST_LINES:
                add("whole", f"{is_whole} && {fits}", short, row)
            add("short", fits, short)
        elif row and len(body) <= MOST_LINES:
            add("whole", is_whole, body, row)
        choices = [*choices, name]
        return [f"{'else ' if k else ''}{each}" for k, each in enumerate(choices)], more

    def _row_name(self, printer: KernelPrinter) -> str:
        """Returns the name of the innermost loop's length; nothing if that is known."""
        k = printer.loops.innermost
        text = "" if self.sizes is None or k is None else str(printer.facts.extents[k])
        return text if text.startswith("size") else ""

    def _of_short_rows(self, kernel: Kernel) -> list[str]:
        """Returns the body of the version that keeps values of short rows between passes; nothing
        if there are no such values, or the length of rows is known."""
        if type(math.prod(kernel.extents[kernel.space :])) is int:
            return []
        parts = kernel, self.kinds, self._facts(kernel), self.library
        printer = KernelPrinter(*parts, of_short_rows=True)
        return printer.text() if printer.passes.kept else []

    def _of_narrow_rows(self, kernel: Kernel) -> tuple[list[str], int]:
        """Returns the body of the version for rows that fit a masked vector, and the most points of
        these; nothing where a loop takes no masks."""
        narrow = narrowed(kernel)
        if narrow is None:
            return [], 0
        parts = narrow, self.kinds, self._facts(narrow), self.library
        printer = KernelPrinter(*parts, of_narrow_rows=True)
        body = printer.text()
        most = max([each.lanes for each in narrow.body if type(each) is Reduce])
        return (body, most) if printer.masks.fits else ([], 0)

    def _count(self, points: int, each: float) -> None:
        """Adds the time of a step to that of the program."""
        if type(points) is int:
            self.nanoseconds += points * each
        else:
            self.work.append((points, each))

    def _sizes_in(self, slots: str) -> str:
        """Returns the C text of the table of sizes, which follows the constants."""
        return f"((const i64 *){slots}[{len(self.slots)}])"

    def _declared(self, lines: list[str], slots: str | None) -> list[str]:
        """Returns the lines that define the sizes of which lines of C have the names."""
        if self.sizes is None:
            return []
        names = self.sizes.used(lines)
        table = [f"const i64 *sizes = {self._sizes_in(slots)};"] if slots and names else []
        return table + [f"const i64 {name} = sizes[{k}];" for k, name in names.items()]

    def _facts(self, kernel: Kernel) -> KernelFacts:
        extents, space = kernel.extents, kernel.space
        rows_only = space == len(extents)
        if rows_only and any(type(each) is not Store for each in kernel.body):
            extents = (*extents, 1)
        return KernelFacts(extents, space, self.sizes_of, self.memory.regions(kernel), rows_only)

    def _place(self, number: int) -> Place:
        """Returns the slot of a buffer, and the bytes behind it."""
        if self.buffers[number].kind is BufferKind.TEMPORARY:
            return len(self.slots), self.plan.offsets[number]
        return self.slot_of[number], 0

    def _in_slots(self, number: int) -> str:
        return self._pointer(number, "slots")

    def _pointer(self, number: int, slots: str) -> str:
        buffer: ProgramBuffer = self.buffers[number]
        if buffer.kind is BufferKind.TEMPORARY:
            kind = memory_type(buffer.dtype)
            if self.sizes is None:
                place, arena = str(self.plan.offsets[number]), len(self.slots)
            else:
                place, arena = self.sizes.place(number), len(self.slots) + 1
            own = f"(({kind} *)((u8 *){slots}[{arena}] + {place}))"
            if number not in self.direct:
                return own
            result, partials = self.direct[number]
            return f"({partials} == 1 ? {self._pointer(result, slots)} : {own})"
        return f"(({memory_type(buffer.dtype)} *){slots}[{self.slot_of[number]}])"


def _parameters(buffers: Iterable[tuple[int, DType, bool, bool]]) -> str:
    """Returns the C parameters for buffers, given as (number, dtype, written, alone in memory)."""
    found = []
    for number, dtype, written, alone in buffers:
        const = "" if written else "const "
        restrict = "restrict " if alone else ""
        found.append(f"{const}{memory_type(dtype)} *{restrict}b{number}")
    return ", ".join(found)


def preamble(library: FunctionTexts) -> list[str]:
    """Returns the lines before the kernels: types, helpers and library functions."""
    lines = [declarations(), PRELUDE, DIVISIONS]
    if dtypes.float16 in library.dtypes:
        lines.append(FLOAT16)
    if dtypes.bfloat16 in library.dtypes:
        lines.append(BFLOAT16)
    if library.tiles:
        lines.append(TILES)
    if library.streams:
        lines.append(STREAM)
    if library.spreads:
        lines.append(SPREAD)
    if library.pointers:
        lines.append(RUN_STEPS % library.pointers)
    functions = [line for text in library.texts.values() for line in text.split("\n")]
    return [*lines, *indented(functions)]
