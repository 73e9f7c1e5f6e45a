"""Whether another user can redirect a path, by a symbolic link or by replacing a folder.

Ground floor. A path is walked from the root, folder by folder, each opened below the one before.
Links are followed here and not by the system, so that each is checked before it is followed.
Spec: `specs/cpu_toolchain.md` (CC-15), `specs/pipeline.md` (PIP-9).
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

import attrs

HAS_DESCRIPTORS = os.open in os.supports_dir_fd
"""Whether files can be opened by the descriptor of their folder: not on Windows."""

OTHERS = stat.S_IWGRP | stat.S_IWOTH
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_PASSED = getattr(os, "O_PATH", os.O_RDONLY)
"""The flag for folders on the way: with O_PATH they need not be readable."""
_MOST_LINKS = 40
"""The most links that are followed, as in Linux."""


@attrs.frozen
class Step:
    """A folder or a link on the path to a folder; a link comes before its target."""

    path: str
    status: os.stat_result

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.status.st_mode)

    @property
    def is_foreign(self) -> bool:
        """Whether its owner is neither this process's user nor root."""
        return self.status.st_uid not in (os.geteuid(), 0)

    @property
    def is_open(self) -> bool:
        """Whether other users can replace the files in this folder.

        With the sticky bit, as on /tmp, users cannot rename files of others.
        """
        mode = self.status.st_mode
        return not self.is_link and bool(mode & OTHERS) and not mode & stat.S_ISVTX


def steps(path: str) -> list[Step]:
    """The folders and links on the path to a folder, from the root on; the folder is the last.

    Raises OSError if the folder does not exist, or the path cannot be searched.
    """
    walk = _Walk(path)
    os.close(walk.handle)
    return walk.steps


def opened(path: str, *, make: bool = False) -> int:
    """An open descriptor of a folder, which is made if missing and `make` is set.

    Raises PermissionError for a link of another user on the path, OSError if there is no such
    folder.
    """
    walk = _Walk(path, make=make, is_strict=True)
    try:
        # The walk's own descriptor may be O_PATH, with which no file can be made.
        return os.open(".", _FOLDER, dir_fd=walk.handle)
    finally:
        os.close(walk.handle)


def opener(path: str, flags: int) -> int:
    """An `opener` for the function `open` that follows no link of another user, to the file or on
    the path to it."""
    if not HAS_DESCRIPTORS:
        return os.open(path, flags | getattr(os, "O_BINARY", 0), 0o666)
    for _ in range(_MOST_LINKS):
        folder, name = os.path.split(os.path.abspath(path))
        handle = opened(folder)
        try:
            target = _target(folder, name, handle)
            if target is None:
                return os.open(name, flags | os.O_NOFOLLOW, 0o666, dir_fd=handle)
        finally:
            os.close(handle)
        path = os.path.join(folder, target)
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _target(folder: str, name: str, handle: int) -> str | None:
    """The target of the link of this name in a folder; None if it is no link."""
    try:
        step = Step(os.path.join(folder, name), os.lstat(name, dir_fd=handle))
    except FileNotFoundError:
        return None
    return os.readlink(name, dir_fd=handle) if _is_own_link(step) else None


def _is_own_link(step: Step) -> bool:
    """Whether it is a link. Raises PermissionError for one of another user."""
    if step.is_link and step.is_foreign:
        raise PermissionError(errno.EPERM, f"{step.path} is a link of {user(step.status.st_uid)}")
    return step.is_link


def user(number: int) -> str:
    """The name of a user, for messages."""
    import pwd  # which Windows does not have

    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"


class _Walk:
    """Walks down a path. Each folder is opened below the one before, so that nobody can exchange a
    folder between the check and its use. `is_strict`: refuses links of other users."""

    def __init__(self, path: str, *, make: bool = False, is_strict: bool = False) -> None:
        self.handle = os.open("/", _FOLDER | _PASSED)
        self.path = "/"
        self.steps = [Step("/", os.fstat(self.handle))]
        self._make, self._is_strict = make, is_strict
        self._links = 0
        self._left = os.path.abspath(path).split("/")[::-1]
        try:
            while self._left:
                self._go(self._left.pop())
        except BaseException:
            os.close(self.handle)
            raise

    def _go(self, name: str) -> None:
        if name in ("", "."):
            return
        step = self._step(name)
        self.steps.append(step)
        if _is_own_link(step) if self._is_strict else step.is_link:
            self._follow(os.readlink(name, dir_fd=self.handle))
            return
        self._enter(os.open(name, _FOLDER | _PASSED | os.O_NOFOLLOW, dir_fd=self.handle), step.path)
        # The status of the opened folder: the name may have been exchanged meanwhile.
        self.steps[-1] = Step(step.path, os.fstat(self.handle))

    def _step(self, name: str) -> Step:
        path = os.path.normpath(os.path.join(self.path, name))
        try:
            return Step(path, os.lstat(name, dir_fd=self.handle))
        except FileNotFoundError:
            if not self._make:
                raise
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=self.handle)
        return Step(path, os.lstat(name, dir_fd=self.handle))

    def _follow(self, target: str) -> None:
        self._links += 1
        if self._links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if target.startswith("/"):
            self._enter(os.open("/", _FOLDER | _PASSED), "/")
        self._left += target.split("/")[::-1]

    def _enter(self, handle: int, path: str) -> None:
        os.close(self.handle)
        self.handle, self.path = handle, path
