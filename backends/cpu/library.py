"""Compiled libraries in this process: each loaded once, and never unloaded.

Spec: `specs/cpu_toolchain.md`.
"""

from __future__ import annotations

import ctypes
import os
from functools import partial

from aotlite.backends.cpu import store
from aotlite.backends.cpu.once import Once
from aotlite.backends.cpu.toolchain import TIME_LIMIT, compile_c, key_of_c
from aotlite.backends.cpu.whole import fault
from aotlite.ir.errors import BackendError

__all__ = ["load", "load_c"]

_loaded = Once[ctypes.CDLL]()


def load_c(
    text: str,
    name: str,
    *,
    contract: bool = True,
    sanitize: str = "",
    libraries: bool = True,
    time_limit: float = TIME_LIMIT,
) -> ctypes.CDLL:
    """The library of a C11 text, compiled and loaded at most once a process.

    The arguments, and the errors, are those of `compile_c`.
    """
    key = key_of_c(text, contract=contract, sanitize=sanitize, libraries=libraries)
    compiled = partial(compile_c, contract=contract, sanitize=sanitize, libraries=libraries)

    def make() -> ctypes.CDLL:
        path = compiled(text, name, time_limit=time_limit)
        try:
            return load(path)
        except BackendError:
            # Removed since by another process, made where another C library was installed, or
            # left half by a compiler that said that it was whole.
            store.removed(key)
        return load(compiled(text, name, time_limit=time_limit))

    return _loaded.get(key, make)


def load(path: str) -> ctypes.CDLL:
    """A library, all of whose symbols are resolved now and seen by no other library.

    Half a library is refused: the system's loader would end the process at it.
    """
    try:
        found = fault(path)
        if found:
            raise OSError(f"it is {found}")
        return ctypes.CDLL(path, mode=os.RTLD_LOCAL | os.RTLD_NOW)
    except OSError as error:
        raise BackendError(
            f"cpu: the library {path} cannot be loaded ({error}), expected one for this machine in "
            "a folder from which programs may be run; AOTLITE_CACHE names another folder"
        ) from error
