"""A program of symbolic sizes for a GPU: printed and compiled once, launched at every size.

    graph with symbols -> program -> CUDA text with sizes as arguments -> module
    at(sizes)          -> grids, sizes, places of temporaries -> launches of the same module

There are two texts: one counts points in 32 bits, for sizes at which they fit, the other one in 64.
`at` chooses. Input: a pure graph with symbols. Output: a `SizedRun`. Spec:
`specs/sized_kernels.md` (SIZ-14 to SIZ-17).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import attrs

from aotlite.backends.c_family.size_names import SizeNames
from aotlite.backends.calling_convention import Run
from aotlite.backends.cuda.driver.driver_protocol import DeviceModule, Driver
from aotlite.backends.cuda.emit.cuda_program import PrintedKernels, print_sized
from aotlite.backends.cuda.emit.kernel_code import NARROW
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
from aotlite.ir.graph import Graph
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
    """Returns the texts of a graph's program, the one of 32 bits first; only that one where it is
    proved to serve all sizes. `demands` are those of the program. Raises Unproved where no text is
    right for all sizes that meet them."""
    program, checks = without_host_checks(narrowed(lowered), graph)
    found = []
    for wide in (False, True):
        improved = improved_for(program, target, deterministic=deterministic, wide=wide)
        together = with_checks_together(improved)
        alone, names = kernels_alone(together), SizeNames()
        with proving(table, names.spell, demands):
            printed = print_sized(alone, names, target, wide=wide)
        found.append(SizedCudaText(together, alone, printed, checks))
        if all(is_proved(each < NARROW) for each in printed.reaches):
            break
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
    """Returns the place of the text for these sizes: of 32 bits, if its numbers fit."""
    fits = all(abs(put.put(each)) < NARROW for each in texts[0].printed.reaches)
    return 0 if fits or len(texts) == 1 else 1


