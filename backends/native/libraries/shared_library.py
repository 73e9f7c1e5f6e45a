"""The file of an entry becomes a library of this process, until nobody has it any more.

What is loaded is the file that was checked: the system's loader is given its descriptor, as the
name that Linux has for one; elsewhere, where there is no such name, a copy of the bytes that were
checked, which no other user can reach. Spec: `specs/cpu_toolchain.md` (CC-14, CC-19, CC-23).
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
"""Where Linux has names for what is open."""


@attrs.frozen(eq=False)
class LibraryFunction:
    """A function of a library, which it refers to."""

    address: int
    library: SharedLibrary


class SharedLibrary(ctypes.CDLL):
    """A library of this process. Its functions refer to it."""

    def function(self, name: str) -> LibraryFunction:
        """One of its functions. Those of ctypes refer to themselves, too: they, and the library
        with them, stay until they are collected."""
        return LibraryFunction(ctypes.addressof(ctypes.c_char.in_dll(self, name)), self)

    def unload_when_dropped(self) -> None:
        """Unloads it when the last object that refers to it is gone: it, its functions, what has
        those. An address of something in it that is kept alone refers to nothing."""
        # Not while Python exits: daemon threads may still be in it.
        finalize(self, _ctypes.dlclose, self._handle).atexit = False


def load(path: str) -> SharedLibrary:
    """The library of an entry. Raises BackendError where `opened` raises OSError."""
    try:
        return opened(path)
    except OSError as error:
        raise BackendError(
            f"cpu: the library {path} cannot be loaded ({error}), expected one for this machine in "
            "a folder from which programs may be run; AOTLITE_CACHE names another folder"
        ) from error


def opened(path: str) -> SharedLibrary:
    """The library of an entry, all of whose symbols are resolved now and seen by no other library.

    Raises OSError where it does not load, where its bytes are not those that were kept, and for
    half a library, at which the system's loader would end the process.
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
    """A path under which the system's loader finds an open file."""
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
    """A way of writing nothing in a path, another one for each number.

    The loader takes a name that it has seen for the library that it loaded then, and numbers of
    descriptors are used again.

    >>> _spelled(0), _spelled(5)
    ('', './/./')
    """
    return "".join(["./" if bit == "1" else "/" for bit in f"{number:b}"]) if number else ""
