"""Whether another user can turn the way to a folder elsewhere. Ground floor.

A path is walked from the root, folder by folder, and links are followed here instead of by the
system: what each one is was looked at before anything behind it. Spec: `specs/cpu_toolchain.md`
(CC-15), `specs/pipeline.md` (PIP-9).
"""

from __future__ import annotations

import errno
import os
import stat

import attrs

OTHERS = stat.S_IWGRP | stat.S_IWOTH
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
_PASSED = getattr(os, "O_PATH", os.O_RDONLY)
"""How a folder is opened that is only gone through: it need not be readable, where that is known."""
_MOST_LINKS = 40
"""As many as Linux follows."""


@attrs.frozen
class Step:
    """A folder or a link on the way to a folder; a link stands before what it leads to."""

    path: str
    status: os.stat_result

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.status.st_mode)

    @property
    def is_foreign(self) -> bool:
        """Whether it belongs neither to this process's user nor to root."""
        return self.status.st_uid not in (os.geteuid(), 0)

    @property
    def is_open(self) -> bool:
        """Whether others can put something else in the place of what is in a folder.

        A sticky bit, as that of /tmp, keeps users from renaming what is not theirs.
        """
        mode = self.status.st_mode
        return not self.is_link and bool(mode & OTHERS) and not mode & stat.S_ISVTX


def steps(path: str) -> list[Step]:
    """The folders and links on the way to a folder, from the root on; the folder is the last.

    Raises OSError where there is no such folder, or where it cannot be looked at.
    """
    walk = _Walk(os.path.abspath(path))
    os.close(walk.handle)
    return walk.steps


def opened(path: str) -> int:
    """A descriptor of a folder, to which no link of another user leads.

    Raises PermissionError where one would, OSError where there is no such folder.
    """
    walk = _Walk(os.path.abspath(path))
    try:
        for step in walk.steps:
            if step.is_link and step.is_foreign:
                raise PermissionError(
                    errno.EPERM, f"{step.path} is a link of {user(step.status.st_uid)}"
                )
        # What is only gone through cannot be written to by its descriptor everywhere.
        return os.open(".", _FOLDER, dir_fd=walk.handle)
    finally:
        os.close(walk.handle)


def user(number: int) -> str:
    """A user as messages call one."""
    import pwd

    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"


class _Walk:
    """Goes down a path; each folder is opened below the one before, so that what was looked at is
    what is gone through."""

    def __init__(self, path: str) -> None:
        self.handle = os.open("/", _FOLDER | _PASSED)
        self.path = "/"
        self.steps = [Step("/", os.fstat(self.handle))]
        self._links = 0
        self._left = path.split("/")[::-1]
        try:
            while self._left:
                self._go(self._left.pop())
        except BaseException:
            os.close(self.handle)
            raise

    def _go(self, name: str) -> None:
        if name in ("", "."):
            return
        path = os.path.normpath(os.path.join(self.path, name))
        status = os.stat(name, dir_fd=self.handle, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            self.steps.append(Step(path, status))
            self._follow(os.readlink(name, dir_fd=self.handle))
            return
        self._enter(os.open(name, _FOLDER | _PASSED | os.O_NOFOLLOW, dir_fd=self.handle), path)
        self.steps.append(Step(path, os.fstat(self.handle)))

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
