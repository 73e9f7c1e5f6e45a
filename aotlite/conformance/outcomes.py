"""The outcomes of a rule: kept, broken, absent, crash or hang, fault of the suite."""

from __future__ import annotations

from typing import TypeAlias

import attrs


@attrs.frozen
class Keeps:
    """All cases that the library can run hold. `without`: methods that other cases need."""

    cases: int
    without: tuple[str, ...] = ()


@attrs.frozen
class Breaks:
    """The first case that fails, as lines of the library's own code."""

    case: str
    lines: tuple[str, ...]
    what: str
    got: str
    expected: str

    def witness(self) -> str:
        """Returns the lines that show the breach, with the value that they give and the expected
        one.

        >>> print(Breaks("()", ("a = f()", "a.tolist()"), "a", "1", "2").witness())
        a = f()
        a.tolist()
        # a: got 1, expected 2
        """
        return "\n".join([*self.lines, f"# {self.what}: got {self.got}, expected {self.expected}"])


@attrs.frozen
class Lacks:
    """The library lacks a method that every case needs."""

    missing: tuple[str, ...]


@attrs.frozen
class Dies:
    """The library crashed or hung: `how`, in which case and method ('' before the first one)."""

    how: str
    case: str
    method: str = ""


@attrs.frozen
class Faulty:
    """A fault of the suite or the adapter: nothing is known of the library.

    `place` is the line at fault, `said` the error, `case` the case at which it happened.
    """

    place: str
    said: str
    case: str


Outcome: TypeAlias = Keeps | Breaks | Lacks | Dies | Faulty
"""The classes of outcomes, to `match` on."""


@attrs.frozen
class Result:
    """A rule's id, title and group, and its outcome."""

    rule: str
    title: str
    group: str
    outcome: Outcome
    choice: bool = False


def is_broken(result: Result) -> bool:
    """Whether a result counts against the library: a crash, a hang, or a breach of a rule that is
    no choice. A fault of the suite or the adapter never does."""
    return isinstance(result.outcome, Dies) or (
        isinstance(result.outcome, Breaks) and not result.choice
    )
