"""The backend `cuda`: from a graph to a callable that launches kernels of a GPU.

    graph -> host part, device part -> loop program -> passes for the target -> launch plan
          -> CUDA C++ -> cubin -> straight-line Python that launches (-> a CUDA graph)

Spec: `specs/cuda_backend.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TypeVar

import attrs

from aotlite.backends.calling_convention import Run
from aotlite.backends.cuda.driver.driver_protocol import Driver
from aotlite.backends.cuda.driver.driver_registry import device_of, driver_of
from aotlite.backends.cuda.driver.nvrtc import FLAGS
from aotlite.backends.cuda.execution.device_graphs import DeviceGraphRun
from aotlite.backends.cuda.execution.host_part import host_nodes, run_of, split, with_copies
from aotlite.backends.cuda.execution.launch_code import CudaRun
from aotlite.backends.cuda.execution.launch_plan import plan_of
from aotlite.backends.cuda.passes.device_passes import improved_for
from aotlite.backends.cuda.passes.host_checks import without_host_checks
from aotlite.backends.cuda.passes.mixed_precision_products import narrowed
from aotlite.backends.cuda.sized_program import SizedCudaRun, sized_texts
from aotlite.backends.loops.backend import table_of_graph
from aotlite.backends.loops.lowering import lower
from aotlite.backends.loops.lowering.expansion import expand
from aotlite.backends.loops.program import LoopProgram
from aotlite.backends.loops.size_versions import versions_of
from aotlite.backends.protocol import SizedRun
from aotlite.ir.arrays.device import Device
from aotlite.ir.errors import BackendError
from aotlite.ir.graph import Graph
from aotlite.ir.symbols.proving import Demands, proving, untold
from aotlite.ir.symbols.table import SymbolTable

T = TypeVar("T")

CONTRACTED = ("--fmad=true", *FLAGS[1:])
"""The compiler's flags with fma, which is CUDA's default."""


@attrs.frozen
class DeviceGraphs:
    """Asks for launches recorded as CUDA graphs: of all sizes (None), or of these."""

    sizes: frozenset[int] | None = None


@attrs.frozen
class CudaBackend:
    """Compiles graphs of values on a CUDA device.

    `contract`: kernels use fma; without it results are the interpreter's, bit for bit. `tf32`:
    products of float32 matrices may round their operands to 10 bits. `deterministic`: results have
    the same bits at each call; without it scatters combine by atomics, in any order. `graphs`:
    launches are recorded as CUDA graphs, of all or some sizes (CUG-3).
    """

    contract: bool = attrs.field(default=True, kw_only=True)
    tf32: bool = attrs.field(default=False, kw_only=True)
    deterministic: bool = attrs.field(default=True, kw_only=True)
    graphs: DeviceGraphs | None = attrs.field(default=None, kw_only=True)

    name = "cuda"
    fuses = True
    trusted = True

    def with_device_graphs(self, sizes: frozenset[int] | None) -> CudaBackend:
        """Returns this backend, with launches recorded as CUDA graphs."""
        return attrs.evolve(self, graphs=DeviceGraphs(sizes))

    def of_size(self, size: int | None) -> CudaBackend:
        """Returns the backend for calls whose first argument has this first dimension."""
        if self.graphs is None or self.graphs.sizes is None or size in self.graphs.sizes:
            return self
        return attrs.evolve(self, graphs=None)

    @property
    def sized_key(self) -> str:
        """What tells its kernels for all sizes from those of another `of_size`."""
        return repr(self)

    def compile(self, graph: Graph) -> Run:
        """Returns the callable of a pure graph, which may end with copies into inputs."""
        device = device_of(graph)
        if device is None:
            raise BackendError(
                f"cuda: graph {graph.name} has no value on a CUDA device, expected one; move "
                "tensors with .to('cuda'), or compile with backend='cpu'"
            )
        driver = driver_of(device)
        return run_of(graph, partial(driver.guarded, self._compiled, device, driver))

    def compile_sized(
        self, graph: Graph, refused: Callable[[str], None] = untold
    ) -> SizedRun | None:
        """Returns the run of a graph with symbolic sizes, compiled once for all of them. None if a
        question about sizes has no answer for all of them, or no text is made, after `refused` got
        the reason."""
        table = table_of_graph(graph)
        try:
            device = device_of(graph)
            if device is None or table is None:
                refused(f"{graph.name}: it has no symbol, or no value on a CUDA device")
                return None
            made = partial(driver_of(device).guarded, self._sized, graph, table, device)
            return versions_of(graph, table, made, self.compile, refused)
        except BackendError as error:
            refused(f"{graph.name}: {error}")
            return None

    def _sized(
        self, graph: Graph, table: SymbolTable, device: Device, demands: Demands
    ) -> SizedCudaRun:
        """Returns the loaded kernels for all sizes that meet the demands."""
        driver, flags = driver_of(device), CONTRACTED if self.contract else FLAGS
        with proving(table, demands=demands):
            known = host_nodes(graph)
            part = split(graph, known).device if known else graph
            given = (_lowered(part), part, driver.target, table, demands)
            texts = sized_texts(*given, deterministic=self.deterministic)
        hosted = frozenset([k for k, node in enumerate(graph.nodes) if node in known])
        loaded = (graph, texts, device, driver, flags)
        records = self.graphs is not None
        return SizedCudaRun(*loaded, tf32=self.tf32, hosted=hosted, records=records)

    def _compiled(self, device: Device, driver: Driver, graph: Graph) -> CudaRun | DeviceGraphRun:
        seconds: dict[str, float] = {}
        target = driver.target
        program = _timed(seconds, "lowering", _lowered, graph)
        program, refuses = without_host_checks(narrowed(program), graph)
        improved = partial(improved_for, deterministic=self.deterministic)
        program = _timed(seconds, "fusing", improved, program, target)
        plan = _timed(seconds, "printing", plan_of, program, graph, target, refuses)
        flags = CONTRACTED if self.contract else FLAGS
        given = (graph, plan, device, driver, flags)
        run = _timed(seconds, "compiling", CudaRun, *given, tf32=self.tf32)
        run.kernels = attrs.evolve(run.kernels, seconds=seconds)
        return run if self.graphs is None else DeviceGraphRun(run, device.arrays, driver)


def _lowered(graph: Graph) -> LoopProgram:
    # Expansion comes first: it infers metas anew, which a copy from the host does not allow.
    return lower(with_copies(expand(graph)))


def _timed(
    seconds: dict[str, float], name: str, function: Callable[..., T], *args: object, **more: object
) -> T:
    begin = perf_counter()
    result = function(*args, **more)
    seconds[name] = perf_counter() - begin
    return result


CUDA: CudaBackend = CudaBackend()
