"""Where compiled code is kept, and whether that place is safe. Part of `specs/cpu_toolchain.md`.

Loading a library runs what is in it: a folder that somebody else can write is never used.
"""

from __future__ import annotations

import os
import stat

OTHERS = stat.S_IWGRP | stat.S_IWOTH


def chosen() -> str | None:
    """The folder that the user wants: AOTLITE_CACHE, else `aotlite` in the user's cache folder.

    None where there is no home folder to have it in. Neither made nor looked at.
    """
    given = os.environ.get("AOTLITE_CACHE")
    if given:
        return os.path.abspath(os.path.expanduser(given))
    caches = os.environ.get("XDG_CACHE_HOME")
    if not caches or not os.path.isabs(caches):  # the standard says to ignore others
        caches = os.path.expanduser("~/.cache")
    return os.path.join(caches, "aotlite") if os.path.isabs(caches) else None


def made(folder: str) -> str:
    """Makes a folder, readable by its user alone; why it cannot be used, or nothing."""
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
    except FileExistsError:
        return f"{folder} is no folder"
    except OSError as error:
        return f"{folder} cannot be made: {error.strerror}"
    return refusal(folder)


def refusal(folder: str) -> str:
    """Why code from a folder must not be loaded, or cannot be; empty where it may be.

    It must belong to this user and be writable by nobody else; a folder above it that anybody can
    write must keep users from renaming what is not theirs, as /tmp does.
    """
    try:
        status = os.stat(folder)
        above = [(each, os.stat(each)) for each in _above(os.path.realpath(folder))]
        is_of_use = not runs_nothing(folder)
    except OSError as error:
        return f"{folder} cannot be read: {error.strerror}"
    if not stat.S_ISDIR(status.st_mode):
        return f"{folder} is no folder"
    if status.st_uid != os.geteuid():
        return f"{folder} belongs to {_user(status.st_uid)}"
    if status.st_mode & OTHERS:
        mode = stat.S_IMODE(status.st_mode)
        return f"{folder} can be written by others (its mode is {mode:o}; chmod go-w would do)"
    for each, status in above:
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            return f"{each}, above {folder}, can be written by anybody"
    return "" if is_of_use else f"{folder} is mounted noexec, no library can be loaded from it"


def runs_nothing(folder: str) -> bool:
    """Whether the system loads no library from a folder: it is mounted noexec."""
    return bool(os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0))


def _above(folder: str) -> list[str]:
    found = []
    while folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
        found.append(folder)
    return found


def _user(number: int) -> str:
    import pwd

    try:
        return f"user {pwd.getpwuid(number).pw_name}"
    except KeyError:
        return f"user {number}"


def private() -> str:
    """A new folder of this process alone, which goes when it ends."""
    import atexit
    import shutil
    from tempfile import mkdtemp

    folder, owner = mkdtemp(prefix="aotlite-cache-"), os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # and not in a child that was forked
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder
