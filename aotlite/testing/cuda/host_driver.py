"""A device that is this process: the driver with which everything runs without a GPU.

Memory is the host's, kernels are compiled for the CPU (`hosting`) or evaluated by the NumPy
interpreter, and work runs at once. A mistake that a GPU may not report is an error here: arguments
that are not, or no longer, memory of the device, capture on the default stream, waiting during a
recording. Spec: `specs/cuda_backend.md`.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from aotlite.backends.cuda.driver.cubin_cache import loaded
from aotlite.backends.cuda.driver.driver_protocol import Launcher, Product
from aotlite.backends.cuda.emit.cuda_program import Launch, PrintedKernels
from aotlite.backends.cuda.execution.launch_plan import buffers_of
from aotlite.backends.cuda.target import H100, Target
from aotlite.backends.loops.interpreter.program_interpreter import KernelRun, strided
from aotlite.backends.loops.program import (
    Gemm,
    Kernel,
    LoopProgram,
    MatrixWindow,
    loads_of,
    writes,
)
from aotlite.backends.native.cache.trusted_folders import scratch
from aotlite.backends.native.libraries.shared_library import load
from aotlite.ir.arrays import NUMPY, ArrayBackend
from aotlite.ir.dtypes import DType, uint8
from aotlite.ir.errors import BackendError
from aotlite.testing.cuda.host_execution import (
    CHECKED,
    FLAGS,
    FORWARD,
    CheckedRegion,
    HostLibrary,
    compiled,
    compiler,
    model_version,
)

DEFAULT_STREAM = 0

Arguments = Sequence[int]


class HostDriver:
    """The driver of a device whose arrays are in the memory of this process.

    `address_of` gives the first byte of a buffer. `interprets`: kernels are evaluated by the
    interpreter of the loop IR, so that no compiler is needed. `order`: of the threads of a block,
    as `hosting` numbers them. `checked`: each access of a compiled kernel is (CUDA-4).
    """

    name = "host"
    is_current: Callable[[], bool] | None = None
    workspace = 192

    def __init__(
        self,
        address_of: Callable[[Any], int],
        *,
        target: Target = H100,
        interprets: bool = False,
        order: int = FORWARD,
        checked: bool = False,
    ) -> None:
        self.target = target
        self.interprets = interprets
        self.order = order
        self.checked = checked
        self.memory = _Memory()
        self.launches = 0
        """The number of launched kernels, without matrix products and copies."""
        self.waits = 0
        """The number of waits for the device."""
        self._address_of = address_of
        self._streams = _Streams()
        self._numbers = count(1)

    def explain(self, error: BaseException) -> None:
        pass

    # --- memory
    def address(self, buffer: object) -> int:
        found = self._address_of(buffer)
        self.memory.note(buffer, found)
        return found

    def scratch(self, arrays: ArrayBackend, count: int) -> Callable[[], tuple[object, int]]:
        def new() -> tuple[Any, int]:
            buffer = arrays.allocate(count, uint8)
            return buffer, self.address(buffer)

        return new

    def put(self, stream: int, address: int, data: bytes) -> None:
        self._refuse_in_capture("a value of the host is written")
        self.memory.check("put", address, len(data))
        ctypes.memmove(address, data, len(data))

    def read(self, stream: int, address: int, count: int) -> bytes:
        self._refuse_in_capture("memory is read")
        self.waits += 1
        self.memory.check("read", address, count)
        return ctypes.string_at(address, count)

    def move(self, stream: int, to: int, source: int, count: int) -> None:
        self._do(stream, partial(self._move, to, source, count))

    def _move(self, to: int, source: int, count: int) -> None:
        self.memory.check("move", source, count)
        self.memory.check("move", to, count)
        ctypes.memmove(to, source, count)

    # --- streams
    def guarded(self, function: Callable[..., object], *args: object) -> Any:
        return function(*args)

    def current_stream(self) -> int:
        return self._streams.current

    @property
    def is_recording(self) -> bool:
        """Whether this thread's work is recorded."""
        return self._streams.recorded is not None

    def synchronize(self) -> None:
        self._refuse_in_capture("the device is waited for")
        self.waits += 1

    @contextmanager
    def stream(self) -> Iterator[int]:
        """A new stream, which is current in the block."""
        before, self._streams.current = self._streams.current, next(self._numbers)
        try:
            yield self._streams.current
        finally:
            self._streams.current = before

    def capture(
        self, work: Callable[[], object], products: tuple[int, int] | None = None
    ) -> HostGraph:
        with self.stream() as stream:
            self._streams.products = products
            try:
                return self.captured(stream, work)
            finally:
                self._streams.products = None

    def captured(self, stream: int, work: Callable[[], object]) -> HostGraph:
        """Returns the launches of `work` on a stream, recorded and not run."""
        if stream == DEFAULT_STREAM:
            raise BackendError("cuda: capture is on the default stream, expected another one")
        if self.is_recording:
            raise BackendError("cuda: work is recorded already, expected one capture at a time")
        self._streams.recorded = (stream, [])
        try:
            work()
            return HostGraph(self._streams.recorded[1])
        finally:
            self._streams.recorded = None

    def _refuse_in_capture(self, what: str) -> None:
        if self.is_recording:
            raise BackendError(f"cuda: {what} while work is recorded, expected work alone")

    def _do(self, stream: int, work: Callable[[], object]) -> None:
        """Runs the work, or records it."""
        recorded = self._streams.recorded
        if recorded is None:
            work()
        elif recorded[0] != stream:
            raise BackendError("cuda: work goes to a stream that is not recorded, expected none")
        else:
            recorded[1].append(work)

    # --- kernels
    def module(
        self, program: LoopProgram, printed: PrintedKernels, flags: Sequence[str] = ()
    ) -> HostModule:
        """Returns the kernels, which `HostModule.at` gives the sizes of a call if they are for all
        sizes."""
        library = None if self.interprets else self._compiled(program, printed)
        return HostModule(self, program, library)

    def _compiled(self, program: LoopProgram, printed: PrintedKernels) -> HostLibrary:
        flags = CHECKED if self.checked else ()
        each = printed.functions
        counts = {launch.name: len(launch.buffers) + len(launch.sizes) for launch in each}
        identity = (printed.text, " ".join(FLAGS + flags), str(compiler()), model_version())

        def image() -> bytes:
            with scratch() as folder:
                return folder.read(compiled(printed.text, counts, Path(folder.path), *flags).name)

        make: Callable[[str], HostLibrary] = lambda path: HostLibrary(load(path))
        return loaded("host", identity, program.name, ".so", image, make)

    def product(self, gemm: Gemm, dtype: DType, *, tf32: bool) -> Product:
        def launch(stream: int, *places: int) -> None:
            room = self._streams.products
            if self.is_recording and (room is None or room[1] < self.workspace):
                raise BackendError(f"cuda: a recorded product has {room}, expected memory for it")
            self._do(stream, partial(self._multiply, gemm, dtype, places, room))

        return launch

    def _multiply(
        self, gemm: Gemm, dtype: DType, places: Sequence[int], room: tuple[int, int] | None
    ) -> None:
        if room is not None:  # no other object may own memory there
            self.memory.check("product", *room)
            ctypes.memset(room[0], 0xFF, room[1])
        shapes = ((gemm.m, gemm.k), (gemm.k, gemm.n), (gemm.m, gemm.n))
        windows = (gemm.a, gemm.b, gemm.c)
        a, b, c = (
            self._matrix(place, window, (*gemm.batch, *shape), dtype)
            for place, window, shape in zip(places, windows, shapes, strict=True)
        )
        NUMPY.quiet(_multiply, a, b, c)

    def _matrix(
        self, place: int, window: MatrixWindow, shape: tuple[int, ...], dtype: DType
    ) -> np.ndarray:
        strides = (*window.batch, window.row, window.column)
        reach = 1 + sum([(n - 1) * step for n, step in zip(shape, strides, strict=True)])
        size = 0 if 0 in shape else reach
        self.memory.check("product", place, size * dtype.itemsize)
        return strided(array_at(place, size, dtype), 0, shape, strides)


