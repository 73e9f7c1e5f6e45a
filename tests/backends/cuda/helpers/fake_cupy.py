"""A module with the functions of CuPy that the driver uses; it records their calls."""

from __future__ import annotations

import ctypes
import threading
from types import SimpleNamespace
from typing import Any

ATTRIBUTES = {
    "MultiProcessorCount": 132,
    "MaxThreadsPerMultiProcessor": 2048,
    "MaxRegistersPerMultiprocessor": 65536,
    "MaxSharedMemoryPerBlockOptin": 232448,
    "L2CacheSize": 52428800,
}


class CUDADriverError(RuntimeError):
    """As CuPy's, by its module."""


CUDADriverError.__module__ = "cupy_backends.cuda.api.driver"


def device_class(fake: FakeCupy) -> Any:
    """CuPy's `Device`."""

    class Device:
        compute_capability = "90"
        attributes = ATTRIBUTES

        def __init__(self, index: int) -> None:
            self.index = index

        def __enter__(self) -> Any:
            self.before, fake.current = fake.current, self.index
            return self

        def __exit__(self, *error: Any) -> None:
            fake.current = self.before

    return Device


def stream_class(fake: FakeCupy) -> Any:
    """CuPy's `Stream`."""

    class Stream:
        ptr = 77

        def __init__(self, *, non_blocking: bool) -> None:
            assert non_blocking

        def __enter__(self) -> Any:
            self.before, fake.stream = fake.stream, self.ptr
            return self

        def __exit__(self, *error: Any) -> None:
            fake.stream = self.before

        def begin_capture(self) -> None:
            fake.calls.append(("begin_capture", fake.stream))

        def end_capture(self) -> Any:
            fake.calls.append(("end_capture", fake.stream))
            return SimpleNamespace(graphExec=99)

    return Stream


def module_class(fake: FakeCupy) -> Any:
    """CuPy's `Module`."""

    class Module:
        def load(self, image: bytes) -> None:
            if image in fake.refused:
                raise CUDADriverError("CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image")
            fake.calls.append(("load", image, fake.current))

        def get_function(self, name: str) -> Any:
            return SimpleNamespace(ptr=1000 + len(name), name=name)

    return Module


class FakeCupy:
    """`calls`: the name of each function that was called, and its arguments."""

    def __init__(self, devices: int = 1, current: int = 0) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.current = current
        self.stream = 0
        self.contexts: list[int] = []
        """Threads that have asked for one."""
        self.refused: list[bytes] = []
        """Images that cannot be loaded."""
        self.cuda = SimpleNamespace(
            Device=device_class(self),
            Stream=stream_class(self),
            function=SimpleNamespace(Module=module_class(self)),
            get_current_stream=lambda: SimpleNamespace(ptr=self.stream),
            get_cublas_handle=lambda: 55,
            alloc_pinned_memory=self._pinned,
            runtime=self._runtime(devices),
            driver=SimpleNamespace(
                CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
                funcSetAttribute=self._noted("funcSetAttribute"),
                launchKernel=self._launched,
            ),
        )

    def _runtime(self, devices: int) -> Any:
        return SimpleNamespace(
            getDevice=lambda: self.current,
            getDeviceCount=lambda: devices,
            memGetInfo=lambda: self.contexts.append(threading.get_ident()),
            memcpyAsync=self._copied,
            memcpyDeviceToHost=2,
            memcpyDeviceToDevice=3,
            streamSynchronize=self._noted("streamSynchronize"),
            deviceSynchronize=self._noted("deviceSynchronize"),
            graphLaunch=self._noted("graphLaunch"),
            CUDA_R_16F=2,
            CUDA_R_16BF=14,
            CUDA_R_32F=0,
            CUDA_R_64F=1,
        )

    def _noted(self, name: str) -> Any:
        def call(*args: Any) -> None:
            self.calls.append((name, *args))

        return call

    def _pinned(self, count: int) -> Any:
        room = ctypes.create_string_buffer(count)
        return SimpleNamespace(ptr=ctypes.addressof(room), room=room)

    def _copied(self, to: int, source: int, count: int, kind: int, stream: int) -> None:
        self.calls.append(("memcpyAsync", count, kind, stream))
        ctypes.memmove(to, source, count)

    def _launched(self, function: int, *rest: Any) -> None:
        """As CUDA does, the pointers are followed before it returns."""
        *grid, stream, parameters, extra = rest
        first = ctypes.c_void_p.from_address(parameters).value
        value = ctypes.c_uint64.from_address(first).value if first else None
        self.calls.append(("launchKernel", function, tuple(grid), stream, value, extra))
