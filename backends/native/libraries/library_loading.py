"""Loading of compiled libraries: each is loaded once, and unloaded when nothing refers to it.

Spec: `specs/cpu_toolchain.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from aotlite.backends.native.cache import artifact_cache
from aotlite.backends.native.compiler.toolchain import TIME_LIMIT, compile_c, key_of_c
from aotlite.backends.native.libraries import memory_mappings
from aotlite.backends.native.libraries.shared_library import SharedLibrary, load
from aotlite.backends.native.single_flight import OnceAlive
from aotlite.ir.errors import BackendError
from aotlite.ir.logs import timed

__all__ = ["load", "load_c"]

_loaded = OnceAlive[SharedLibrary]()
_staying: list[SharedLibrary] = []
"""The libraries that are never unloaded: they may have started threads, or registered functions
with the C library."""


def load_c(
    text: str,
    name: str,
    *,
    contract: bool = True,
    sanitize: str = "",
    libraries: bool = True,
    time_limit: float = TIME_LIMIT,
    facts: Mapping[str, object] | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> SharedLibrary:
    """Returns the loaded library of a C11 text, compiled if no cache has it.

    Arguments and errors are those of `compile_c`. A library linked without `libraries` is unloaded
    when nothing refers to it or its functions any more. `facts` are logged, too.
    """
    key = key_of_c(text, contract=contract, sanitize=sanitize, libraries=libraries)
    compiled = partial(compile_c, contract=contract, sanitize=sanitize, libraries=libraries)

    def make() -> SharedLibrary:
        memory_mappings.make_room()
        with timed("kernel", name=name, language="C", characters=len(text), **(facts or {})):
            library = first_that_loads()
        if libraries:
            _staying.append(library)
        else:
            library.unload_when_dropped()
        return library

    def first_that_loads() -> SharedLibrary:
        path = compiled(text, name, time_limit=time_limit, meanwhile=meanwhile)
        try:
            return load(path)
        except BackendError:
            # Another process has removed it, it needs another C library, or it is incomplete though
            # its compiler reported success: compile it once more.
            artifact_cache.removed(key)
        return load(compiled(text, name, time_limit=time_limit))

    return _loaded.get(key, make)
