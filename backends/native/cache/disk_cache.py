"""The disk cache: files by key, whose bytes are checked when they are found.

    kernels/<key>/<name>.<sha256 of its bytes>.so

A half-written or damaged file does not match the checksum in its name. Files appear by renaming.
The file that is read is the one that was checked: it stays open, and no path is followed again.
`eviction` limits the size of the cache. Spec: `specs/cpu_toolchain.md`.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Container, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO

try:  # as `random` does: hashlib would load all of OpenSSL, 3 ms of a first call
    from _sha256 import sha256 as _own_sha256  # type: ignore[import-not-found]
except ImportError:  # another Python: 3.12 calls it _sha2
    from hashlib import sha256 as _own_sha256

from aotlite.ir.deferred import deferred
from aotlite.ir.filesystem.trust import OTHERS

if TYPE_CHECKING:
    from aotlite.backends.native.cache import file_locks
else:  # imported at the first compilation: filelock takes 0.1 s
    file_locks = deferred("aotlite.backends.native.cache.file_locks")

FORMAT = "1"
"""Part of every key. Change it when old entries must not be used any more."""

LOCK_LIMIT = 30.0
"""Seconds to wait for another process that compiles the same key; after that both compile."""

NEW = "new-"
"""The prefix of the names of files that are being written."""


def sha256(data: bytes) -> Any:
    """Returns the SHA-256 of bytes: by OpenSSL, which takes a fifth of the time, where another
    module has loaded it."""
    loaded: Any = sys.modules.get("_hashlib")
    return (_own_sha256 if loaded is None else loaded.openssl_sha256)(data)


def key_of(*parts: str) -> str:
    """Returns the key of these texts, a SHA-256 in hexadecimal."""
    joined = "\0".join([FORMAT, *(f"{len(part)}:{part}" for part in parts)])
    return str(sha256(joined.encode("utf-8", "surrogateescape")).hexdigest())


def word(name: str) -> str:
    """Returns a name of at most 60 ASCII letters, digits and `_`.

    >>> word("forward of <lambda>")
    'forward_of__lambda_'
    """
    letters = (each if each.isascii() and each.isalnum() else "_" for each in name[:60])
    return "".join(letters) or "_"


def files(folder: str) -> list[str]:
    """Returns the paths in a key's folder whose names are those of entries."""
    try:
        return [os.path.join(folder, name) for name in os.listdir(folder) if _checksum(name)]
    except OSError:
        return []


def _checksum(name: str) -> str:
    """Returns the checksum in the name of an entry's file; empty for another name."""
    parts = name.split(".")
    return parts[1] if len(parts) == 3 and len(parts[1]) == 64 else ""


class DiskCache:
    """The entries of a folder. Methods that write raise OSError if they cannot."""

    __slots__ = ("folder",)

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def find(self, key: str) -> str | None:
        """Returns the path of a key's file, its bytes checked; None if there is none. A damaged
        file is removed."""
        return next((path for path, _ in self._sound(key)), None)

    def contents(self, key: str, without: Container[str] = ()) -> bytes | None:
        """Returns the bytes of the file that `find` returns, if it is none of those `without`."""
        return next((data for path, data in self._sound(key) if path not in without), None)

    def _sound(self, key: str) -> Iterator[tuple[str, bytes]]:
        for path in files(os.path.join(self.folder, key)):
            with suppress(OSError):
                with checked(path) as (file, data):
                    # By descriptor: by path a link could lead to another file.
                    with suppress(OSError):
                        os.utime(file.fileno() if os.utime in os.supports_fd else path)
                yield path, data
                continue
            with suppress(OSError):
                os.unlink(path)

    def keep(self, key: str, name: str, suffix: str, data: bytes) -> str:
        """Writes the file of a key, whole or not at all, and returns its path."""
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
        """Removes the files of a key. Returns the paths of files that cannot be removed."""
        left = []
        for path in files(os.path.join(self.folder, key)):
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass
            except OSError:  # a read-only folder
                left.append(path)
        return left

    def lock(self, key: str) -> AbstractContextManager[bool]:
        """Returns a lock against other processes and threads that would compile the same key."""
        return file_locks.held(os.path.join(self.folder, f"{key}.lock"), LOCK_LIMIT)


# ------------------------------------------------------------------------------------------ reading
class UnsoundError(OSError):
    """Raised for a file that another user may have written, or whose checksum is wrong."""


@contextmanager
def checked(path: str) -> Iterator[tuple[BinaryIO, bytes]]:
    """Yields the open file of an entry and its bytes, both checked.

    No other user can have written or placed the file, and its bytes match the checksum in its name.
    Raises UnsoundError otherwise, and OSError if there is no file.
    """
    folder, name = os.path.split(path)
    with _folder_of_key(folder) as handle:
        file = open(os.open(name, _READ, dir_fd=handle), "rb")
    with file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):  # a pipe, for instance, which never ends
            raise UnsoundError("it is no file")
        if status.st_uid != os.geteuid() or status.st_mode & OTHERS:
            raise UnsoundError("it can be written by others")
        data = file.read()
        if _checksum(name) != sha256(data).hexdigest():
            raise UnsoundError("its bytes are not those that were kept")
        file.seek(0)
        yield file, data


def read(path: str) -> bytes:
    """Returns the checked bytes of an entry's file. Raises UnsoundError or OSError as `checked`."""
    with checked(path) as (_, data):
        return data


_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_READ |= getattr(os, "O_CLOEXEC", 0)


@contextmanager
def _folder_of_key(path: str) -> Iterator[int]:
    """Yields the descriptor of a key's folder.

    Raises UnsoundError if another user can write to it, and so move files between keys.
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
