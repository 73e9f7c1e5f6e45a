"""The backend `auto`: the fastest one that works here, chosen for each graph by its devices.

Input: a pure graph; output: what `cpu`, `cuda` or the reference compiles of it. Specs:
`specs/cpu_backend.md`, `specs/cuda_backend.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from aotlite.backends.cpu.backend import CPU, is_of_cpu, problem
from aotlite.backends.native.compiler import failure_reports
from aotlite.backends.native.compiler.toolchain import is_known
from aotlite.backends.native.warn_once import warn_once
from aotlite.backends.protocol import Run
from aotlite.backends.reference import REFERENCE
from aotlite.ir.deferred import deferred
from aotlite.ir.errors import BackendError, MissingExtraError
from aotlite.ir.graph import Graph

if TYPE_CHECKING:
    from aotlite.backends.cuda import backend as cuda_backend
    from aotlite.backends.cuda.driver import driver_registry as cuda_drivers
else:  # most graphs are of the CPU
    cuda_backend = deferred("aotlite.backends.cuda.backend")
    cuda_drivers = deferred("aotlite.backends.cuda.driver.driver_registry")


@attrs.frozen
class AutoBackend:
    """The fastest backend that works here: `cpu`, or the reference without a C compiler.

    Who does not wait gets `cpu`, whose calls run on the interpreter, until a compiler was tried.
    """

    wait: bool = attrs.field(default=True, kw_only=True)
    cuda: Any = attrs.field(default=None, kw_only=True)
    """Who compiles for CUDA devices; None: the backend of that name."""

    name = "auto"
    is_compact = True
    trusted = True

    def without_waiting(self) -> AutoBackend:
        """One that compiles in the background."""
        return attrs.evolve(self, wait=False)

    def with_device_graphs(self, sizes: frozenset[int] | None) -> AutoBackend:
        """One that records launches on CUDA devices."""
        return attrs.evolve(self, cuda=cuda_backend.CUDA.with_device_graphs(sizes))

    def of_size(self, size: int | None) -> AutoBackend:
        """The backend of an entry whose first argument has this first dimension."""
        return self if self.cuda is None else attrs.evolve(self, cuda=self.cuda.of_size(size))

    @property
    def fuses(self) -> bool:
        """Whether graphs are compiled, as far as one can tell: most compilers work."""
        return not self._is_known() or problem() is None

    def compile(self, graph: Graph) -> Run:
        """The callable of a pure graph."""
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

    def _is_known(self) -> bool:
        """Whether it is known if a compiler works; who waits has it tried."""
        return self.wait or is_known()


def _elsewhere(graph: Graph, backend: Any) -> Run:
    """The callable of a graph with values on another device: a CUDA device's kernels, or ops."""
    if not cuda_drivers.devices_of(graph):
        return REFERENCE.compile(graph)
    return _or_reference(graph, backend or cuda_backend.CUDA)


def _or_reference(graph: Graph, backend: Any) -> Run:
    """The callable of a graph on a CUDA device: kernels, or what the user is told (CUB-5)."""
    try:
        run: Run = backend.compile(graph)
        return run
    except (BackendError, MissingExtraError) as error:
        what = f"graph {graph.name} runs op by op, as with backend='reference'"
        warn_once(f"aotlite: {error}; {what}")
        return REFERENCE.compile(graph)


AUTO: AutoBackend = AutoBackend()
