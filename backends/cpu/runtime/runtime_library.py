"""The runtime library of a process: thread pool, matrix products, scratch memory; written in C.

Compiled once, like every kernel, and handed to compiled graphs as a struct of functions
(`runtime.h`). Spec: `specs/cpu_runtime.md`.
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
    """The library, set up, and the BLAS that its products are made of."""

    library: ctypes.CDLL
    blas: Blas | None

    def functions(self) -> int:
        """The address of the `al_runtime` for the present number of threads."""
        return int(self.library.al_runtime_now())

    def workers(self) -> int:
        """How many threads the pool has running."""
        return int(self.library.al_workers())

    def idle_bytes(self) -> int:
        """How much scratch memory is kept that no run uses."""
        return int(self.library.al_idle_bytes())

    def limit_idle_bytes(self, limit: int) -> None:
        """Keeps at most so much, from now on: 0 gives back what is idle."""
        self.library.al_limit_arenas(limit)


@cache
def declarations() -> str:
    """C text that a graph's file begins with: what the runtime gives. It includes nothing."""
    return _text("runtime.h")


def runtime_text() -> str:
    """The whole library as one C file."""
    return declarations() + "".join(map(_text, _PARTS))


def _text(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


_lock = lock()
_loaded: list[Runtime] = []


def load_runtime() -> Runtime:
    """The process's runtime; compiled, or found in the disk cache, at the first call.

    Raises BackendError where there is no compiler, or where it fails.
    """
    if not _loaded:
        with _lock:
            if not _loaded:
                _loaded.append(_load())
    return _loaded[0]


def begin_loading() -> None:
    """Lets another thread load the runtime, where nobody has: graphs can be compiled meanwhile.

    Whoever needs it calls `load_runtime`, which waits, or raises.
    """
    if not _loaded:
        in_background(_try_loading)


def _try_loading() -> None:
    """Loads the runtime; who needs it is told why that is impossible."""
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
    """A runtime of a library that was compiled from `runtime_text`. Once for each library."""
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
    """Types of what the library exports, for ctypes."""
    library.al_setup.argtypes = [ctypes.c_void_p]
    library.al_set_threads.argtypes = [ctypes.c_int32]
    library.al_set_threads.restype = None
    library.al_runtime_now.restype = ctypes.c_void_p
    library.al_limit_arenas.argtypes = [ctypes.c_int64]
    library.al_limit_arenas.restype = None
    library.al_idle_bytes.restype = ctypes.c_int64
