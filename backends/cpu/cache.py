"""The disk cache of what was compiled: found by key, checked, kept, trimmed, cleared.

Spec: `specs/cpu_toolchain.md`. An entry is a folder with the key for its name; in it is one file,
`<name>.<sha256 of its bytes><suffix>`, so that what was written half, or was damaged, is not what
its name says. Files appear by renaming.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from tempfile import mkstemp

import attrs

from aotlite.backends.cpu import folders
from aotlite.backends.cpu.locks import held

FORMAT = "1"
"""Goes into every key: another one where entries of before must not be used any more."""

LIMIT = 1 << 30
"""Bytes. Beyond it what was not used for longest goes, down to four fifths."""

LOCK_LIMIT = 30.0
"""Seconds to wait for another process that compiles the same; after that both do."""

_KEY = re.compile(r"[0-9a-f]{64}")
_FILE = re.compile(r"\w+\.[0-9a-f]{64}\.\w+")
_NEW = "new-"
_FORGOTTEN = 3600.0
"""Seconds after which a file that nobody renamed is what a crash left."""


def key_of(*parts: str) -> str:
    """The key of what these texts determine."""
    joined = "\0".join([FORMAT, *(f"{len(part)}:{part}" for part in parts)])
    return hashlib.sha256(joined.encode("utf-8", "surrogateescape")).hexdigest()


@attrs.frozen
class Entry:
    """A file of the cache."""

    path: Path
    size: int
    used: float
    """When it was last used, in seconds since the epoch."""

    def remove(self) -> None:
        """Removes the file, and its folder where that is empty then."""
        with suppress(OSError):
            self.path.unlink()
            self.path.parent.rmdir()


@attrs.frozen
class Cache:
    """A folder of entries. Methods that write raise OSError where that is impossible."""

    folder: Path

    def find(self, key: str) -> Path | None:
        """The file of a key, its bytes checked; what is damaged is removed."""
        for path in _files(self.folder / key):
            if _is_sound(path):
                with suppress(OSError):
                    os.utime(path)
                return path
            with suppress(OSError):
                path.unlink()
        return None

    def keep(self, key: str, name: str, suffix: str, data: bytes) -> Path:
        """Writes a file of a key, whole or not at all."""
        folder = self.folder / key
        path = folder / f"{word(name)}.{hashlib.sha256(data).hexdigest()}{suffix}"
        temporary = _written(folder, data)
        try:
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise
        return path

    def remove(self, key: str) -> None:
        """Removes what there is of a key."""
        for path in _files(self.folder / key):
            path.unlink(missing_ok=True)

    def lock(self, key: str) -> AbstractContextManager[bool]:
        """Keeps other processes and threads from compiling the same."""
        return held(self.folder / f"{key}.lock", LOCK_LIMIT)

    def entries(self) -> list[Entry]:
        """All files, damaged ones too."""
        return [
            entry
            for folder in _listed(self.folder)
            if _KEY.fullmatch(folder.name)
            for entry in _entries_of(folder.path)
        ]

    def size(self) -> int:
        """Bytes."""
        return sum(entry.size for entry in self.entries())

    def clear(self) -> list[Entry]:
        """Removes all entries, and returns them; files of others stay."""
        entries = self.entries()
        for entry in entries:
            entry.remove()
        self._sweep()
        return entries

    def trim(self, limit: int = LIMIT) -> list[Entry]:
        """Removes entries, those not used for longest first, where all are more than `limit` bytes.

        What a process has loaded stays loaded: its file has no name any more, and is still there.
        """
        self._sweep()
        entries = sorted(self.entries(), key=lambda entry: entry.used)
        size, removed = sum(entry.size for entry in entries), list[Entry]()
        target = limit * 4 // 5 if size > limit else size
        for entry in entries:
            if size <= target:
                break
            entry.remove()
            size -= entry.size
            removed.append(entry)
        return removed

    def _sweep(self) -> None:
        """Removes what a crash left, and folders without a file."""
        for each in _listed(self.folder):
            if each.name.endswith(".lock"):
                _remove_forgotten(each)
            elif _KEY.fullmatch(each.name):
                for file in _listed(each.path):
                    if file.name.startswith(_NEW):
                        _remove_forgotten(file)
                with suppress(OSError):
                    os.rmdir(each.path)


# -------------------------------------------------------------------------------------------- files
def _listed(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _files(folder: str | Path) -> list[Path]:
    """The files of a key that have such a name as entries have."""
    return [Path(each.path) for each in _listed(folder) if _FILE.fullmatch(each.name)]


def _entries_of(folder: str) -> Iterator[Entry]:
    for path in _files(folder):
        with suppress(OSError):  # another process removes it
            status = path.stat()
            yield Entry(path, status.st_size, status.st_mtime)


def _is_sound(path: Path) -> bool:
    """Whether nobody else can have written a file, and its bytes are those of its name."""
    try:
        with open(path, "rb", opener=_opened) as file:
            status = os.fstat(file.fileno())
            is_safe = status.st_uid == os.geteuid() and not status.st_mode & folders.OTHERS
            return is_safe and path.name.split(".")[1] == hashlib.sha256(file.read()).hexdigest()
    except OSError:  # a folder, a link, or removed since by another process
        return False


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)


def _written(folder: Path, data: bytes) -> str:
    """The path of a new file in a folder, which is made; all bytes are on the disk."""
    while True:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            handle, path = mkstemp(prefix=_NEW, dir=folder)
            break
        except FileNotFoundError:  # another process has just removed the empty folder
            continue
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(handle)
    except OSError:
        os.unlink(path)
        raise
    return path


def _remove_forgotten(file: os.DirEntry[str]) -> None:
    with suppress(OSError):
        if file.stat().st_mtime < time.time() - _FORGOTTEN:
            os.unlink(file)


def word(name: str) -> str:
    """A name with nothing in it but letters, digits and `_`, and not long.

    >>> word("forward of <lambda>")
    'forward_of__lambda_'
    """
    return re.sub(r"[^A-Za-z0-9_]", "_", name)[:60] or "_"
