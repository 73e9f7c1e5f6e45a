"""The tables of `aotlite doctor` on a terminal, by rich. Imported only if rich works."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from aotlite.cli.doctor.record import Finding, sections, verdict

_STYLES = {"ok": "green", "absent": "yellow", "broken": "bold red"}


def report(findings: Sequence[Finding]) -> None:
    """Prints a table for each section, and the verdict in one line."""
    console = Console()
    for section, group in sections(findings):
        console.print(_table(section, list(group)))
    console.print(Text(verdict(findings)))


def _table(section: str, group: list[Finding]) -> Table:
    """Returns the table of a section, without empty columns. Values are plain `Text`, since rich
    takes brackets in a string for markup."""
    advised = any(finding.advice for finding in group)
    columns = ["", "", "found", *(["what to do"] if advised else [])]
    table = Table(*columns, title=Text(section), title_justify="left")
    for finding in group:
        state = Text(finding.state, _STYLES[finding.state])
        advice = [Text(finding.advice)] if advised else []
        table.add_row(Text(finding.name), state, Text(finding.value), *advice)
    return table
