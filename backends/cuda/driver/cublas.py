"""cuBLAS by its own functions, on CuPy's handles.

CuPy's functions refuse a stream whose work is recorded. The library does not, as long as what it
keeps between its kernels lies in memory that is given to it. Part of the driver by CuPy.
Spec: `specs/cuda_backend.md`.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aotlite.backends.cuda.target import Target
from aotlite.ir.errors import BackendError

COMPUTE_32F, COMPUTE_64F, COMPUTE_32F_TF32 = 68, 70, 77
"""In what a product is formed (`cublasComputeType_t`)."""
DEFAULT = -1
"""The library chooses how (`cublasGemmAlgo_t`)."""

_SIGNATURES = {
    "cublasSetStream_v2": "pp",
    "cublasSetWorkspace_v2": "ppz",
    "cublasGemmEx": "piiiiippiipiippiiii",
    "cublasGemmStridedBatchedEx": "piiiiippiilpiilppiiliii",
}
_TYPES = {
    "p": ctypes.c_void_p,
    "i": ctypes.c_int,
    "l": ctypes.c_longlong,
    "z": ctypes.c_size_t,
}


class _OfThread(threading.local):
    room: tuple[int, int] | None = None


class Cublas:
    """The library. `get_handle` gives this thread's; `error` makes what a status that is no success
    is raised as."""

    def __init__(
        self, library: Any, get_handle: Callable[[], int], error: Callable[[int], Exception]
    ) -> None:
        self.get_handle = get_handle
        self.error = error
        self.set_stream, self.set_workspace, self.one, self.batched = (
            getattr(library, name) for name in _SIGNATURES
        )
        self._of_thread = _OfThread()

    def begin(self, stream: int) -> int:
        """The handle for work on a stream."""
        handle = self.get_handle()
        # The first takes back what the second gave.
        self.check(self.set_stream(handle, stream))
        room = self._of_thread.room
        if room is not None:
            self.check(self.set_workspace(handle, *room))
        return handle

    def check(self, status: int) -> None:
        """Raises CuPy's error for what is no success."""
        if status:
            raise self.error(status)

    @contextmanager
    def using(self, room: tuple[int, int]) -> Iterator[None]:
        """Inside, this thread's products have these bytes, from an address on, between kernels."""
        handle = self.get_handle()  # one that is made allocates
        self._of_thread.room = room
        try:
            yield
        finally:
            self._of_thread.room = None
            self.set_stream(handle, 0)


def opened(cupy: Any) -> Cublas:
    """The library that CuPy uses. Raises BackendError where that is not installed."""
    try:
        module = _module()
        # What is looked for in a library is looked for in those that it is linked with, too.
        library = typed(ctypes.CDLL(module.__file__))
    except (ImportError, OSError, AttributeError) as error:
        raise BackendError(
            f"cuda: products of matrices need cuBLAS, which cannot be loaded ({error}), expected "
            "the library of CuPy's CUDA version: pip install 'cupy-cuda13x[ctk]', or of 12"
        ) from error
    return Cublas(library, cupy.cuda.get_cublas_handle, module.CUBLASError)


def _module() -> Any:
    """CuPy's. Its package loads cuBLAS first, wherever that was installed."""
    from cupy_backends.cuda.libs import cublas

    return cublas


def typed(library: Any) -> Any:
    """The library, whose functions know what they take. Raises AttributeError if one is absent."""
    for name, kinds in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes = [_TYPES[kind] for kind in kinds]
        function.restype = ctypes.c_int
    return library


def workspace_of(target: Target) -> int:
    """Bytes that products want between their kernels: what NVIDIA advises."""
    generation = int(target.architecture.removeprefix("sm_")) // 10
    return (32 if generation >= 9 else 8) << 20
