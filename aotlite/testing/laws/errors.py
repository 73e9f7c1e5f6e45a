"""`LawError`, raised for a broken law, and `Checked`, the summary of a check without one.

All checks of `aotlite.testing.laws` raise and return these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs

from aotlite.ir.errors import AotliteError, UnsupportedError, noted

__all__ = ["Checked", "LawError", "broken", "require_assertions", "running"]


class LawError(AotliteError, AssertionError):
    """A law is broken. The first line names the law, the subject and the smallest case that fails.

    `law` is the name of the law. `case` is the case that fails: a `Sample`, a `GraphCase` or the
    name of a function; None if the law has no single case. Notes show the case in full.
    """

    def __init__(self, law: str, claim: str, sentence: str, case: object = None) -> None:
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
    """The result of a check that passed: the subject, the laws and the number of cases."""

    subject: str
    laws: tuple[str, ...]
    cases: int
    refused: tuple[str, ...] = attrs.field(default=(), kw_only=True)
    """The names of the cases that the subject refused with an error of aotlite's."""

    def __str__(self) -> str:
        text = f"{self.subject} obeys {', '.join(self.laws)} on {self.cases} cases"
        return f"{text}; it refuses {len(self.refused)} more" if self.refused else text


class Broken(Exception):
    """The exception of a broken law inside this package: a sentence, and notes with details."""


def broken(sentence: str, *notes: str | None) -> Broken:
    """Returns the exception for a broken law; `running` turns it into a `LawError`."""
    return noted(Broken(sentence), *notes)


@contextmanager
def running(law: str, claim: str, subject: str, case: object = None) -> Iterator[None]:
    """A block whose `Broken`, or any other error, is raised as a `LawError` about `subject`."""
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
    """Raises UnsupportedError if Python runs with -O, under which all laws of ops would hold."""
    if not __debug__:
        raise UnsupportedError(
            "laws: Python runs with -O, which drops assertions, expected a run without it"
        )
