"""A program of symbolic sizes for a GPU: printed and compiled once, launched at every size.

    graph with symbols -> program -> CUDA text with sizes as arguments -> module
    at(sizes)          -> grids, sizes, places of temporaries -> launches of the same module

There are up to three texts: with wide accesses of rows, for sizes that have the divisors of the
hints; one that counts points in 32 bits, for sizes at which they fit; and one of 64. `at` chooses
the first that serves the sizes. Input: a pure graph with symbols. Output: a `SizedRun`. Spec:
`specs/sized_kernels.md` (SIZ-14 to SIZ-18).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs

from aotlite.backends.c_family.size_names import SizeNames
from aotlite.backends.calling_convention import Run
from aotlite.backends.cuda.driver.driver_protocol import DeviceModule, Driver
from aotlite.backends.cuda.emit.cuda_program import PrintedKernels, print_sized
from aotlite.backends.cuda.emit.kernel_code import NARROW
from aotlite.backends.cuda.emit.reductions.thread_layout import most_width
from aotlite.backends.cuda.execution.device_graphs import CallHistory, DeviceGraphRun
from aotlite.backends.cuda.execution.host_part import PartsRun, split
from aotlite.backends.cuda.execution.launch_code import CudaRun
from aotlite.backends.cuda.execution.launch_plan import LaunchPlan, kernels_alone, launches_of
from aotlite.backends.cuda.passes.device_passes import improved_for
from aotlite.backends.cuda.passes.host_checks import HostCheck, without_host_checks
from aotlite.backends.cuda.passes.merge_checks import with_checks_together
from aotlite.backends.cuda.passes.mixed_precision_products import narrowed
from aotlite.backends.cuda.target import Target
from aotlite.backends.loops.program import Kernel, LoopProgram
from aotlite.backends.loops.program_sizes import SizesAt, is_idle
from aotlite.ir.arrays.device import Device
from aotlite.ir.geometry.sizes import Size, hint_of
from aotlite.ir.graph import Graph
from aotlite.ir.symbols.polynomial import Atom
from aotlite.ir.symbols.proving import Demands, is_proved, proving
from aotlite.ir.symbols.table import SymbolTable


@attrs.frozen
class SizedCudaText:
    """A CUDA text for all sizes, and its program."""

    program: LoopProgram
    kernels: LoopProgram
    """The program of its kernels alone, as printed."""
    printed: PrintedKernels
    checks: tuple[HostCheck, ...]
    """The checks of values of the host."""
    divided: tuple[tuple[Size, int], ...] = ()
    """Sizes, with the numbers by which the text needs them to be divisible."""

    def serves(self, put: SizesAt) -> bool:
        """Whether the text is right for these sizes."""
        if any(put.put(size) % number for size, number in self.divided):
            return False
        return all(abs(put.put(each)) < NARROW for each in self.printed.reaches)

    def plan(self, put: SizesAt, graph: Graph) -> LaunchPlan:
        """Returns the launches at these sizes, for the graph at them."""
        steps = [each if type(each) is Kernel else put.step(each) for each in self.program.steps]
        kept = tuple([each for each in steps if type(each) is Kernel or not is_idle(each)])
        program = attrs.evolve(put.outline(self.program), steps=kept)
        launches = [each.at(put.put) for each in self.printed.launches]
        there = tuple([each for each in launches if each is not None])
        printed = PrintedKernels(self.printed.text, there)
        checks = tuple([each.at(put) for each in self.checks])
        return launches_of(program, graph, self.kernels, printed, checks)

    def at(self, put: SizesAt) -> LoopProgram:
        """Returns the program of its kernels at these sizes, also of those with nothing to do."""
        steps = tuple(map(put.step, self.kernels.steps))
        return attrs.evolve(put.outline(self.kernels), steps=steps)


def sized_texts(
    lowered: LoopProgram,
    graph: Graph,
    target: Target,
    table: SymbolTable,
    demands: Demands | None = None,
    *,
    deterministic: bool = True,
) -> list[SizedCudaText]:
    """Returns the texts of a graph's program, the best first; the last one serves all sizes.
    `demands` are those of the program. Raises Unproved where no text is right for all sizes that
    meet them."""
    program, checks = without_host_checks(narrowed(lowered), graph)
    printing, found = _Printing(checks, target, table, demands), list[SizedCudaText]()
    for wide in (False, True):
        improved = improved_for(program, target, deterministic=deterministic, wide=wide)
        together = with_checks_together(improved)
        every = printing.text(together, {}, wide=wide)
        divisors = {} if wide else row_divisors(every.kernels)
        if divisors:
            even = printing.text(together, divisors, wide=wide)
            found += [even] if even.printed.text != every.printed.text else []
        found.append(every)
        if all(is_proved(each < NARROW) for each in every.printed.reaches):
            break
    return found


@attrs.frozen
class _Printing:
    """What the texts of a graph have in common."""

    checks: tuple[HostCheck, ...]
    target: Target
    table: SymbolTable
    demands: Demands | None

    def text(self, program: LoopProgram, divisors: dict[Atom, int], *, wide: bool) -> SizedCudaText:
        """Returns the text of a program, for sizes whose atoms have these divisors."""
        names, alone = SizeNames(), kernels_alone(program)
        with proving(self.table, names.spell, self.demands, divisors):
            printed = print_sized(alone, names, self.target, wide=wide)
        divided = [(self.table.of({(atom,): 1}), number) for atom, number in divisors.items()]
        return SizedCudaText(program, alone, printed, self.checks, tuple(divided))


def row_divisors(program: LoopProgram) -> dict[Atom, int]:
    """Returns powers of two that divide the lengths of rows at the hints, by the lengths' atoms:
    with them accesses of rows are wide."""
    found: dict[Atom, int] = {}
    for kernel in program.steps:
        assert type(kernel) is Kernel
        k = kernel.vector
        if k is None or len(kernel.extents) < 2 or type(kernel.extents[k]) is int:
            continue
        extent: Any = kernel.extents[k]
        number = math.gcd(hint_of(extent), most_width(kernel, k))
        if len(extent.terms) == 1 and number > 1:
            ((monomial, _),) = extent.terms.items()
            if len(monomial) == 1:
                found[monomial[0]] = max(found.get(monomial[0], 1), number)
    return found


class SizedCudaRun:
    """Loaded kernels for all sizes of a graph on a device."""

    def __init__(
        self,
        graph: Graph,
        texts: list[SizedCudaText],
        device: Device,
        driver: Driver,
        flags: tuple[str, ...],
        *,
        tf32: bool,
        hosted: frozenset[int] = frozenset(),
        records: bool = False,
    ) -> None:
        """`hosted`: the places of the graph's nodes whose values the host computes. `records`: the
        launches of each size are recorded as a device graph (CUG-1)."""
        self.records, self.histories = records, [CallHistory() for _ in texts]
        self.graph, self.texts, self.hosted = graph, texts, hosted
        self.device, self.driver, self.flags, self.tf32 = device, driver, flags, tf32
        self.kernels: list[DeviceModule] = [
            driver.module(each.kernels, each.printed, flags) for each in texts
        ]
        self.uploads: list[dict[int, object]] = [{} for _ in texts]
        """Constants on the device, by text and buffer."""

    @property
    def program(self) -> LoopProgram:
        """The program for all sizes, of the first text."""
        return self.texts[0].program

    def at(self, sizes: Mapping[str, int]) -> Run:
        """Returns the run for these sizes of the symbols."""
        put = SizesAt(sizes)
        graph = put.graph(self.graph)
        make = partial(self.driver.guarded, self._on_device, put)
        if not self.hosted:
            run: Run = make(graph)
            return run
        parts = split(graph, {graph.nodes[k] for k in self.hosted})
        return PartsRun(graph, parts, make(parts.device))

    def _on_device(self, put: SizesAt, graph: Graph) -> Run:
        """Returns the run of the device's part, with sizes in place of symbols."""
        place = _chosen(self.texts, put)
        text = self.texts[place]
        make: Callable[[], LoopProgram] = partial(text.at, put)
        module = self.kernels[place].at(make)
        given = (graph, text.plan(put, graph), self.device, self.driver, self.flags)
        uploads = self.uploads[place]
        run = CudaRun(*given, tf32=self.tf32, module=module, uploads=uploads)
        run.kernels = attrs.evolve(run.kernels, make=partial(put.program, text.program))
        if not self.records:
            return run
        return DeviceGraphRun(run, self.device.arrays, self.driver, self.histories[place])


def _chosen(texts: list[SizedCudaText], put: SizesAt) -> int:
    """Returns the place of the text for these sizes: the first one that serves them."""
    *others, _ = texts
    return next((k for k, each in enumerate(others) if each.serves(put)), len(others))
