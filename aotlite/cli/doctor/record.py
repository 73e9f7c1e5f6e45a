"""`Finding`: one thing that `aotlite doctor` looked at; what all of them come to."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Literal

import attrs

State = Literal["ok", "absent", "broken"]
"""`broken` is what is set up and does not work; what is not set up is `absent`."""


@attrs.frozen
class Finding:
    """What was looked at, how it is, and what to do about it."""

    section: str
    name: str
    state: State
    value: str
    """A version, a place, or why it does not work."""
    advice: str = ""
    """What to do or install; empty where there is nothing to do."""


def sections(findings: Sequence[Finding]) -> Iterator[tuple[str, Iterator[Finding]]]:
    """The findings of each section, in their order."""
    return itertools.groupby(findings, lambda finding: finding.section)


def verdict(findings: Sequence[Finding]) -> str:
    """The last line: which findings are broken."""
    broken = [finding.name for finding in findings if finding.state == "broken"]
    return f"Broken: {', '.join(broken)}." if broken else "Nothing that is set up is broken."
