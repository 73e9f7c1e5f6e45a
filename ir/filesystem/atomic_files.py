"""Atomic files in folders that other users may write, such as /tmp.

For dumps and scripts, whose names others can guess. No symbolic link of another user is followed,
and a reader sees a whole file or none. `write_whole` is for files that a user names. Ground floor.
Spec: `specs/pipeline.md` (PIP-9).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from aotlite.ir.errors import ArgumentError, FormatError, noted
from aotlite.ir.filesystem import trust


def write(folder: str | os.PathLike[str], name: str, text: str) -> None:
    """Writes `text` to a file in a folder, which it makes if missing; replaces a file or a link.

    Raises OSError where that fails, or where a link of another user is on the path to the folder;
    then the old file is unchanged.
    """
    data = text.encode("utf-8", "backslashreplace")
    with _at(os.fspath(folder)) as (place, handle):
        new, target = os.path.join(place, f".{os.urandom(8).hex()}.new"), os.path.join(place, name)
        try:
            with open(new, "xb", opener=partial(_opened, handle)) as file:
                file.write(data)
            os.replace(new, target, src_dir_fd=handle, dst_dir_fd=handle)
        except BaseException:
            _remove(new, handle)
            raise


def make(folder: str | os.PathLike[str]) -> None:
    """Makes a folder if it does not exist. Raises OSError as `write` does."""
    with _at(os.fspath(folder)):
        pass


@contextmanager
def _at(folder: str) -> Iterator[tuple[str, int | None]]:
    """(prefix of paths in a folder, descriptor that they are relative to or None)."""
    if not trust.HAS_DESCRIPTORS:
        os.makedirs(folder, exist_ok=True)
        yield folder, None
        return
    handle = trust.opened(folder, make=True)
    try:
        yield "", handle
    finally:
        os.close(handle)


def _opened(folder: int | None, path: str, flags: int) -> int:
    return os.open(path, flags, 0o666, dir_fd=folder)


def _remove(path: str, folder: int | None) -> None:
    try:
        os.unlink(path, dir_fd=folder)
    except OSError:  # it was not made, or the file system is read-only by now
        pass


# ------------------------------------------------------------------------------- files of a user
_CHUNK = 1 << 20


def read_whole(path: str | os.PathLike[str], most: int, what: str) -> bytes:
    """The bytes of a file. Raises FormatError, which begins with `what`, for more than `most`, and
    for what is no regular file: a pipe would wait for who writes it."""
    if type(most) is not int or most < 0:
        raise ArgumentError(
            f"{what}: argument 'max_bytes' is {most!r}, expected a number of bytes, 0 or more"
        )
    with open(path, "rb", opener=_not_waiting) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise FormatError(f"{what}: {os.fspath(path)!r} is no regular file, expected one")
        # Python makes room for all that it is asked for, before it reads.
        data = file.read(min(found.st_size, most) + 1)
        while found.st_size < len(data) <= most and (more := file.read(_CHUNK)):
            data += more  # of a file that grows
    if len(data) > most:
        raise noted(
            FormatError(f"{what}: the file is longer than {most} bytes, expected a shorter one"),
            "A longer one is read with a larger max_bytes.",
        )
    return data


def _not_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def write_whole(path: str | os.PathLike[str], data: bytes) -> None:
    """Writes a file under a name of its own, and gives it its name: readers see a whole file."""
    target = os.fspath(path)
    new = f"{target}.{os.urandom(8).hex()}.new"
    try:
        with open(new, "xb") as file:
            file.write(data)
        os.replace(new, target)
    except BaseException as error:
        if os.path.exists(new):
            os.unlink(new)
        if isinstance(error, OSError) and error.errno is not None:  # the user knows `path`
            raise OSError(error.errno, error.strerror, target) from None
        raise
