"""What becomes of a rule: kept, broken, absent, a death of the library, or a fault of the suite."""

from __future__ import annotations

from typing import TypeAlias

import attrs


@attrs.frozen
class Keeps:
    """All cases that the library can run hold. `without`: what others would have needed."""

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
        """Lines that show the breach, and what they give instead of what.

        >>> print(Breaks("()", ("a = f()", "a.tolist()"), "a", "1", "2").witness())
        a = f()
        a.tolist()
        # a: got 1, expected 2
        """
        return "\n".join([*self.lines, f"# {self.what}: got {self.got}, expected {self.expected}"])


@attrs.frozen
class Lacks:
    """The library has not what any case needs."""

    missing: tuple[str, ...]


@attrs.frozen
class Dies:
    """The library took the process with it, or did not come back: `how`, in which case and method.

    The method is '' where none was called yet.
    """

    how: str
    case: str
    method: str = ""


@attrs.frozen
class Faulty:
    """The suite or the adapter made a mistake, so that nothing is known of the library.

    `place` is the line that made it, `said` the error, `case` the case at which it was made.
    """

    place: str
    said: str
    case: str


Outcome: TypeAlias = Keeps | Breaks | Lacks | Dies | Faulty
"""Each is its own class; match on it."""


@attrs.frozen
class Result:
    """A rule's id, title and group, and what became of it."""

    rule: str
    title: str
    group: str
    outcome: Outcome
    choice: bool = False


def is_broken(result: Result) -> bool:
    """Whether a result counts against the library: a death always, a breach of no choice.

    A mistake of the suite or the adapter never does.
    """
    return isinstance(result.outcome, Dies) or (
        isinstance(result.outcome, Breaks) and not result.choice
    )
