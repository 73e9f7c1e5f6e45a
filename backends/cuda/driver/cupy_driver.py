"""The driver of a CUDA device by CuPy: its bindings of the CUDA driver, the runtime and cuBLAS.

Launches go through CuPy's `launchKernel`, one C call with plain numbers; `argument_tables` prepares
the arguments. Spec: `specs/cuda_backend.md`.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from operator import attrgetter
from typing import Any

from aotlite.backends.cuda.driver import nvrtc
from aotlite.backends.cuda.driver.cubin_cache import loaded
from aotlite.backends.cuda.driver.cublas import Cublas, opened, workspace_of
from aotlite.backends.cuda.driver.cublas_products import product
from aotlite.backends.cuda.driver.driver_protocol import MOST_PUT, Launcher, Product
from aotlite.backends.cuda.driver.kernel_resources import compile_without_spills
from aotlite.backends.cuda.emit.cuda_program import Launch, PrintedKernels
from aotlite.backends.cuda.target import Target
from aotlite.backends.loops.program import Gemm, LoopProgram
from aotlite.backends.native.cache.disk_cache import read
from aotlite.ir.dtypes import DType
from aotlite.ir.errors import BackendError, DeviceError
from aotlite.ir.forks import cached_property

DEFAULT_SHARED = 48 << 10
"""The bytes of dynamic shared memory that a kernel may use without a function attribute."""

_WORDS = MOST_PUT // 8
_PUT = f"""struct Words {{ unsigned long long at[{_WORDS}]; }};
extern "C" __global__ void put(unsigned long long *to, Words words, unsigned count)
{{
    for (unsigned k = threadIdx.x; k < count; k += blockDim.x) to[k] = words.at[k];
}}
"""
"""A kernel that writes its arguments to memory. So values of the host reach the device with a
launch, without a copy from pageable memory, for which the host would wait."""


class _Threads(threading.local):
    """For each thread whether it has a context on the device."""

    has_context = False


class _PutArguments(ctypes.Structure):
    _fields_ = (
        ("to", ctypes.c_uint64),
        ("words", ctypes.c_uint64 * _WORDS),
        ("count", ctypes.c_uint32),
    )


class CupyDriver:
    """The driver of the device of a CuPy array library."""

    name = "cupy"

    def __init__(self, arrays: Any) -> None:
        self.cupy = arrays.cupy
        self.index: int = arrays.index
        cuda = self.cupy.cuda
        self.runtime, self.driver = cuda.runtime, cuda.driver
        self.address: Callable[[Any], int] = attrgetter("address")
        get_stream = cuda.get_current_stream
        self.current_stream: Callable[[], int] = lambda: get_stream().ptr
        self._threads = _Threads()
        self.is_current: Callable[[], bool] | None = self._asks()
        self.target = self.guarded(_target, cuda.Device(self.index))
        self.workspace = workspace_of(self.target)

    def _asks(self) -> Callable[[], bool]:
        """Returns the function that tells whether this thread's launches go to the device."""
        threads = self._threads
        if self.runtime.getDeviceCount() == 1:
            return lambda: threads.has_context
        current, index = self.runtime.getDevice, self.index
        return lambda: threads.has_context and current() == index

    def guarded(self, function: Callable[..., object], *args: object) -> Any:
        with self.cupy.cuda.Device(self.index):
            if not self._threads.has_context:
                # The runtime makes a thread's context at its first call. A launch goes to the
                # driver, and does not count.
                self.runtime.memGetInfo()
                self._threads.has_context = True
            return function(*args)

    def synchronize(self) -> None:
        self.guarded(self.runtime.deviceSynchronize)

    def explain(self, error: BaseException) -> None:
        """Raises a DeviceError for an error of CUDA; returns for other errors."""
        if type(error).__module__.startswith("cupy_backends."):
            raise DeviceError(
                f"cuda: the device says {error}, expected no fault; launches are asynchronous, so "
                "that an earlier one may be at fault: CUDA_LAUNCH_BLOCKING=1 in the environment "
                "shows which"
            ) from error

    # --- memory
    def scratch(self, arrays: Any, count: int) -> Callable[[], tuple[object, int]]:
        # Straight from CuPy's pool, without an array: only the kernels of a call use it.
        allocate, full = self.cupy.cuda.alloc, self.cupy.cuda.memory.OutOfMemoryError

        def new() -> tuple[Any, int]:
            try:
                pointer = allocate(count)
            except full:  # `room` frees the pool, and tries again
                memory = arrays.room(count)
                return memory, memory.address
            return pointer, pointer.ptr

        return new

    def put(self, stream: int, address: int, data: bytes) -> None:
        arguments = _PutArguments(to=address, count=len(data) // 8)
        ctypes.memmove(arguments.words, data, len(data))
        first = ctypes.addressof(arguments)
        fields = (_PutArguments.to, _PutArguments.words, _PutArguments.count)
        pointers = (ctypes.c_void_p * 3)(*[first + field.offset for field in fields])
        self._put(stream, ctypes.addressof(pointers), 0)

    @cached_property
    def _put(self) -> Launcher:
        printed = PrintedKernels(_PUT, (Launch("put", (0, 1, 2), 1, 64),))
        return self._loaded("put", printed, ()).launcher(printed.launches[0])

    def read(self, stream: int, address: int, count: int) -> bytes:
        # Pinned memory makes the copy asynchronous, in the order of the stream.
        room = self.cupy.cuda.alloc_pinned_memory(count)
        kind = self.runtime.memcpyDeviceToHost
        self.runtime.memcpyAsync(room.ptr, address, count, kind, stream)
        self.runtime.streamSynchronize(stream)
        return ctypes.string_at(room.ptr, count)

    def move(self, stream: int, to: int, source: int, count: int) -> None:
        kind = self.runtime.memcpyDeviceToDevice
        self.runtime.memcpyAsync(to, source, count, kind, stream)

    # --- kernels
    def module(
        self, program: LoopProgram, printed: PrintedKernels, flags: Sequence[str]
    ) -> CupyModule:
        return self._loaded(program.name, printed, tuple(flags))

    def _loaded(self, name: str, printed: PrintedKernels, flags: tuple[str, ...]) -> CupyModule:
        architecture = self.target.architecture
        identity = (printed.text, " ".join(flags), architecture, nvrtc.version())

        def make() -> bytes:
            return compile_without_spills(printed.text, self.target, flags)[0]

        return loaded(("cupy", self.index), identity, name, ".cubin", make, self._load)

    def _load(self, path: str) -> CupyModule:
        try:
            return self.guarded(CupyModule, self.cupy, read(path))
        except Exception as error:
            raise BackendError(
                f"cuda: the kernels in {path} cannot be loaded ({error}), expected some for "
                f"{self.target.architecture}"
            ) from error

    def product(self, gemm: Gemm, dtype: DType, *, tf32: bool) -> Product:
        return product(self.runtime, self._cublas, gemm, dtype, tf32=tf32)

    @cached_property
    def _cublas(self) -> Cublas:
        return opened(self.cupy)

    # --- graphs
    def capture(
        self, work: Callable[[], object], products: tuple[int, int] | None = None
    ) -> CupyGraph:
        # CUDA cannot capture the default stream, nor one that waits for it.
        stream = self.guarded(partial(self.cupy.cuda.Stream, non_blocking=True))
        try:
            with self._cublas.using(products) if products else nullcontext():
                return CupyGraph(self.runtime, _captured(stream, work))
        except Exception as error:
            self.explain(error)  # the caller then runs without a recording (CUG-5)
            raise


def _captured(stream: Any, work: Callable[[], object]) -> object:
    """Returns CuPy's graph of the work on a stream."""
    with stream:
        stream.begin_capture()
        try:
            work()
        except BaseException:
            with suppress(Exception):  # a capture that has failed raises here, too
                stream.end_capture()
            raise
        return stream.end_capture()


class CupyModule:
    """The kernels of a cubin, loaded on the current device."""

    def __init__(self, cupy: Any, image: bytes) -> None:
        self.driver = cupy.cuda.driver
        self.module = cupy.cuda.function.Module()
        self.module.load(image)
        self.functions: dict[str, Any] = {}
        """Functions in use. They keep the module loaded."""

    def at(self, program: Callable[[], LoopProgram]) -> CupyModule:
        """Returns itself: sizes are arguments of launches."""
        return self

    def launcher(self, launch: Launch) -> Launcher:
        function = self.functions.get(launch.name)
        if function is None:
            function = self.functions[launch.name] = self.module.get_function(launch.name)
        shared = launch.shared
        if shared > DEFAULT_SHARED:
            most = self.driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self.driver.funcSetAttribute(function.ptr, most, shared)
        grid = (launch.blocks, 1, 1, launch.threads, 1, 1)
        return partial(self.driver.launchKernel, function.ptr, *grid, shared)


class CupyGraph:
    """A recorded CUDA graph."""

    def __init__(self, runtime: Any, graph: Any) -> None:
        self.graph = graph
        self._launch = partial(runtime.graphLaunch, graph.graphExec)

    def launch(self, stream: int) -> None:
        self._launch(stream)


def _target(device: Any) -> Target:
    """Returns the target of a device."""
    of = device.attributes
    return Target(
        f"sm_{device.compute_capability}",
        of["MultiProcessorCount"],
        threads=of["MaxThreadsPerMultiProcessor"],
        registers=of["MaxRegistersPerMultiprocessor"],
        shared=of["MaxSharedMemoryPerBlockOptin"],
        cache=of["L2CacheSize"],
    )
