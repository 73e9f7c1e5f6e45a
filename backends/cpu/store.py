"""Where what is compiled is looked up and put: the disk cache, or a folder of this process.

Spec: `specs/cpu_toolchain.md`. The second is used where the first is unsafe, cannot be written or
is full, and the user is told so, once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from aotlite.backends.cpu import folders
from aotlite.backends.cpu.cache import LIMIT, Cache
from aotlite.backends.cpu.once import Once, tell_once
from aotlite.ir.errors import BackendError

_EACH = "what is compiled is kept until this process ends, and compiled again by the next one"
_ADVICE = "name another folder in AOTLITE_CACHE, or mend this one"
_TRIM_SHARE = 16
"""A process trims at its first entry, and after entries of a 16th of the limit."""


def cache_folder() -> Path | None:
    """The folder of the disk cache, not made; None where the user has no home folder."""
    folder = folders.chosen()
    return None if folder is None else folder / "kernels"


def problem() -> str:
    """Why there is no disk cache, which is made if need be; empty where there is one."""
    folder = folders.chosen()
    if folder is None:
        return "there is no home folder"
    return folders.made(folder) or folders.made(folder / "kernels")


def shared() -> Cache | None:
    """The disk cache; None, and the user is told, where there is none that is safe."""
    why = problem()
    folder = cache_folder()
    if why or folder is None:
        tell_once(f"aotlite: no disk cache: {why}; {_EACH}; {_ADVICE}")
        return None
    return Cache(folder)


def found(key: str) -> Path | None:
    """The file of a key, where there is one that is sound."""
    for cache in (shared(), _private_if_made()):
        path = None if cache is None else cache.find(key)
        if path is not None:
            return path
    return None


def kept(key: str, name: str, suffix: str, data: bytes) -> Path:
    """The file of a key, written."""
    cache = shared()
    if cache is not None:
        try:
            path = cache.keep(key, name, suffix, data)
        except OSError as error:
            why = f"{cache.folder} cannot be written: {error.strerror}"
            tell_once(f"aotlite: the disk cache is left alone: {why}; {_EACH}; {_ADVICE}")
        else:
            _trim(cache, len(data))
            return path
    try:
        return _private().keep(key, name, suffix, data)
    except OSError as error:
        raise BackendError(
            f"cpu: the folder for temporary files is no place for a library ({error}), "
            "expected room in it; TMPDIR names another one"
        ) from error


@contextmanager
def locked(key: str) -> Iterator[None]:
    """While it lasts no other process that asks for this lock compiles the same."""
    cache = shared()
    with nullcontext() if cache is None else cache.lock(key):
        yield


def removed(key: str) -> None:
    """Removes what there is of a key."""
    for cache in (shared(), _private_if_made()):
        if cache is not None:
            cache.remove(key)


# --------------------------------------------------------------------------------- a private folder
_privates = Once[Cache]()


def _private() -> Cache:
    return _privates.get(os.getpid(), lambda: Cache(folders.private()))


def _private_if_made() -> Cache | None:
    return _privates.known(os.getpid())


# ----------------------------------------------------------------------------------------- trimming
_written = {"bytes": LIMIT}
"""Since the last trimming by this process; as many before the first."""


def _trim(cache: Cache, size: int) -> None:
    _written["bytes"] += size
    if _written["bytes"] >= LIMIT // _TRIM_SHARE:
        _written["bytes"] = 0
        cache.trim()