def _multiply(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    if a.dtype.itemsize < 4:  # formed in float32, and rounded once
        a, b = a.astype(np.float32), b.astype(np.float32)
    c[...] = np.matmul(a, b)


def array_at(address: int, size: int, dtype: DType) -> np.ndarray:
    """The flat array over memory of this process."""
    if not size:
        return np.empty(0, dtype.numpy)
    memory = (ctypes.c_char * (size * dtype.itemsize)).from_address(address)
    return np.ndarray((size,), dtype.numpy, memory)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------ kernels
class HostModule:
    """Kernels of a program, compiled or not."""

    def __init__(
        self, driver: HostDriver, program: LoopProgram, library: HostLibrary | None
    ) -> None:
        self.driver = driver
        self.library = library
        self.sizes = {b.number: b.size * b.dtype.itemsize for b in program.buffers}
        if library is None:
            self.run = _interpreted(program)
        else:
            self.run = partial(_launched, library, program, driver.order)

    def at(self, program: Callable[[], LoopProgram]) -> HostModule:
        """Returns the kernels at the sizes of a program."""
        return HostModule(self.driver, program(), self.library)

    def launcher(self, launch: Launch) -> Launcher:
        number = len(launch.buffers) + len(launch.sizes)

        def start(stream: int, parameters: int, extra: int) -> None:
            pointers = (ctypes.c_void_p * number).from_address(parameters) if number else ()
            arguments = [ctypes.c_uint64.from_address(at or 0).value for at in pointers]
            self.driver._do(stream, partial(self._run, launch, arguments))

        return start

    def _run(self, launch: Launch, arguments: Arguments) -> None:
        for place, number in zip(arguments, launch.buffers, strict=False):  # sizes come after
            self.driver.memory.check(launch.name, place, self.sizes[number])
        self.driver.launches += 1
        self.run(launch, arguments)


def _launched(
    library: HostLibrary,
    program: LoopProgram,
    order: int,
    launch: Launch,
    arguments: Arguments,
) -> None:
    buffers, kernel = buffers_of(program), _kernel(program, launch)
    given = [buffers[number] for number in launch.buffers]
    both = {load.args[0] for load in loads_of(kernel)} & writes(kernel)
    memory = [
        CheckedRegion(
            place, b.size * b.dtype.itemsize, b.dtype.itemsize, b.number, b.number in both
        )
        for place, b in zip(arguments, given, strict=False)
        if b.size
    ]
    how = (launch.name, arguments, launch.blocks, launch.threads)
    library.launch(*how, shared=launch.shared, order=order, memory=memory)


def _kernel(program: LoopProgram, launch: Launch) -> Kernel:
    """The kernel of a launch, whose name ends with its place among the steps."""
    step = program.steps[launch.step]
    assert type(step) is Kernel
    return step


def _interpreted(program: LoopProgram) -> Callable[[Launch, Arguments], None]:
    buffers = buffers_of(program)

    def run(launch: Launch, arguments: Arguments) -> None:
        kernel = _kernel(program, launch)
        memory: Mapping[int, Any] = {
            number: array_at(place, buffers[number].size, buffers[number].dtype)
            for number, place in zip(launch.buffers, arguments, strict=False)
        }
        NUMPY.quiet(KernelRun(kernel, dict(memory)).run)

    return run


class HostGraph:
    """A recorded list of launches."""

    def __init__(self, work: Sequence[Callable[[], Any]]) -> None:
        self.work = work

    def launch(self, stream: int) -> None:
        for each in self.work:
            each()


# ------------------------------------------------------------------------------------------- checks
class _Streams(threading.local):
    """The current stream of each thread, and its recording."""

    current = DEFAULT_STREAM
    recorded: tuple[int, list[Callable[[], object]]] | None = None
    products: tuple[int, int] | None = None


class _Memory:
    """The buffers whose addresses were taken, while they live."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._blocks: dict[int, tuple[int, weakref.ref[Any]]] = {}
        self._most = 64

    def note(self, buffer: Any, address: int) -> None:
        known = self._blocks.get(address)
        if known is None or known[1]() is None or known[0] < buffer.nbytes:
            if known is None:
                self._starts.insert(bisect_right(self._starts, address), address)
            self._blocks[address] = buffer.nbytes, weakref.ref(buffer)
        if len(self._starts) > self._most:
            self._forget()

    def _forget(self) -> None:
        self._blocks = {k: v for k, v in self._blocks.items() if v[1]() is not None}
        self._starts = sorted(self._blocks)
        self._most = 2 * len(self._starts) + 64

    def check(self, what: str, address: int, count: int) -> None:
        """Raises BackendError unless these bytes are memory of the device."""
        if not count:
            return
        place = bisect_right(self._starts, address)
        # A buffer may be inside another one that begins before it.
        for start in reversed(self._starts[max(place - 4, 0) : place]):
            nbytes, buffer = self._blocks[start]
            if buffer() is not None and address + count <= start + nbytes:
                return
        raise BackendError(
            f"{what}: an argument is {address:#x}, expected {count} bytes of a buffer of the "
            "device that is still there"
        )
