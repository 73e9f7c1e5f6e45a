"""The protocol of a device's driver: memory, modules, launches, streams, graphs.

It speaks in plain numbers, as CUDA's functions do: streams are handles, memory is addresses. The
code above it does not know whether CuPy or an emulation on the CPU stands behind it. Spec:
`specs/cuda_backend.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from aotlite.backends.cuda.emit.cuda_program import Launch, PrintedKernels
from aotlite.backends.cuda.target import Target
from aotlite.backends.loops.program import Gemm, LoopProgram
from aotlite.ir.arrays import ArrayBackend
from aotlite.ir.dtypes import DType

Launcher = Callable[[int, int, int], Any]
"""Launches one kernel: takes the stream, the address of pointers to its arguments, and 0.

The pointers and their targets are read before it returns; the kernel may run later.
"""

Product = Callable[[int, int, int, int], Any]
"""Launches a matrix product: takes the stream and the addresses of A, B and C."""


class DeviceModule(Protocol):
    """Kernels loaded on a device."""

    def launcher(self, launch: Launch) -> Launcher:
        """Returns the launcher of a kernel, with the kernel's grid."""

    def at(self, program: Callable[[], LoopProgram]) -> DeviceModule:
        """Returns the kernels for all sizes as those for the sizes of this program, which has all
        their steps with numbers in place of symbols. Nothing is compiled."""


class DeviceGraph(Protocol):
    """Recorded work, with fixed addresses."""

    def launch(self, stream: int) -> None:
        """Launches the work, in the order of the stream."""


class Driver(Protocol):
    """The driver of a device. Work is ordered in the stream that is passed."""

    target: Target
    name: str
    is_current: Callable[[], bool] | None
    """Returns whether launches of this thread go to this device. None: they always do."""
    workspace: int
    """The bytes of workspace of matrix products in recorded work."""

    @property
    def address(self) -> Callable[[Any], int]:
        """Returns the address of a buffer of the device's array library."""

    @property
    def current_stream(self) -> Callable[[], int]:
        """Returns the handle of the current stream."""

    def explain(self, error: BaseException) -> None:
        """Raises a DeviceError for an error of the device; returns for other errors."""

    def guarded(self, function: Callable[..., object], *args: object) -> Any:
        """Returns function(*args), called while this device is the current one."""

    def synchronize(self) -> None:
        """Waits for all work of the device."""

    def scratch(self, arrays: ArrayBackend, count: int) -> Callable[[], tuple[Any, int]]:
        """Returns an allocator of `count` bytes for one call: it returns (owner, address)."""

    def put(self, stream: int, address: int, data: bytes) -> None:
        """Writes at most `MOST_PUT` bytes of the host, which it reads before it returns."""

    def read(self, stream: int, address: int, count: int) -> bytes:
        """Returns `count` bytes of the device. Waits for the stream."""

    def move(self, stream: int, to: int, source: int, count: int) -> None:
        """Copies `count` bytes on the device."""

    def module(
        self, program: LoopProgram, printed: PrintedKernels, flags: Sequence[str]
    ) -> DeviceModule:
        """Returns the kernels of a program, compiled and loaded. Raises BackendError."""

    def product(self, gemm: Gemm, dtype: DType, *, tf32: bool) -> Product:
        """Returns the launcher of a matrix product by the vendor's library."""

    def capture(
        self, work: Callable[[], object], products: tuple[int, int] | None = None
    ) -> DeviceGraph:
        """Returns the launches of `work`, recorded and not run. Another stream is current inside.

        `products`: (address, bytes) of the workspace of products; None for work without products.
        """


MOST_PUT = 2048
"""The most bytes of the host that one launch brings along."""
PER_THREAD = 2
"""CUDA's handle of the per-thread default stream: one number for as many streams as threads."""
