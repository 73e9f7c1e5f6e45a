"""Eviction from the disk cache: the least recently used entries go. Part of
`specs/cpu_toolchain.md`.

Removing a file does not unload it from a process that has loaded it. Other files in the folder
stay.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress

import attrs

from aotlite.backends.native.cache.disk_cache import NEW, files
from aotlite.ir.logs import emit

LIMIT = 1 << 30
"""Bytes of a cache. Beyond it the least recently used entries are removed, down to four fifths."""

FORGOTTEN = 3600.0
"""Seconds after which an unfinished file counts as the remains of a crash."""

LOOKED, REST = "looked", 600.0
"""The file whose time says when the cache was last trimmed, and the seconds in which no process
trims it again at its start: listing fifty thousand entries takes a second and a half."""

_KEY = re.compile(r"[0-9a-f]{64}")


@attrs.frozen
class Entry:
    """A file of a cache."""

    path: str
    size: int
    used: float
    """The time of its last use, in seconds since the epoch."""

    def remove(self) -> None:
        """Removes the file, and its folder if that is empty then."""
        with suppress(OSError):
            os.unlink(self.path)
            os.rmdir(os.path.dirname(self.path))


def entries(folder: str) -> list[Entry]:
    """Returns all files of a cache, damaged ones too."""
    keys = [each.path for each in _listed(folder) if _KEY.fullmatch(each.name)]
    return [entry for key in keys for entry in _entries_of(key)]


def cache_size(folder: str) -> int:
    """Returns the bytes of all files of a cache."""
    return sum(entry.size for entry in entries(folder))


def clear(folder: str) -> list[Entry]:
    """Removes all entries, and returns them."""
    removed = entries(folder)
    for entry in removed:
        entry.remove()
    sweep(folder)
    return removed


def trim(folder: str, limit: int = LIMIT) -> list[Entry]:
    """Removes the least recently used entries if all have more than `limit` bytes. Returns them."""
    _note_look(folder)
    sweep(folder)
    found = sorted(entries(folder), key=lambda entry: entry.used)
    size, removed = sum(entry.size for entry in found), list[Entry]()
    target = limit * 4 // 5 if size > limit else size
    for entry in found:
        if size <= target:
            break
        entry.remove()
        size -= entry.size
        removed.append(entry)
    if removed:
        emit("cache", lambda: {"of": "files", "outcome": "evicted", "count": len(removed)})
    return removed


def is_due(folder: str) -> bool:
    """Whether no process has trimmed the cache in the last minutes."""
    try:
        looked = os.stat(os.path.join(folder, LOOKED)).st_mtime
    except OSError:
        return True
    return abs(time.time() - looked) > REST


def _note_look(folder: str) -> None:
    path = os.path.join(folder, LOOKED)
    with suppress(OSError):
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600))
        os.utime(path)


def sweep(folder: str) -> None:
    """Removes unfinished files and locks of crashed processes, and empty folders of keys."""
    for each in _listed(folder):
        if each.name.endswith(".lock"):
            _remove_forgotten(each)
        elif _KEY.fullmatch(each.name):
            for file in _listed(each.path):
                if file.name.startswith(NEW):
                    _remove_forgotten(file)
            with suppress(OSError):
                os.rmdir(each.path)


def _listed(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def _entries_of(folder: str) -> Iterator[Entry]:
    for path in files(folder):
        with suppress(OSError):  # another process removes it
            status = os.stat(path)
            yield Entry(path, status.st_size, status.st_mtime)


def _remove_forgotten(file: os.DirEntry[str]) -> None:
    with suppress(OSError):
        if file.stat().st_mtime < time.time() - FORGOTTEN:
            os.unlink(file)
