"""The cache of compiled files: the disk cache, or else a private folder of this process.

The private folder is used where the disk cache is unsafe, full or cannot be written; the user is
warned once. Spec: `specs/cpu_toolchain.md`.
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
else:  # imported at the first write: most processes find all that they need
    trimming = deferred("aotlite.backends.native.cache.eviction")

_EACH = "what is compiled is kept until this process ends, and compiled again by the next one"
_ADVICE = "name another folder in AOTLITE_CACHE, or mend this one"


def cache_folder() -> str | None:
    """Returns the folder of the disk cache, without making it; None if the user has no home."""
    folder = trusted_folders.chosen()
    return None if folder is None else os.path.join(folder, "kernels")


def shared() -> DiskCache | None:
    """Returns the disk cache; None, with a warning, if there is no safe one."""
    folder = cache_folder()
    why = "there is no home folder" if folder is None else _problem(folder)
    if why or folder is None:
        warn_once(f"aotlite: no disk cache: {why}; {_EACH}; {_ADVICE}")
        return None
    return DiskCache(folder)


def _problem(folder: str) -> str:
    return trusted_folders.made(os.path.dirname(folder)) or trusted_folders.made(folder)


def found(key: str) -> str | None:
    """Returns the path of a key's file; None if there is none with the right bytes."""
    for cache in (shared(), _private_if_made()):
        path = None if cache is None else cache.find(key)
        if path is not None and path not in _left:
            return path
    return None


def contents(key: str) -> bytes | None:
    """Returns the bytes of a key's file; None if there is none with the right bytes."""
    for cache in (shared(), _private_if_made()):
        data = None if cache is None else cache.contents(key, _left)
        if data is not None:
            return data
    return None


def kept(key: str, name: str, suffix: str, data: bytes) -> str:
    """Writes the file of a key and returns its path."""
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
            f"cpu: no library can be written to the folder for temporary files ({error}), expected "
            "a folder with room; name another one in TMPDIR"
        ) from error


def locked(key: str) -> AbstractContextManager[object]:
    """Holds a lock for a block: no other process compiles the same key meanwhile."""
    cache = shared()
    return nullcontext() if cache is None else cache.lock(key)


def removed(key: str) -> None:
    """Removes the files of a key. Files that cannot be removed are not found any more here."""
    for cache in (shared(), _private_if_made()):
        if cache is not None:
            _left.update(cache.remove(key))


_left: set[str] = set()
"""The paths of files that should have been removed, but lie in a read-only folder."""


# -------------------------------------------------------------------------------- a private folder
_privates = Once[DiskCache]()


def _private() -> DiskCache:
    """Returns the private cache of this process; a forked child has its own."""
    return _privates.get(os.getpid(), lambda: DiskCache(trusted_folders.private()))


def _private_if_made() -> DiskCache | None:
    return _privates.known(os.getpid())


# ---------------------------------------------------------------------------------------- trimming
_since_trimmed: dict[str, int] = {}
"""The bytes that this process has written to each cache since it trimmed that."""


def _trim(cache: DiskCache, size: int) -> None:
    """Trims the cache after each 16th of the limit that is written, and at the first write of a
    process if no other one has just trimmed it."""
    known = _since_trimmed.get(cache.folder)
    if known is None:
        is_due, written = trimming.is_due(cache.folder), size
    else:
        written = known + size
        is_due = written >= trimming.LIMIT // 16
    _since_trimmed[cache.folder] = 0 if is_due else written
    if is_due:
        trimming.trim(cache.folder)
