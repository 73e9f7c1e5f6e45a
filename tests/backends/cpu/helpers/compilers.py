"""Faulty compilers and forked children, for the tests of `aotlite.backends.cpu`."""

import ctypes
import fcntl
import os
import pwd
import shutil
import signal
import sys
import time
import traceback
from contextlib import contextmanager
from pathlib import Path

import pytest

from aotlite.backends.native import warn_once
from aotlite.backends.native.cache import artifact_cache, eviction, file_locks
from aotlite.backends.native.compiler import compilation, failure_reports, probe, toolchain
from aotlite.backends.native.libraries import library_loading

NEEDED_IN_CHILDREN = (fcntl, pwd, compilation, file_locks, probe, eviction)
"""Imported here: a child that is another user may not be able to read Python's folders."""

GCC = shutil.which("gcc")
compiles = pytest.mark.skipif(GCC is None, reason="needs gcc")

DOUBLE = "int twice(int x) { return 2 * x; }\n"

HALF = f'{GCC} "$@" && truncate -s 3000 library.so'
"""A compiler whose linker is killed: the library ends too soon."""

SCRIPT = """\
#!/bin/sh
case "$*" in *probe.c*) exec {gcc} "$@" ;; esac
{body}
"""


def compiled(text, name="double", **options):
    """The path of a compiled library."""
    return Path(toolchain.compile_c(text, name, **options))


def forget():
    """Resets this process: no compiler found, no library loaded, no warning given."""
    toolchain._searches.forget()
    toolchain._too_long.clear()
    failure_reports._late.clear()
    failure_reports._too_long.clear()
    library_loading._loaded.forget()
    warn_once._shown.forget()
    artifact_cache._privates.forget()


def start(function):
    """The id of a forked child that calls a function; its status is 0 if the call returns."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        function()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    os._exit(1)


def ended(pid, limit=30.0):
    """The status of a child: negative for a signal."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError(f"a child took more than {limit} s")


def in_child(function, user=None):
    """Calls a function in a forked child, as another user if this one is root."""

    def call():
        if user is not None and os.geteuid() == 0:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
        function()

    assert 0 == ended(start(call))


def mounted(folder, options):
    """Mounts an empty file system in memory, in a forked child; False if not allowed."""
    libc = ctypes.CDLL(None, use_errno=True)
    own, private, recursive = 0x00020000, 1 << 18, 1 << 14
    noexec = 8 if "noexec" in options else 0
    rest = ",".join(each for each in options if each != "noexec").encode()
    return (
        libc.unshare(own) == 0
        and libc.mount(None, b"/", None, private | recursive, None) == 0
        and libc.mount(b"none", os.fsencode(folder), b"tmpfs", noexec, rest) == 0
    )


def is_running(pid):
    """Whether a process runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@contextmanager
def warns_once(text):
    """Expects exactly one warning with such a text."""
    with pytest.warns(RuntimeWarning, match=text) as caught:
        yield
    assert 1 == len([each for each in caught if issubclass(each.category, RuntimeWarning)])
