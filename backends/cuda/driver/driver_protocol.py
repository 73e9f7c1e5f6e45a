"""The way to a device, as all above it sees it: memory, modules, launches, streams, graphs.

A protocol of plain numbers, which CUDA's own functions take: streams are handles, memory is
addresses. Nothing above it knows whether CuPy or the CPU is behind it. Spec:
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

Those pointers, and what they point to, are read before it returns; the kernel may run later.
"""

Product = Callable[[int, int, int, int], Any]
"""A product of matrices: takes the stream and the addresses where A, B and C begin."""


class DeviceModule(Protocol):
    """Kernels on a device."""

    def launcher(self, launch: Launch) -> Launcher:
        """What launches a kernel with its own grid."""


class DeviceGraph(Protocol):
    """Recorded work, with the addresses that it was recorded with."""

    def launch(self, stream: int) -> None:
        """Does the work anew, in the order of the stream."""


class Driver(Protocol):
    """A device. Whatever is asked of it is ordered in the stream that is given."""

    target: Target
    name: str
    is_current: Callable[[], bool] | None
    """Whether launches of this thread go to this device; None where they always do."""
    workspace: int
    """Bytes that products of matrices in recorded work have for what lies between their kernels."""

    @property
    def address(self) -> Callable[[Any], int]:
        """The first byte of a buffer of the device's array library."""

    @property
    def current_stream(self) -> Callable[[], int]:
        """The handle of the stream that work goes to where none is named."""

    def explain(self, error: BaseException) -> None:
        """Raises an error of ours for one of the device's; of others nothing is said."""

    def guarded(self, function: Callable[..., Any], *args: Any) -> Any:
        """`function(*args)` while this device is the current one."""

    def synchronize(self) -> None:
        """Waits for all work of the device."""

    def scratch(self, arrays: ArrayBackend, count: int) -> Callable[[], tuple[Any, int]]:
        """What allocates so many bytes, for the work of one call: their owner and address."""

    def put(self, stream: int, address: int, data: bytes) -> None:
        """Writes at most `MOST_PUT` bytes of the host, which are read before it returns."""

    def read(self, stream: int, address: int, count: int) -> bytes:
        """So many bytes of the device. Waits for the stream."""

    def move(self, stream: int, to: int, source: int, count: int) -> None:
        """Copies bytes from one place of the device to another."""

    def module(
        self, program: LoopProgram, printed: PrintedKernels, flags: Sequence[str]
    ) -> DeviceModule:
        """The kernels of a program, compiled and loaded. Raises BackendError."""

    def product(self, gemm: Gemm, dtype: DType, *, tf32: bool) -> Product:
        """What computes a product of matrices by the vendor's library."""

    def capture(
        self, work: Callable[[], Any], products: tuple[int, int] | None = None
    ) -> DeviceGraph:
        """What `work` asks for, recorded and not done; inside, another stream is current.

        `products`: the address and the number of those bytes; None for work without products.
        """


MOST_PUT = 2048
"""Bytes of the host that come with one launch."""
PER_THREAD = 2
"""CUDA's handle of the default stream of each thread: one number, as many streams as threads."""
