"""`aotlite conformance`: the rules about shared memory that an array library keeps and breaks.

`aotlite.conformance` runs the rules, each library in a process of its own; this module prints the
results. The exit status is 0 even if rules are broken, unless `--strict` is given, and 3 if the
suite or an adapter is at fault: nothing is known of the library then.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from aotlite.cli import positive
from aotlite.conformance.isolation.process import examine
from aotlite.conformance.libraries import LIBRARIES
from aotlite.conformance.report import Report, line, markdown, rich_table, summary, title, witness
from aotlite.conformance.rules import GROUPS, select
from aotlite.ir.errors import ArgumentError

FAULT = 3
"""The exit status for a fault of the suite or an adapter."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `aotlite conformance`."""
    known = ", ".join(LIBRARIES)
    parser.add_argument(
        "libraries",
        metavar="LIBRARY",
        nargs="*",
        help=f"{known}, or module:Class for an adapter of your own",
    )
    parser.add_argument("--rules", metavar="ID", nargs="+", help="only these rules or groups")
    parser.add_argument("--markdown", metavar="FILE", type=Path, help="write the table there too")
    parser.add_argument(
        "--seconds", type=positive, default=30.0, help="a case that takes longer hangs (default 30)"
    )
    parser.add_argument("--list", action="store_true", help="print the rules, and end")
    parser.add_argument("--strict", action="store_true", help="status 1 where a rule is broken")


def command(args: argparse.Namespace) -> None:
    """Runs `aotlite conformance`: tests the libraries, prints the table and witnesses."""
    if args.list or not args.libraries:
        return print_rules(args.rules)
    if args.markdown:
        _demand_writable(args.markdown)
    reports = ask(args)
    print_reports(Console(), reports)
    if args.markdown:
        args.markdown.write_text(markdown(reports), "utf-8")
    if any(report.faulty for report in reports):
        raise SystemExit(FAULT)
    if all(report.not_run for report in reports) or (
        args.strict and any(report.broken or report.not_run for report in reports)
    ):
        raise SystemExit(1)


def _demand_writable(path: Path) -> None:
    """Creates the page before the run, so that an unwritable path fails at once."""
    try:
        path.open("a").close()
    except OSError as error:
        raise ArgumentError(
            f"conformance: --markdown gives {error}, expected a file that can be written"
        ) from error


def print_rules(names: Sequence[str] | None) -> None:
    """Prints one line for each rule, with its claim."""
    group = ""
    for rule in select(names):
        if rule.group != group:
            group = rule.group
            print(f"{group}: {GROUPS[group]}")
        print(f"  {rule.id}  {rule.title}\n      {rule.claim}")


def ask(args: argparse.Namespace) -> list[Report]:
    """Returns the report of each library. They run side by side, with progress bars on standard
    error."""
    count = len(select(args.rules))
    with Progress(console=Console(stderr=True), transient=True) as progress:

        def examined(library: str) -> Report:
            bar = progress.add_task(library, total=count)
            return examine(library, args.rules, args.seconds, lambda _: progress.advance(bar))

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(examined, args.libraries))


def print_reports(console: object, reports: Sequence[Report]) -> None:
    """Prints the table of all libraries, the witnesses, and a summary line for each library."""
    assert isinstance(console, Console)
    if not all(report.not_run for report in reports):
        console.print(rich_table(reports))
    for report in reports:
        for result in report.broken:
            print(f"\n{title(report)} breaks {result.rule}: {result.title}")
            print("\n".join(f"    {each}" for each in witness(result).splitlines()))
        for result in report.faulty:
            print(f"\n{title(report)} was not asked {result.rule}: {result.title}")
            print(f"    # {line(result)}")
    print()
    for report in reports:
        print(summary(report))
