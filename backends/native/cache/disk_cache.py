"""A disk cache: what was compiled is found by its key, checked, and kept.

Spec: `specs/cpu_toolchain.md`. An entry is a folder with the key for its name; in it is one file,
`<name>.<sha256 of its bytes><suffix>`, so that what was written half, or was damaged, is not what
its name says. Files appear by renaming. What is read is the file that was checked: its descriptor
is used from then on, and no path. How much there is, `trimming` counts and limits.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import BinaryIO

try:  # as `random` does: hashlib would load all of OpenSSL, 3 ms of a first call
    from _sha256 import sha256  # type: ignore[import-not-found]
except ImportError:  # another Python: 3.12 calls it _sha2
    from hashlib import sha256

from aotlite.backends.native.cache.file_locks import held
from aotlite.ir.filesystem.trust import OTHERS

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


class DiskCache:
    """The entries in a folder. Methods that write raise OSError where that is impossible."""

    __slots__ = ("folder",)

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def find(self, key: str) -> str | None:
        """The path of a key's file, its bytes checked; what is damaged is removed."""
        for path in files(os.path.join(self.folder, key)):
            with suppress(OSError):
                with checked(path) as (file, _):
                    # Of the descriptor: through a link it would be another file's time.
                    with suppress(OSError):
                        os.utime(file.fileno() if os.utime in os.supports_fd else path)
                return path
            with suppress(OSError):
                os.unlink(path)
        return None

    def keep(self, key: str, name: str, suffix: str, data: bytes) -> str:
        """Writes the file of a key, whole or not at all; its path."""
        folder = os.path.join(self.folder, key)
        target = f"{word(name)}.{sha256(data).hexdigest()}{suffix}"
        with _new(folder) as (handle, temporary):
            try:
                _write(temporary, handle, data)
                os.replace(temporary, target, src_dir_fd=handle, dst_dir_fd=handle)
            except OSError:
                os.unlink(temporary, dir_fd=handle)
                raise
        return os.path.join(folder, target)

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
        return held(os.path.join(self.folder, f"{key}.lock"), LOCK_LIMIT)


# ------------------------------------------------------------------------------------------ reading
class UnsoundError(OSError):
    """A file that somebody else can have written, or whose bytes are not those of its name."""


@contextmanager
def checked(path: str) -> Iterator[tuple[BinaryIO, bytes]]:
    """The open file of an entry, and its bytes, once both were looked at.

    Nobody else can have written the file or put it there, and its bytes are those of its name.
    Raises UnsoundError for another one, OSError where there is none.
    """
    folder, name = os.path.split(path)
    with _folder_of_key(folder) as handle:
        file = open(os.open(name, _READ, dir_fd=handle), "rb")
    with file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):  # a pipe, say, of which no end is to be read
            raise UnsoundError("it is no file")
        if status.st_uid != os.geteuid() or status.st_mode & OTHERS:
            raise UnsoundError("it can be written by others")
        data = file.read()
        if _checksum(name) != sha256(data).hexdigest():
            raise UnsoundError("its bytes are not those that were kept")
        file.seek(0)
        yield file, data


def read(path: str) -> bytes:
    """The bytes of an entry's file. Raises UnsoundError where they are not sound, OSError."""
    with checked(path) as (_, data):
        return data


_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_READ |= getattr(os, "O_CLOEXEC", 0)


@contextmanager
def _folder_of_key(path: str) -> Iterator[int]:
    """The descriptor of a folder of a key.

    Raises UnsoundError where another user can write it: what is in it may be of another key.
    """
    handle = os.open(path, _READ | getattr(os, "O_DIRECTORY", 0))
    try:
        status = os.fstat(handle)
        if status.st_uid != os.geteuid() or status.st_mode & OTHERS:
            raise UnsoundError(errno.EPERM, f"{path} can be written by others")
        yield handle
    finally:
        os.close(handle)


# ------------------------------------------------------------------------------------------ writing
@contextmanager
def _new(folder: str) -> Iterator[tuple[int, str]]:
    """The descriptor of a folder, which is made, and the name of a new file in it."""
    name, stack = NEW + os.urandom(8).hex(), ExitStack()
    while True:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        try:
            handle = stack.enter_context(_folder_of_key(folder))
            os.close(os.open(name, _WRITE | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=handle))
            break
        except FileNotFoundError:  # another process has just removed the empty folder
            stack.close()
        except BaseException:
            stack.close()
            raise
    with stack:
        yield handle, name


_WRITE = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def _write(name: str, folder: int, data: bytes) -> None:
    """Writes a file of a folder; all bytes are on the disk."""
    with open(os.open(name, _WRITE, dir_fd=folder), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
