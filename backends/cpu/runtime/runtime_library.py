"""The runtime library of a process, in C: thread pool, matrix products, scratch memory.

It is compiled once, like a kernel, and kept in the cache. Compiled graphs get it as a struct of
function pointers (`runtime.h`), so that they link with nothing. Spec: `specs/cpu_runtime.md`.
"""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.resources import files

import attrs

from aotlite.backends.blas import Blas, find_blas
from aotlite.backends.cpu.runtime.result_memory import physical_memory
from aotlite.backends.native.compiler import failure_reports
from aotlite.backends.native.libraries.background import in_background
from aotlite.backends.native.libraries.library_loading import load_c
from aotlite.backends.threads import observe
from aotlite.ir.errors import BackendError
from aotlite.ir.forks import lock

_PARTS = ("runtime.c", "products.c", "arenas.c", "entries.c", "launch.c")
_LARGEST_SHARE = 8
"""Idle scratch memory takes at most this part of the machine's memory."""


class _BlasFunctions(ctypes.Structure):
    """`al_blas`"""

    _fields_ = (
        ("sgemm", ctypes.c_void_p),
        ("dgemm", ctypes.c_void_p),
        ("get_threads", ctypes.c_void_p),
        ("set_threads", ctypes.c_void_p),
        ("wide", ctypes.c_int32),
    )


@attrs.frozen
class Runtime:
    """The loaded library, set up, and the BLAS that it calls for products."""

    library: ctypes.CDLL
    blas: Blas | None

    def functions(self) -> int:
        """Returns the address of the C struct `al_runtime` for the present number of threads."""
        return int(self.library.al_runtime_now())

    def workers(self) -> int:
        """Returns the number of running threads of the pool."""
        return int(self.library.al_workers())

    def idle_bytes(self) -> int:
        """Returns the bytes of scratch memory that no run uses."""
        return int(self.library.al_idle_bytes())

    def limit_idle_bytes(self, limit: int) -> None:
        """Limits the idle scratch memory from now on; 0 frees it."""
        self.library.al_limit_arenas(limit)


@cache
def declarations() -> str:
    """Returns the C declarations of the runtime, with which each program's text begins."""
    return _text("runtime.h")


def runtime_text() -> str:
    """Returns the text of the whole library as one C file."""
    return declarations() + "".join(map(_text, _PARTS))


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


_lock = lock()
_loaded: list[Runtime] = []


def load_runtime() -> Runtime:
    """Returns the runtime of this process. The first call compiles it or finds it in the cache.

    Raises BackendError if there is no compiler, or it fails.
    """
    if not _loaded:
        with _lock:
            if not _loaded:
                _loaded.append(_load())
    return _loaded[0]


def begin_loading() -> None:
    """Loads the runtime in another thread if it is not loaded: the graph is compiled meanwhile.

    `load_runtime` waits for it, or raises.
    """
    if not _loaded:
        in_background(_try_loading)


def _try_loading() -> None:
    """Loads the runtime. An error is dropped here: `load_runtime` will raise it again."""
    if failure_reports.given_up() is not None:
        return
    try:
        load_runtime()
    except BackendError as error:
        failure_reports.note(error)
        failure_reports.forget(error)


def _load() -> Runtime:
    runtime = set_up(load_c(runtime_text(), "runtime"))
    observe(runtime.library.al_set_threads)
    return runtime


def set_up(library: ctypes.CDLL) -> Runtime:
    """Returns the runtime of a library compiled from `runtime_text`. Call once for each library."""
    blas = find_blas()
    _declare(library)
    functions = _BlasFunctions()
    if blas is not None:
        addresses = (blas.sgemm, blas.dgemm, blas.get_threads, blas.set_threads)
        functions = _BlasFunctions(*addresses, blas.wide)
    if library.al_setup(ctypes.byref(functions)):
        raise BackendError("runtime: the thread pool cannot be set up in this process")
    library.al_limit_arenas(physical_memory() // _LARGEST_SHARE)
    return Runtime(library, blas)


def _declare(library: ctypes.CDLL) -> None:
    """Declares the types of the library's functions for ctypes."""
    library.al_setup.argtypes = [ctypes.c_void_p]
    library.al_set_threads.argtypes = [ctypes.c_int32]
    library.al_set_threads.restype = None
    library.al_runtime_now.restype = ctypes.c_void_p
    library.al_limit_arenas.argtypes = [ctypes.c_int64]
    library.al_limit_arenas.restype = None
    library.al_idle_bytes.restype = ctypes.c_int64
