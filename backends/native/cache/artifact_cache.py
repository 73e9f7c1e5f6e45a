"""Where what is compiled is looked up and put: the disk cache, or a folder of this process.

Spec: `specs/cpu_toolchain.md`. The second is used where the first is unsafe, cannot be written or
is full, and the user is told so, once.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from aotlite.backends.native.cache import trusted_folders
from aotlite.backends.native.cache.disk_cache import DiskCache
from aotlite.backends.native.single_flight import Once
from aotlite.backends.native.warn_once import warn_once
from aotlite.ir.deferred import deferred
from aotlite.ir.errors import BackendError

if TYPE_CHECKING:
    from aotlite.backends.native.cache import eviction as trimming
else:  # processes that find all they need write nothing
    trimming = deferred("aotlite.backends.native.cache.eviction")

_EACH = "what is compiled is kept until this process ends, and compiled again by the next one"
_ADVICE = "name another folder in AOTLITE_CACHE, or mend this one"


def cache_folder() -> str | None:
    """The folder of the disk cache, not made; None where the user has no home folder."""
    folder = trusted_folders.chosen()
    return None if folder is None else os.path.join(folder, "kernels")


def shared() -> DiskCache | None:
    """The disk cache; None, and the user is told, where there is none that is safe."""
    folder = cache_folder()
    why = "there is no home folder" if folder is None else _problem(folder)
    if why or folder is None:
        warn_once(f"aotlite: no disk cache: {why}; {_EACH}; {_ADVICE}")
        return None
    return DiskCache(folder)


def _problem(folder: str) -> str:
    return trusted_folders.made(os.path.dirname(folder)) or trusted_folders.made(folder)


def found(key: str) -> str | None:
    """The path of a key's file, where there is one that is sound."""
    for cache in (shared(), _private_if_made()):
        path = None if cache is None else cache.find(key)
        if path is not None and path not in _left:
            return path
    return None


def kept(key: str, name: str, suffix: str, data: bytes) -> str:
    """The path of a key's file, written."""
    cache = shared()
    if cache is not None:
        try:
            path = cache.keep(key, name, suffix, data)
        except OSError as error:
            why = f"{cache.folder} cannot be written: {error.strerror}"
            warn_once(f"aotlite: the disk cache is left alone: {why}; {_EACH}; {_ADVICE}")
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


def locked(key: str) -> AbstractContextManager[object]:
    """While it lasts no other process that asks for this lock compiles the same."""
    cache = shared()
    return nullcontext() if cache is None else cache.lock(key)


def removed(key: str) -> None:
    """Removes what there is of a key; this process no longer finds what cannot be removed."""
    for cache in (shared(), _private_if_made()):
        if cache is not None:
            _left.update(cache.remove(key))


_left: set[str] = set()
"""Paths of what was to be removed, in a folder that is only read."""


# -------------------------------------------------------------------------------- a private folder
_privates = Once[DiskCache]()


def _private() -> DiskCache:
    """Another one in a forked child."""
    return _privates.get(os.getpid(), lambda: DiskCache(trusted_folders.private()))


def _private_if_made() -> DiskCache | None:
    return _privates.known(os.getpid())


# ---------------------------------------------------------------------------------------- trimming
_since_trimmed: dict[str, int] = {}
"""Bytes that this process has written to a cache since it trimmed it."""


def _trim(cache: DiskCache, size: int) -> None:
    """After each 16th of the limit; at the first entry too, where no process has just looked."""
    known = _since_trimmed.get(cache.folder)
    if known is None:
        is_due, written = trimming.is_due(cache.folder), size
    else:
        written = known + size
        is_due = written >= trimming.LIMIT // 16
    _since_trimmed[cache.folder] = 0 if is_due else written
    if is_due:
        trimming.trim(cache.folder)
