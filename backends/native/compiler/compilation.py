"""Compilation: a C text becomes the bytes of a library, by one compiler run in a new folder.

Part of `specs/cpu_toolchain.md`.
"""

from __future__ import annotations

import errno
import os
import shlex
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from tempfile import mkstemp

from aotlite.backends.native.cache.disk_cache import word
from aotlite.backends.native.cache.integrity import fault
from aotlite.backends.native.cache.trusted_folders import scratch
from aotlite.backends.native.compiler.compiler_failure import CompilerFailure
from aotlite.backends.native.compiler.compiler_process import CommandResult, is_exiting, run
from aotlite.backends.native.compiler.compilers import Compiler
from aotlite.ir.errors import BackendError, noted

LIBRARY = "library.so"

ANSWER_LIMIT = 10.0
"""The seconds in which a compiler that ran out of time is to compile a small text."""

ROOM = 1 << 20
"""Free bytes below which a folder counts as full when a compiler fails in it."""


def library_of(
    compiler: Compiler,
    flags: Sequence[str],
    text: str,
    name: str,
    limit: float,
    meanwhile: Callable[[], None] | None = None,
) -> bytes:
    """Returns the bytes of a text's library. Raises BackendError if the compiler fails. Calls
    `meanwhile` while it runs."""
    source, command = f"{word(name)}.c", (*compiler.command, *flags)
    try:
        with scratch() as folder:
            write(folder.path, source, text)
            ended = built(command, folder.path, source, limit, meanwhile)
            if not ended.problem:
                return folder.read(LIBRARY)
            is_too_long = ended.is_late and _answers(command, folder.path, limit)
    except OSError as error:
        raise BackendError(
            f"cpu: {name!r} has no place to be compiled in ({error}), expected room in "
            f"{temporary()}; name another folder in TMPDIR"
        ) from error
    what = f"cpu: {compiler.kind}, compiling {name!r}, {ended.problem}, expected a library"
    advice = "" if ended.is_refusal else "; try again, or name another compiler in CC"
    advice = "; it compiles small texts: this one is too much for it" if is_too_long else advice
    save, is_hung = partial(_saved, text, name), ended.is_late and not is_too_long
    told, too_long = (what, advice, compiler, ended.line(), save), text if is_too_long else ""
    failure = CompilerFailure(*told, is_hung=is_hung, too_long=too_long)
    place = None if failure.path is None else f"the text is in {failure.path}"
    raise noted(failure, ended.last_lines() or None, f"command: {shlex.join(command)}", place)


def _answers(command: Sequence[str], folder: str, limit: float) -> bool:
    """Whether a compiler that ran out of time compiles a small text: then it does not hang."""
    write(folder, "small.c", "int small(int x) { return x + 1; }\n")
    ended = built(command, folder, "small.c", min(limit, ANSWER_LIMIT))
    return not ended.problem


def built(
    command: Sequence[str],
    folder: str,
    source: str,
    limit: float,
    meanwhile: Callable[[], None] | None = None,
) -> CommandResult:
    """Runs a compiler that makes `LIBRARY` of a file in a folder, and returns how it ended. Calls
    `meanwhile` while it runs.

    Raises OSError if it fails and the folder is full, whatever the compiler prints.
    """
    library = os.path.join(folder, LIBRARY)
    with suppress(FileNotFoundError):
        os.unlink(library)
    behind = [word for word in command if word.startswith("-l")]  # archives: what is open by then
    ended = run([*command, "-o", LIBRARY, source, *behind], folder, limit, meanwhile)
    if not ended.problem:
        ended = CommandResult(_problem(library), ended.said)
    if ended.problem and _is_full(folder):
        raise OSError(
            f"{os.path.dirname(folder)} has less than 1 MiB left, and the compiler {ended.reason()}"
        )
    return ended


def _problem(library: str) -> str:
    """Returns what is wrong with the library of a successful compiler; empty if nothing."""
    if not os.path.isfile(library):
        return "makes no library"
    found = fault(library)
    if found.startswith("half"):
        return f"left {found} although its status is 0, as where its linker was killed"
    return f"left a file that is {found}" if found else ""


def temporary() -> str:
    """Returns the name of the folder for temporary files in messages."""
    name = "the folder for temporary files"
    return f"{name}, {tempfile.tempdir}" if tempfile.tempdir else name


def _is_full(folder: str) -> bool:
    """Whether a folder has less than `ROOM` bytes free. It writes them, since a quota may leave a
    user less than the file system has."""
    path = os.path.join(folder, "room")
    try:
        with open(path, "wb") as file:
            file.write(bytes(ROOM))
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    finally:
        with suppress(OSError):
            os.unlink(path)
    return False


def write(folder: str, name: str, text: str) -> None:
    """Writes a text to a file of a folder."""
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(text)


def _saved(text: str, name: str) -> str | None:
    """Saves a text that does not compile, and returns the file's path; None if it cannot, or while
    Python exits."""
    if is_exiting():
        return None
    try:
        handle, path = mkstemp(prefix=f"aotlite-{word(name)}-", suffix=".c")
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        return None
    return path
