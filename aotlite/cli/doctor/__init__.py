"""`aotlite doctor`: which backends work here, why the others do not, and what to install.

`aotlite.cli.doctor.checks` examines the machine; this module prints the findings, `tables` as
tables. The exit status is 1 if something that is set up is broken, else 0, whatever is absent.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from importlib import import_module

import attrs

from aotlite.cli.doctor.checks import examine, is_sound
from aotlite.cli.doctor.record import Finding, sections, verdict


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `aotlite doctor`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def command(args: argparse.Namespace) -> None:
    """Runs `aotlite doctor`: prints the findings. Exits with status 1 if something is broken."""
    findings = examine()
    if args.json:
        print(json.dumps(as_json(findings), indent=1))
    elif any(finding.name == "rich" and finding.state == "broken" for finding in findings):
        print("\n".join(lines(findings)))  # rich prints the tables
    else:
        # Not before: rich may be what is broken.
        import_module("aotlite.cli.doctor.tables").report(findings)
    if not is_sound(findings):
        raise SystemExit(1)


def as_json(findings: Sequence[Finding]) -> dict[str, object]:
    """Returns the findings as JSON types: `sound`, and the findings of each section."""
    return {
        "sound": is_sound(findings),
        "sections": {
            section: [attrs.asdict(each, filter=_is_no_section) for each in group]
            for section, group in sections(findings)
        },
    }


def _is_no_section(attribute: attrs.Attribute[str], _: str) -> bool:
    return attribute.name != "section"


def lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yields one line for each finding, for output without tables."""
    for section, group in sections(findings):
        yield section
        for each in group:
            yield "  " + " - ".join(filter(None, [each.name, each.state, each.value, each.advice]))
    yield verdict(findings)
