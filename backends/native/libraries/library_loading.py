"""Compiled libraries in this process: each loaded once at a time.

Spec: `specs/cpu_toolchain.md`.
"""

from __future__ import annotations

from functools import partial

from aotlite.backends.native.cache import artifact_cache
from aotlite.backends.native.compiler.toolchain import TIME_LIMIT, compile_c, key_of_c
from aotlite.backends.native.libraries import memory_mappings
from aotlite.backends.native.libraries.shared_library import SharedLibrary, load
from aotlite.backends.native.single_flight import OnceAlive
from aotlite.ir.errors import BackendError

__all__ = ["load", "load_c"]

_loaded = OnceAlive[SharedLibrary]()
_staying: list[SharedLibrary] = []
"""Those that may have started threads, or told the C library to call them."""


def load_c(
    text: str,
    name: str,
    *,
    contract: bool = True,
    sanitize: str = "",
    libraries: bool = True,
    time_limit: float = TIME_LIMIT,
) -> SharedLibrary:
    """The library of a C11 text, compiled, and loaded unless it is loaded already.

    The arguments, and the errors, are those of `compile_c`. One that was linked without
    `libraries` is unloaded when nobody has it or a function of it any more.
    """
    key = key_of_c(text, contract=contract, sanitize=sanitize, libraries=libraries)
    compiled = partial(compile_c, contract=contract, sanitize=sanitize, libraries=libraries)

    def make() -> SharedLibrary:
        memory_mappings.make_room()
        library = first_that_loads()
        if libraries:
            _staying.append(library)
        else:
            library.unload_when_dropped()
        return library

    def first_that_loads() -> SharedLibrary:
        path = compiled(text, name, time_limit=time_limit)
        try:
            return load(path)
        except BackendError:
            # Removed since by another process, made where another C library was installed, or
            # left half by a compiler that said that it was whole.
            artifact_cache.removed(key)
        return load(compiled(text, name, time_limit=time_limit))

    return _loaded.get(key, make)
