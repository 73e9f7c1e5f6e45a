"""The folders in which code is compiled and kept, and the check that they are safe. Part of
`specs/cpu_toolchain.md`.

Loading a library runs its code. So a folder to which another user can write is never used.
"""

from __future__ import annotations

import atexit
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory, gettempdir, mkdtemp
from typing import TYPE_CHECKING

import attrs

from aotlite.backends.native.warn_once import warn_once
from aotlite.ir.deferred import deferred
from aotlite.ir.filesystem import trust
from aotlite.ir.filesystem.trust import OTHERS, Step

if TYPE_CHECKING:
    import platformdirs
else:  # 20 ms, for those who name no folder
    platformdirs = deferred("platformdirs")


def chosen() -> str | None:
    """Returns the folder of the user's choice: AOTLITE_CACHE, else that of the system for caches.

    None if there is no home folder. The folder is neither made nor checked.
    """
    given = os.environ.get("AOTLITE_CACHE")
    if given:
        return os.path.abspath(os.path.expanduser(given))
    try:
        found = str(platformdirs.user_cache_dir("aotlite"))
    except RuntimeError:  # there is no home folder
        return None
    return found if os.path.isabs(found) else None


def made(folder: str) -> str:
    """Makes a folder, and those above it, for its user alone. Returns why it cannot be used; empty
    if it can."""
    if not os.path.lexists(folder):
        refused = refusal_to_make(folder)
        if refused:
            return refused
    try:
        _make(folder)
    except FileExistsError:
        return f"{folder} is no folder"
    except OSError as error:
        return f"{folder} cannot be made: {error.strerror}"
    return refusal(folder)


def _make(folder: str) -> None:
    """Makes a folder and those above it with mode 700. (`os.makedirs` sets the mode of the last one
    only.)"""
    if os.path.isdir(folder):
        return
    _make(os.path.dirname(folder))
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if not os.path.isdir(folder):  # or another process has just made it
            raise


def refusal(folder: str) -> str:
    """Returns why code from a folder must not or cannot be loaded; empty if it may be.

    The folder must belong to this user and be writable by nobody else. The same holds for each
    folder above it, along the given path and along links in it, since whoever can write there can
    replace the folder. Folders above may also be root's, or have a sticky bit, as /tmp.
    """
    if os.name != "posix":
        return f"{folder} has no owner that {os.name} says"
    try:
        *above, last = trust.steps(folder)
        is_of_use = not runs_nothing(folder)
    except NotADirectoryError:
        return f"{folder} is no folder"
    except OSError as error:
        return f"{folder} cannot be read: {error.strerror}"
    refused = _refusal_above(above, folder)
    if refused:
        return refused
    if last.status.st_uid != os.geteuid():
        return f"{folder} belongs to {trust.user(last.status.st_uid)}"
    if last.status.st_mode & OTHERS:
        return f"{folder} {_written_by_others(last)}"
    return "" if is_of_use else f"{folder} is mounted noexec, no library can be loaded from it"


def refusal_to_make(folder: str) -> str:
    """Returns why a folder that does not exist yet would be unsafe; empty if it would be safe."""
    there = folder
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    try:
        return _refusal_above(trust.steps(there), folder)
    except NotADirectoryError:
        return f"{there}, above {folder}, is no folder"
    except OSError as error:
        return f"{there}, above {folder}, cannot be read: {error.strerror}"


def _refusal_above(steps: list[Step], folder: str) -> str:
    # From the root down: no other user can replace entries of a folder that has passed.
    for each in steps:
        found = _fault_above(each)
        if found:
            return f"{each.path}, above {folder}, {found}"
    return ""


def _fault_above(step: Step) -> str:
    if step.is_foreign:
        kind = "is a link of" if step.is_link else "belongs to"
        return f"{kind} {trust.user(step.status.st_uid)}"
    return _written_by_others(step) if step.is_open else ""


def _written_by_others(step: Step) -> str:
    mode = stat.S_IMODE(step.status.st_mode)
    return f"can be written by others (its mode is {mode:o}; chmod go-w would do)"


def runs_nothing(folder: str) -> bool:
    """Whether a folder is mounted noexec, so that no library can be loaded from it."""
    return bool(os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0))


# ------------------------------------------------------------------------------ temporary folders
SYSTEM_PLACES = ("/tmp", "/var/tmp")
"""Places for temporary folders, if no other user can redirect the path to them."""


def private(prefix: str = "aotlite-cache-") -> str:
    """Returns a new folder of this process alone, which is removed when the process ends."""
    folder, owner = mkdtemp(prefix=prefix, dir=temporary_place()), os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # and not in a child that was forked
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


@attrs.frozen
class Scratch:
    """A new folder of this user alone, removed at the end of a block."""

    path: str
    handle: int | None
    """The folder's descriptor; None where the system has no descriptors of folders."""

    def read(self, name: str) -> bytes:
        """Returns the bytes of a file in the folder that was made, wherever its path leads now.

        Raises PermissionError if the file belongs to neither this user nor root.
        """
        path = name if self.handle is not None else os.path.join(self.path, name)
        with open(os.open(path, _READ, dir_fd=self.handle), "rb") as file:
            owner = os.fstat(file.fileno()).st_uid
            if self.handle is not None and owner not in (os.geteuid(), 0):
                place = os.path.join(self.path, name)
                raise PermissionError(errno.EPERM, f"{place} belongs to {trust.user(owner)}")
            return file.read()


_READ = os.O_RDONLY
for _name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):  # not on each system
    _READ |= getattr(os, _name, 0)


@contextmanager
def scratch() -> Iterator[Scratch]:
    """Yields a folder for compiling or copying. Raises OSError if there is no place for one."""
    with TemporaryDirectory(prefix="aotlite-", dir=temporary_place()) as path:
        if not trust.HAS_DESCRIPTORS:
            yield Scratch(path, None)
            return
        handle = trust.opened(path)
        try:
            yield Scratch(path, handle)
        finally:
            os.close(handle)


def temporary_place() -> str:
    """Returns the folder in which temporary folders are made: that of Python's `tempfile`.

    If another user can redirect the path to it, the first safe one of `SYSTEM_PLACES` and the disk
    cache's folder, with one warning. Raises PermissionError if none is safe.
    """
    wanted = gettempdir()
    why = _refusal_below(wanted)
    if not why:
        return wanted
    place = next((each for each in _other_places() if os.access(each, os.W_OK | os.X_OK)), None)
    if place is None:
        raise PermissionError(errno.EPERM, f"{why}, and no other place for it is safe")
    warn_once(
        f"aotlite: nothing is compiled in the folder for temporary files: {why}; {place} is used "
        "instead; name another folder in TMPDIR, or mend this one"
    )
    return place


def _other_places() -> Iterator[str]:
    yield from (each for each in SYSTEM_PLACES if os.path.isdir(each) and not _refusal_below(each))
    cache = chosen()
    if cache is not None and not made(cache):
        yield cache


def _refusal_below(folder: str) -> str:
    """Returns why a new folder below this one would be unsafe; empty if it would be safe."""
    if os.name != "posix":  # its folder for temporary files is the user's own
        return ""
    return refusal_to_make(os.path.join(os.path.abspath(folder), "aotlite-..."))
