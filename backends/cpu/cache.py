"""A disk cache: what was compiled is found by its key, checked, and kept.

Spec: `specs/cpu_toolchain.md`. An entry is a folder with the key for its name; in it is one file,
`<name>.<sha256 of its bytes><suffix>`, so that what was written half, or was damaged, is not what
its name says. Files appear by renaming. How much there is, `trimming` counts and limits.
"""

from __future__ import annotations

import os
import stat
from contextlib import AbstractContextManager, suppress

try:  # as `random` does: hashlib would load all of OpenSSL, 3 ms of a first call
    from _sha256 import sha256  # type: ignore[import-not-found]
except ImportError:  # another Python: 3.12 calls it _sha2
    from hashlib import sha256

from aotlite.backends.cpu.folders import OTHERS

FORMAT = "1"
"""Goes into every key: another one where entries of before must not be used any more."""

LOCK_LIMIT = 30.0
"""Seconds to wait for another process that compiles the same; after that both do."""

NEW = "new-"
"""How the name of a file begins that is being written."""


def key_of(*parts: str) -> str:
    """The key of what these texts determine."""
    joined = "\0".join([FORMAT, *(f"{len(part)}:{part}" for part in parts)])
    return str(sha256(joined.encode("utf-8", "surrogateescape")).hexdigest())


def word(name: str) -> str:
    """A name with nothing in it but letters, digits and `_`, and not long.

    >>> word("forward of <lambda>")
    'forward_of__lambda_'
    """
    letters = (each if each.isascii() and each.isalnum() else "_" for each in name[:60])
    return "".join(letters) or "_"


def files(folder: str) -> list[str]:
    """The paths in the folder of a key that have such names as entries have."""
    try:
        return [os.path.join(folder, name) for name in os.listdir(folder) if _checksum(name)]
    except OSError:
        return []


def _checksum(name: str) -> str:
    """The checksum in the name of an entry's file; empty where it is no such name."""
    parts = name.split(".")
    return parts[1] if len(parts) == 3 and len(parts[1]) == 64 else ""


class Cache:
    """The entries in a folder. Methods that write raise OSError where that is impossible."""

    __slots__ = ("folder",)

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def find(self, key: str) -> str | None:
        """The path of a key's file, its bytes checked; what is damaged is removed."""
        for path in files(os.path.join(self.folder, key)):
            is_sound = _is_sound(path)
            with suppress(OSError):
                os.utime(path) if is_sound else os.unlink(path)
            if is_sound:
                return path
        return None

    def keep(self, key: str, name: str, suffix: str, data: bytes) -> str:
        """Writes the file of a key, whole or not at all; its path."""
        folder = os.path.join(self.folder, key)
        temporary = _written(folder, data)
        path = os.path.join(folder, f"{word(name)}.{sha256(data).hexdigest()}{suffix}")
        try:
            os.replace(temporary, path)
        except OSError:
            os.unlink(temporary)
            raise
        return path

    def remove(self, key: str) -> list[str]:
        """Removes what there is of a key; the paths of what cannot be removed."""
        left = []
        for path in files(os.path.join(self.folder, key)):
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass
            except OSError:  # a folder that is only read
                left.append(path)
        return left

    def lock(self, key: str) -> AbstractContextManager[bool]:
        """Keeps other processes and threads from compiling the same."""
        from aotlite.backends.cpu.locks import held

        return held(os.path.join(self.folder, f"{key}.lock"), LOCK_LIMIT)


def _is_sound(path: str) -> bool:
    """Whether nobody else can have written a file, and its bytes are those of its name."""
    try:
        with open(path, "rb", opener=_opened) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):  # a pipe, say, of which no end is to be read
                return False
            if status.st_uid != os.geteuid() or status.st_mode & OTHERS:
                return False
            return _checksum(os.path.basename(path)) == sha256(file.read()).hexdigest()
    except OSError:  # a folder, a link, or removed since by another process
        return False


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _written(folder: str, data: bytes) -> str:
    """The path of a new file in a folder, which is made; all bytes are on the disk."""
    handle, path = _new(folder)
    try:
        with open(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(handle)
    except OSError:
        os.unlink(path)
        raise
    return path


def _new(folder: str) -> tuple[int, str]:
    while True:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        path = os.path.join(folder, NEW + os.urandom(8).hex())
        try:
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), path
        except FileNotFoundError:  # another process has just removed the empty folder
            continue
