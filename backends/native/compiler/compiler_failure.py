"""The error of a failed compilation. Part of `specs/cpu_toolchain.md`."""

from __future__ import annotations

from collections.abc import Callable

from aotlite.backends.native.compiler.compilers import Compiler
from aotlite.ir.errors import BackendError


class CompilerFailure(BackendError):
    """Raised if a compiler makes no library of a text."""

    def __init__(
        self,
        what: str,
        remedy: str,
        compiler: Compiler,
        line: str,
        save: Callable[[], str | None],
        *,
        is_hung: bool = False,
        too_long: str = "",
    ) -> None:
        super().__init__(what + remedy)
        self.what = what
        """The message without its advice, for a warning when another backend takes over."""
        self.compiler = compiler
        self.line = line
        """The most telling line of the compiler's output; empty if it printed nothing."""
        self.save = save
        """Saves the text to a file and returns its path; None if it cannot."""
        self.path = save()
        """The file with the text; None if it could not be saved."""
        self.is_hung = is_hung
        """Whether the compiler ran out of time, and then for a small text, too."""
        self.too_long = too_long
        """The text, if the compiler ran out of time for it, and compiles small ones; else empty."""

    def again(self) -> CompilerFailure:
        """Returns the failure for who asks for the same text, which was too long."""
        said = self.what, "; it is not compiled again in this process", self.compiler, self.line
        return CompilerFailure(*said, _unsaved, too_long=self.too_long)


def _unsaved() -> None:
    """The text was saved the first time."""
