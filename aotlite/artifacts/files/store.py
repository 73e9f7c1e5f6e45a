"""The folder of kept entries: one folder for each function's name, one file for each variant.

    artifacts/<key of module:qualname>/<name>.<sha256 of its bytes>.json

It lies beside the kernels (CPU-9), under the same checks: a folder or file that another user may
write is not read, a file whose bytes are not those that were kept is removed. Files appear by
renaming; a function keeps its `MOST_VARIANTS` last used. Rules: CACHE-5, CACHE-12.
Spec: `specs/artifacts.md`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

import attrs

from aotlite.artifacts.files.kept_entry import MOST_BYTES, KeptEntry
from aotlite.artifacts.files.seal import entry_of, sealed
from aotlite.backends.native.cache import eviction, trusted_folders
from aotlite.backends.native.cache.disk_cache import DiskCache, UnsoundError, files, key_of, read
from aotlite.ir.errors import FormatError

MOST_VARIANTS = 32
"""The most variants of one function; the least recently used goes."""
LIMIT = 1 << 28
"""Bytes of all kept entries. Beyond it the least recently used go, down to four fifths."""


@attrs.frozen
class Variant:
    """One file, with its entry."""

    path: str
    kept: KeptEntry


def folder() -> str | None:
    """The folder of kept entries, without making it; None if the user has no home."""
    chosen = trusted_folders.chosen()
    return None if chosen is None else os.path.join(chosen, "artifacts")


def cache() -> DiskCache | None:
    """The folder, made and checked; None if it cannot be trusted."""
    found = folder()
    if found is None or trusted_folders.made(os.path.dirname(found)):
        return None
    return None if trusted_folders.made(found) else DiskCache(found)


def _key(function: str) -> str:
    return key_of("artifact", function)


def outcome_key(function: str) -> str:
    """The key of the file that has the outcome of a function's last look-up."""
    return key_of("outcome", function)


def variants(function: str) -> Iterator[Variant]:
    """The kept entries of a function, the last used first. A file that is none is removed."""
    trusted = cache()
    if trusted is None:
        return
    for path in sorted(
        files(os.path.join(trusted.folder, _key(function))), key=_used, reverse=True
    ):
        kept = _read(path)
        if kept is not None and kept.function == function:
            yield Variant(path, kept)


def _read(path: str) -> KeptEntry | None:
    try:
        if os.stat(path).st_size > MOST_BYTES:
            raise UnsoundError("it is too large")
        return entry_of(read(path))
    except FileNotFoundError:  # another process has removed it
        return None
    except (FormatError, UnsoundError, MemoryError):
        remove(path)
        return None
    except OSError:
        return None


def _used(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def note_use(path: str) -> None:
    """Notes that a file was used now."""
    with suppress(OSError):
        os.utime(path)


def remove(path: str) -> None:
    """Removes a file; nothing happens if that is impossible."""
    with suppress(OSError):
        os.unlink(path)


def keep(kept: KeptEntry, name: str) -> str | None:
    """Writes an entry, whole or not at all. Returns why it cannot; None if it was written."""
    trusted = cache()
    if trusted is None:
        return "there is no folder for it that only this user can write"
    data = sealed(kept)
    if len(data) > MOST_BYTES:
        return f"the entry has {len(data)} bytes"
    key = _key(kept.function)
    try:
        with trusted.lock(key):
            trusted.keep(key, name, ".json", data)
            _evict(os.path.join(trusted.folder, key))
    except OSError as error:
        return f"{trusted.folder} cannot be written: {error.strerror}"
    if eviction.is_due(trusted.folder):
        eviction.trim(trusted.folder, LIMIT)
    return None


def _evict(of_function: str) -> None:
    found = sorted(files(of_function), key=_used, reverse=True)
    for path in found[MOST_VARIANTS:]:
        remove(path)
