"""Files with names that others can foresee: no link is followed, and a file is there whole or not.

For what is written next to what other users write: dumps, scripts. Ground floor. Spec:
`specs/pipeline.md` (PIP-9).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from aotlite.ir.filesystem import trust


def write(folder: str | os.PathLike[str], name: str, text: str) -> None:
    """Writes a file of a folder, which is made; it replaces what has that name, a link too.

    Raises OSError where that is impossible, and where another user's link leads to the folder;
    what had the name is as it was then.
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
    """Makes a folder, where there is none. Raises OSError as `write` does."""
    with _at(os.fspath(folder)):
        pass


@contextmanager
def _at(folder: str) -> Iterator[tuple[str, int | None]]:
    """How paths in a folder begin, and the descriptor that they are relative to."""
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
