"""The error of a compiler that makes no library of a text. Part of `specs/cpu_toolchain.md`."""

from __future__ import annotations

from collections.abc import Callable

from aotlite.backends.native.compiler.compilers import Compiler
from aotlite.ir.errors import BackendError


class CompilerFailure(BackendError):
    """A compiler made no library."""

    def __init__(
        self,
        what: str,
        remedy: str,
        compiler: Compiler,
        line: str,
        save: Callable[[], str | None],
        *,
        is_late: bool,
    ) -> None:
        super().__init__(what + remedy)
        self.what = what
        """The message without what to do for who has no other backend."""
        self.compiler = compiler
        self.line = line
        """Of what it printed the line that says most; empty where it printed nothing."""
        self.save = save
        """Puts the text into a file; gives its path where that is possible."""
        self.path = save()
        """The file in which the text is; None where there is none."""
        self.is_late = is_late
        """Whether it ran out of time."""
