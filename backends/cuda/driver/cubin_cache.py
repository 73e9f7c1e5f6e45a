"""The cache of cubins: found in the disk cache or compiled, and loaded once a process.

The disk cache is that of the CPU's libraries, with its checks, locks and limits. Spec:
`specs/cuda_backend.md` (CUB-2).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from tempfile import mkstemp
from typing import TypeVar

from aotlite.backends.native.cache import artifact_cache
from aotlite.backends.native.cache.disk_cache import key_of, word
from aotlite.backends.native.single_flight import Once
from aotlite.ir.errors import BackendError
from aotlite.ir.logs import looked_up, timed

ModuleT = TypeVar("ModuleT")

_loaded = Once[object]()


def loaded(
    device: Hashable,
    identity: tuple[str, ...],
    name: str,
    suffix: str,
    make: Callable[[], bytes],
    load: Callable[[str], ModuleT],
) -> ModuleT:
    """Returns the module that `load` makes of a cubin's file; `make` compiles a missing cubin.

    `identity` is all on which a cubin depends: text, flags, architecture, the compiler's version. A
    cubin that does not load, for another architecture perhaps, is compiled once more. If the
    compiler refuses the text, the error names a file with it.
    """
    key = key_of("cuda", *identity)

    def image() -> bytes:
        try:
            with timed("compiler", name=name, compiler="nvrtc"):
                return make()
        except BackendError as error:
            place = saved(identity[0], name)
            raise BackendError(f"{error}; the text is in {place}") from error

    def made() -> ModuleT:
        try:
            with timed("kernel", name=name, language="CUDA", characters=len(identity[0])):
                return load(_path(key, name, suffix, image))
        except BackendError:
            artifact_cache.removed(key)
        return load(_path(key, name, suffix, image))

    return _loaded.get((device, key), made)  # type: ignore[return-value]


def saved(text: str, name: str) -> str:
    """Saves a text that does not compile. Returns the file's path, or why there is none."""
    try:
        handle, path = mkstemp(prefix=f"{word(name)}-", suffix=".cu")
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        return f"no file ({error.strerror})"
    return path


def _path(key: str, name: str, suffix: str, make: Callable[[], bytes]) -> str:
    found = artifact_cache.found(key)
    looked_up("cubin", name, found=found is not None)
    if found is not None:
        return found
    with artifact_cache.locked(key):
        return artifact_cache.found(key) or artifact_cache.kept(key, name, suffix, make())
