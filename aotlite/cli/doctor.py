"""`aotlite doctor`: which backends work here, why the others do not, and what to install.

`aotlite.cli.doctor_findings` finds it out; this module prints it. The status is 1 where something
that is set up is broken, and 0 else, however much is absent.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import attrs

from aotlite.cli.doctor_findings import examine, is_sound
from aotlite.cli.doctor_record import Finding

if TYPE_CHECKING:
    from rich.table import Table

_STYLES = {"ok": "green", "absent": "yellow", "broken": "bold red"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `aotlite doctor`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def command(args: argparse.Namespace) -> None:
    """`aotlite doctor`: prints the findings. Ends with status 1 where something is broken."""
    findings = examine()
    if args.json:
        print(json.dumps(as_json(findings), indent=1))
    elif any(finding.name == "rich" and finding.state == "broken" for finding in findings):
        print("\n".join(lines(findings)))  # rich prints the tables
    else:
        report(findings)
    if not is_sound(findings):
        raise SystemExit(1)


def as_json(findings: Sequence[Finding]) -> dict[str, object]:
    """The findings as JSON's types: `sound`, and the findings of each section."""
    return {
        "sound": is_sound(findings),
        "sections": {
            section: [attrs.asdict(each, filter=_is_no_section) for each in group]
            for section, group in _sections(findings)
        },
    }


def _is_no_section(attribute: attrs.Attribute[str], _: str) -> bool:
    return attribute.name != "section"


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """The findings without tables, a line each."""
    for section, group in _sections(findings):
        yield section
        for each in group:
            yield "  " + " - ".join(filter(None, [each.name, each.state, each.value, each.advice]))
    yield _verdict(findings)


def report(findings: Sequence[Finding]) -> None:
    """Prints a table for each section, and what is broken in one line."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for section, group in _sections(findings):
        console.print(_table(section, list(group)))
    console.print(Text(_verdict(findings)))


def _sections(findings: Sequence[Finding]) -> Iterator[tuple[str, Iterator[Finding]]]:
    return itertools.groupby(findings, lambda finding: finding.section)


def _verdict(findings: Sequence[Finding]) -> str:
    broken = [finding.name for finding in findings if finding.state == "broken"]
    return f"Broken: {', '.join(broken)}." if broken else "Nothing that is set up is broken."


def _table(section: str, group: list[Finding]) -> Table:
    """Columns that would be empty are left out. Values are no markup: they may hold brackets."""
    from rich.table import Table
    from rich.text import Text

    advised = any(finding.advice for finding in group)
    columns = ["", "", "found", *(["what to do"] if advised else [])]
    table = Table(*columns, title=Text(section), title_justify="left")
    for finding in group:
        state = Text(finding.state, _STYLES[finding.state])
        advice = [Text(finding.advice)] if advised else []
        table.add_row(Text(finding.name), state, Text(finding.value), *advice)
    return table
