"""The backend `auto`: `cpu` or `cuda` by a graph's devices, or the reference where neither works.

A machine without a C compiler, CuPy or a driver still runs every program: it warns once, with what
to install, and goes on op by op. Specs: `specs/cpu_backend.md`, `specs/cuda_backend.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from aotlite.backends.calling_convention import Run
from aotlite.backends.cpu.backend import CPU, is_of_cpu, problem
from aotlite.backends.native.compiler import failure_reports
from aotlite.backends.native.compiler.toolchain import is_known
from aotlite.backends.native.warn_once import warn_once
from aotlite.backends.protocol import SizedRun
from aotlite.backends.reference import REFERENCE
from aotlite.ir.deferred import deferred
from aotlite.ir.errors import BackendError, MissingExtraError
from aotlite.ir.graph import Graph
from aotlite.ir.symbols.proving import untold

if TYPE_CHECKING:
    from aotlite.backends.cuda import backend as cuda_backend
    from aotlite.backends.cuda.driver import driver_registry as cuda_drivers
else:  # imported at the first graph of a CUDA device
    cuda_backend = deferred("aotlite.backends.cuda.backend")
    cuda_drivers = deferred("aotlite.backends.cuda.driver.driver_registry")


@attrs.frozen
class AutoBackend:
    """Compiles each graph by the fastest backend that works here.

    With `wait=False` compilation runs in the background. Until it is known whether a C compiler
    works, such a graph goes to `cpu`, whose first calls run on the interpreter.
    """

    wait: bool = attrs.field(default=True, kw_only=True)
    cuda: Any = attrs.field(default=None, kw_only=True)
    """The backend for CUDA devices; None: the default `cuda`."""

    name = "auto"
    trusted = True

    def without_waiting(self) -> AutoBackend:
        """Returns this backend, with compilation in the background."""
        return attrs.evolve(self, wait=False)

    def with_device_graphs(self, sizes: frozenset[int] | None) -> AutoBackend:
        """Returns this backend, with launches recorded as CUDA graphs (`device_graphs`)."""
        return attrs.evolve(self, cuda=cuda_backend.CUDA.with_device_graphs(sizes))

    def of_size(self, size: int | None) -> AutoBackend:
        """Returns the backend for calls whose first argument has this first dimension: device
        graphs may be asked for at some sizes only."""
        return self if self.cuda is None else attrs.evolve(self, cuda=self.cuda.of_size(size))

    @property
    def sized_key(self) -> str:
        """What tells its kernels for all sizes from those of another `of_size`."""
        return repr(self)

    @property
    def fuses(self) -> bool:
        """Whether graphs are fused. True where the compiler has not been tried: most work.

        The partitioner asks, since recomputing pointwise ops is cheap in fused code only."""
        return not self._is_known() or problem() is None

    def compile(self, graph: Graph) -> Run:
        """Returns the callable of a pure graph."""
        if not is_of_cpu(graph):
            return _elsewhere(graph, self.cuda)
        why = problem() if self._is_known() else None
        if why is not None:
            warn_once(why)
            return REFERENCE.compile(graph)
        try:
            return (CPU if self.wait else CPU.without_waiting()).compile(graph)
        except BackendError as error:
            how = "runs op by op, as with backend='reference'"
            failure_reports.tell(error, f"graph {graph.name} {how}")
            return REFERENCE.compile(graph)

    def compile_sized(
        self, graph: Graph, refused: Callable[[str], None] = untold
    ) -> SizedRun | None:
        """Returns the run of a graph with symbolic sizes, compiled once for all of them. None where
        `compile` would choose the reference, or kernels for all sizes are not known to be right,
        after `refused` got the reason. It waits for the compiler."""
        if not is_of_cpu(graph):
            return self._sized_elsewhere(graph, refused)
        why = problem()
        if why is not None:
            refused(why)
            return None
        try:
            return CPU.compile_sized(graph, refused)
        except BackendError as error:
            failure_reports.note(error)
            failure_reports.forget(error)
            refused(str(error))
            return None

    def _sized_elsewhere(self, graph: Graph, refused: Callable[[str], None]) -> SizedRun | None:
        """`compile_sized` of a graph with values on other devices than the CPU."""
        if not cuda_drivers.devices_of(graph):
            refused(f"{graph.name}: it has values on a device without kernels")
            return None
        try:
            backend = self.cuda or cuda_backend.CUDA
            found: SizedRun | None = backend.compile_sized(graph, refused)
            return found
        except MissingExtraError as error:
            refused(f"{graph.name}: {error}")
            return None

    def _is_known(self) -> bool:
        """Whether `problem()` may be asked now: it tries the compiler, which takes a second unless
        that was done before."""
        return self.wait or is_known()


def _elsewhere(graph: Graph, backend: object) -> Run:
    """Returns the callable of a graph with values on other devices than the CPU."""
    if not cuda_drivers.devices_of(graph):
        return REFERENCE.compile(graph)
    return _or_reference(graph, backend or cuda_backend.CUDA)


def _or_reference(graph: Graph, backend: Any) -> Run:
    """Returns the callable of a graph on a CUDA device. Where the backend cannot compile it, warns
    and lets the reference run it (CUB-5)."""
    try:
        run: Run = backend.compile(graph)
        return run
    except (BackendError, MissingExtraError) as error:
        what = f"graph {graph.name} runs op by op, as with backend='reference'"
        warn_once(f"aotlite: {error}; {what}")
        return REFERENCE.compile(graph)


AUTO: AutoBackend = AutoBackend()
