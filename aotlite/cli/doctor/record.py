"""`Finding`, the record of one check of `aotlite doctor`, and the verdict on all of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Literal

import attrs

State = Literal["ok", "absent", "broken"]
"""`broken`: set up, but does not work. `absent`: not set up."""


@attrs.frozen
class Finding:
    """The result of one check: what was checked, its state, and advice."""

    section: str
    name: str
    state: State
    value: str
    """A version, a path, or why it does not work."""
    advice: str = ""
    """The remedy: what to do or install; empty if nothing."""


def sections(findings: Sequence[Finding]) -> Iterator[tuple[str, Iterator[Finding]]]:
    """Yields each section with its findings, in order."""
    return itertools.groupby(findings, lambda finding: finding.section)


def verdict(findings: Sequence[Finding]) -> str:
    """Returns the last line of the report: which findings are broken."""
    broken = [finding.name for finding in findings if finding.state == "broken"]
    return f"Broken: {', '.join(broken)}." if broken else "Nothing that is set up is broken."
