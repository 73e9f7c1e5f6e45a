"""`LawError`: a law is broken, and by what; `Checked`: what obeyed which laws.

All checks of `aotlite.testing.laws` raise and return these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs

from aotlite.ir.errors import AotliteError, UnsupportedError, noted

__all__ = ["Checked", "LawError", "broken", "require_assertions", "running"]


class LawError(AotliteError, AssertionError):
    """A law is broken. The first line names the law, what broke it, and the smallest case tried.

    `law` is the law's name, `case` what it broke on: a `Sample`, a `GraphCase`, a function's name;
    None where the law speaks of no single case. Notes show it in full.
    """

    def __init__(self, law: str, claim: str, sentence: str, case: Any = None) -> None:
        super().__init__(f"{law} ({claim}): {sentence}")
        self.law = law
        self.claim = claim
        self.case = case

    @property
    def report(self) -> str:
        """The message and its notes, as text."""
        return "\n".join([str(self), *getattr(self, "__notes__", ())])


@attrs.frozen
class Checked:
    """The result of a check that found nothing wrong: the laws and cases that it ran."""

    subject: str
    laws: tuple[str, ...]
    cases: int
    refused: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    """Cases that the subject refused, as it may, with an error of aotlite's."""

    def __str__(self) -> str:
        text = f"{self.subject} obeys {', '.join(self.laws)} on {self.cases} cases"
        return f"{text}; it refuses {len(self.refused)} more" if self.refused else text


class Broken(Exception):
    """Raised by a law inside this package: a sentence, and notes with details."""


def broken(sentence: str, *notes: str | None) -> Broken:
    """The exception for a law that does not hold; `running` makes a `LawError` of it."""
    return noted(Broken(sentence), *notes)


@contextmanager
def running(law: str, claim: str, subject: str, case: Any = None) -> Iterator[None]:
    """A block whose broken law, or error of whatever kind, becomes a `LawError` about `subject`."""
    try:
        yield
    except LawError:
        raise
    except Broken as error:
        notes: Sequence[str] = getattr(error, "__notes__", ())
        raise noted(LawError(law, claim, f"{subject}: {error}", case), *notes) from None
    except Exception as error:
        sentence = f"{subject}: {type(error).__name__}: {error}"
        notes = getattr(error, "__notes__", ())
        raise noted(LawError(law, claim, sentence, case), *notes) from error


def require_assertions() -> None:
    """Raises UnsupportedError where Python drops assertions: every law of ops would hold then."""
    if not __debug__:
        raise UnsupportedError(
            "laws: Python runs with -O, which drops assertions, expected a run without it"
        )
