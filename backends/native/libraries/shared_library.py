"""Shared libraries: a checked file is loaded, and unloaded when nothing refers to it any more.

The loader must open the very file that was checked. On Linux it gets the path of the open
descriptor in /proc; elsewhere a copy of the checked bytes in a folder that no other user can reach.
Spec: `specs/cpu_toolchain.md` (CC-14, CC-19, CC-23).
"""

from __future__ import annotations

import _ctypes
import ctypes
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import BinaryIO
from weakref import finalize

import attrs

from aotlite.backends.native.cache.disk_cache import UnsoundError, checked
from aotlite.backends.native.cache.integrity import fault_of
from aotlite.backends.native.cache.trusted_folders import scratch
from aotlite.ir.errors import BackendError

DESCRIPTORS = "/proc/self/fd"
"""The folder in which Linux names open files."""


@attrs.frozen(eq=False)
class LibraryFunction:
    """A C function: its address, and a reference that keeps its library loaded."""

    address: int
    library: SharedLibrary


# Note [unloading of libraries]
#     f = compile(model); f(x); del f          ten thousand times, as a server with new shapes does
# Each f has a library, and a library that is never closed takes two of a process's 65,530 memory
# mappings. So one is closed when nothing refers to it: launches refer to `LibraryFunction`s, and
# those to the library. ctypes' own functions would not do: they are reference cycles, which live
# until a collection. Closed are only libraries linked without `libraries`: one that calls the C
# library may have started threads or registered exit handlers, which would call unmapped memory.
class _Function(ctypes._CFuncPtr):  # type: ignore[name-defined]
    """A function as ctypes makes it of a library's name; it returns an int."""

    _flags_ = _ctypes.FUNCFLAG_CDECL
    _restype_ = ctypes.c_int


class SharedLibrary(ctypes.CDLL):
    """A loaded library. Its functions refer to it."""

    _FuncPtr = _Function

    def __init__(self, name: str, mode: int) -> None:
        # Not that of ctypes, which makes a class for each library: a cycle, left to the collector.
        self._name = name
        self._handle = _ctypes.dlopen(name, mode)

    def function(self, name: str) -> LibraryFunction:
        """Returns one of its functions, without ctypes' function object."""
        return LibraryFunction(ctypes.addressof(ctypes.c_char.in_dll(self, name)), self)

    def unload_when_dropped(self) -> None:
        """Unloads the library when the last reference to it is gone. A bare address into it is no
        reference."""
        # Not at the exit of Python: daemon threads may still run its code.
        finalize(self, _ctypes.dlclose, self._handle).atexit = False


def load(path: str) -> SharedLibrary:
    """Returns the loaded library of a cache entry. Raises BackendError if it does not load."""
    try:
        return opened(path)
    except OSError as error:
        raise BackendError(
            f"cpu: the library {path} cannot be loaded ({error}), expected one for this machine in "
            "a folder from which programs may be run; AOTLITE_CACHE names another folder"
        ) from error


def opened(path: str) -> SharedLibrary:
    """Loads a cache entry, with its symbols resolved now and hidden from other libraries.

    Raises OSError if it does not load, if its bytes are not those that were stored, and for an
    incomplete library, which would end the process in the system's loader.
    """
    with checked(path) as (file, data):
        found = fault_of(io.BytesIO(data), len(data))
        if found:
            raise UnsoundError(f"it is {found}")
        with _name(file, data) as name:
            try:
                return SharedLibrary(name, mode=os.RTLD_LOCAL | os.RTLD_NOW)
            except OSError as error:
                raise OSError(str(error).replace(name, path)) from None


@contextmanager
def _name(file: BinaryIO, data: bytes) -> Iterator[str]:
    """Yields a path by which the system's loader finds an open file."""
    if sys.platform == "linux" and os.path.exists(f"{DESCRIPTORS}/{file.fileno()}"):
        yield f"{DESCRIPTORS}/{_spelled(next(_numbers))}{file.fileno()}"
        return
    with scratch() as folder:
        copy = os.path.join(folder.path, "library.so")
        with open(copy, "xb") as written:
            written.write(data)
        yield copy


_numbers = count()


def _spelled(number: int) -> str:
    """Returns a redundant part of a path, a different one for each number.

    The loader takes a path that it has seen before for the library that it loaded then, and the
    numbers of descriptors are reused.

    >>> _spelled(0), _spelled(5)
    ('', './/./')
    """
    return "".join(["./" if bit == "1" else "/" for bit in f"{number:b}"]) if number else ""
