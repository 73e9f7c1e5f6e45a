"""cuBLAS by ctypes, on CuPy's handles.

CuPy's own functions refuse a stream that is being captured. cuBLAS does not, if its workspace is
memory that the caller gave it. Part of CuPy's driver. Spec: `specs/cuda_backend.md`.
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
    """The library. `get_handle` returns the calling thread's handle; `error` makes the exception of
    a status."""

    def __init__(
        self, library: object, get_handle: Callable[[], int], error: Callable[[int], Exception]
    ) -> None:
        self.get_handle = get_handle
        self.error = error
        self.set_stream, self.set_workspace, self.one, self.batched = (
            getattr(library, name) for name in _SIGNATURES
        )
        self._of_thread = _OfThread()

    def begin(self, stream: int) -> int:
        """Returns the handle for work on a stream."""
        handle = self.get_handle()
        # Setting the stream resets the workspace.
        self.check(self.set_stream(handle, stream))
        room = self._of_thread.room
        if room is not None:
            self.check(self.set_workspace(handle, *room))
        return handle

    def check(self, status: int) -> None:
        """Raises CuPy's error for a status other than success."""
        if status:
            raise self.error(status)

    @contextmanager
    def using(self, room: tuple[int, int]) -> Iterator[None]:
        """Gives this thread's products a workspace (address, bytes) for the length of a block."""
        handle = self.get_handle()  # making one allocates, which a capture does not allow
        self._of_thread.room = room
        try:
            yield
        finally:
            self._of_thread.room = None
            self.set_stream(handle, 0)


def opened(cupy: Any) -> Cublas:
    """Returns the cuBLAS that CuPy uses. Raises BackendError if it is not installed."""
    try:
        module = _module()
        # A symbol lookup in CuPy's module also searches the libraries that it is linked with.
        library = typed(ctypes.CDLL(module.__file__))
    except (ImportError, OSError, AttributeError) as error:
        raise BackendError(
            f"cuda: products of matrices need cuBLAS, which cannot be loaded ({error}), expected "
            "the library of CuPy's CUDA version: pip install 'cupy-cuda13x[ctk]', or of 12"
        ) from error
    return Cublas(library, cupy.cuda.get_cublas_handle, module.CUBLASError)


def _module() -> Any:
    """Returns CuPy's module of cuBLAS. Importing it loads cuBLAS, wherever that is installed."""
    from cupy_backends.cuda.libs import cublas

    return cublas


def typed(library: object) -> object:
    """Returns the library with its functions' types declared. Raises AttributeError if one is
    missing."""
    for name, kinds in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes = [_TYPES[kind] for kind in kinds]
        function.restype = ctypes.c_int
    return library


def workspace_of(target: Target) -> int:
    """Returns the bytes of workspace that NVIDIA recommends."""
    generation = int(target.architecture.removeprefix("sm_")) // 10
    return (32 if generation >= 9 else 8) << 20
