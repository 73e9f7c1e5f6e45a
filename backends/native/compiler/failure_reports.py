"""Reports of failed compilations: one warning each, and no further use of a compiler that hangs.

Part of `specs/cpu_toolchain.md`.
"""

from __future__ import annotations

import os
from contextlib import suppress

from aotlite.backends.native.compiler.compiler_failure import CompilerFailure
from aotlite.backends.native.compiler.compilers import advice
from aotlite.backends.native.compiler.toolchain import find_compiler
from aotlite.backends.native.warn_once import warn_once
from aotlite.ir.errors import BackendError

MOST_LATE = 3
"""The texts for which a compiler may run out of time before it is not asked any more: each is two
minutes of a user's."""

_late: dict[tuple[str, ...], str] = {}
"""For each command of a compiler that is not asked any more, the warning."""
_too_long: dict[tuple[str, ...], set[str]] = {}
"""For each command of a compiler, the texts that were too long for it."""


def given_up() -> str | None:
    """Returns why this process does not use its compiler any more; None if it does."""
    compiler = find_compiler() if _late else None
    return None if compiler is None else _late.get(compiler.command)


def tell(error: BackendError, then: str) -> None:
    """Warns of a failed compilation, once; `then` tells what happens to its graph.

    The file with the text is kept if the warning names it.
    """
    if isinstance(error, CompilerFailure):
        _tell(error, then)
    else:
        warn_once(f"aotlite: {error}; {then}")


def _tell(error: CompilerFailure, then: str) -> None:
    note(error)
    if error.compiler.command in _late:
        warn_once(_late[error.compiler.command])
        return
    error.path = error.path or error.save()
    text = f"aotlite: {_said(error)}; {then}; {advice()}"
    if warn_once(text, _place(error)):
        error.path = None
    forget(error)


def note(error: BackendError) -> None:
    """Remembers a compiler that hangs, or that ran out of time for too many texts (CC-26)."""
    if not isinstance(error, CompilerFailure):
        return
    command = error.compiler.command
    texts = _too_long.setdefault(command, set())
    if error.too_long:
        texts.add(error.too_long)
    if not error.is_hung and len(texts) < MOST_LATE:
        return
    if command in _late:
        forget(error)
        return
    what = "it is not asked again in this process, where graphs run by NumPy"
    _late[command] = f"aotlite: {_said(error)}; {what}; {advice()}{_place(error)}"
    error.path = None  # it stays


def forget(error: BackendError) -> None:
    """Removes the saved text of a failure that is not reported."""
    if isinstance(error, CompilerFailure) and error.path is not None:
        with suppress(OSError):
            os.unlink(error.path)
        error.path = None


def _said(error: CompilerFailure) -> str:
    said = f"says: {error.line}" if error.line else "says nothing"
    return f"{error.what}; {error.compiler} {said}"


def _place(error: CompilerFailure) -> str:
    return "" if error.path is None else f"; the text is in {error.path}"
