"""The outcome of one program, and the record of a failure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import attrs

from aotlite.testing.compiled import kind_of
from aotlite.testing.programs.program import Program


@attrs.define
class Outcome:
    """The outcome of one program."""

    steps: int = 0
    """The number of steps of the program's body."""
    calls: int = 0
    raised: int = 0
    refused: list[str] = attrs.field(factory=list)
    """The reasons of refused calls (GEN-2), and the rules that allow differences of calls."""
    cells: list[int] = attrs.field(factory=list)
    """The cells that completely compared calls hit."""
    found: list[str] = attrs.field(factory=list)
    """The differences; or one line that says that it hangs, crashes, raises or differs by run."""


@attrs.frozen
class Played:
    """A program of a run and its outcome."""

    seed: int
    target: int
    text: str | None
    """The program as JSON; None if its generation did not end."""
    outcome: Outcome
    seconds: float = 0.0
    """The seconds of processor time."""


def _program(given: Program | str | None) -> Program | None:
    return Program.from_json(given) if isinstance(given, str) else given


def _texts(given: Iterable[str]) -> tuple[str, ...]:
    return tuple(given)


@attrs.frozen
class Failure:
    """A program that failed."""

    seed: int
    target: int
    found: tuple[str, ...] = attrs.field(converter=_texts)
    program: Program | None = attrs.field(default=None, converter=_program)
    is_small: bool = False
    """Whether the program is shrunk."""
    picture: str = ""
    """The drawing of the alias groups of a shrunk program."""

    @property
    def kind(self) -> str:
        """The kind of the failure, without names and numbers."""
        return kind_of_failure(self.found)

    def to_dict(self) -> dict[str, object]:
        """Returns plain data; `Failure(**data)` is the failure."""
        program = None if self.program is None else self.program.to_json()
        return {**attrs.asdict(self, recurse=False), "program": program}


ENDINGS = ("hang", "crash", "raised", "nondeterministic")


def kind_of_failure(found: Sequence[str]) -> str:
    """Returns the kind of a failure: that of its difference, else its first words.

    >>> kind_of_failure(["call 0: nondeterministic: compiled gives values of object 1 ..."])
    'nondeterministic: compiled'
    >>> kind_of_failure(["call 0: backward: None, eager AutogradError"])
    'backward: None, eager AutogradError'
    """
    words = re.sub(r"^call \d+: ", "", found[0]).split() if found else []
    if words and words[0].rstrip(":") in ENDINGS:
        return " ".join(words[:1] if words[0] == "hang:" else words[:2])
    return kind_of(found)
