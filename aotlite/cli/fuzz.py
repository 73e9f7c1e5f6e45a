"""`aotlite fuzz`: random programs about views, writes and aliases, on all cores.

`aotlite.testing.fuzzing` runs them; this module shows progress on standard error and prints the
results. The exit status is 1 if a program failed, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from aotlite.cli import number, positive
from aotlite.ir.errors import ArgumentError
from aotlite.testing.coverage.counts import ENOUGH
from aotlite.testing.fuzzing import campaign
from aotlite.testing.fuzzing.campaign import Campaign
from aotlite.testing.fuzzing.plan import Plan
from aotlite.testing.fuzzing.reports import cell_lines, figures, lines, write_script
from aotlite.testing.fuzzing.run_file import read
from aotlite.testing.fuzzing.statistics import Tally


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the options of `aotlite fuzz`."""
    add = parser.add_argument
    add("--minutes", type=positive, help="how long programs are begun (default 1)")
    add("--count", type=number(1), help="end at so many programs, those of the ledger included")
    add("--seed", type=number(0), default=0, help="of the first program (default 0)")
    add("--jobs", type=number(1), help="processes (default: all cores)")
    _add_sides(parser)
    _add_kept(parser)


def _add_sides(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("what is compared").add_argument
    add("--engine", default="aotlite", help="aotlite, torch, or module:Class of your Engine")
    add(
        "--against",
        default="eager",
        help="eager: the engine's compiled functions against its eager ones (default); "
        "torch, numpy, aotlite or module:Class: both eager",
    )
    add(
        "--function",
        metavar="MODULE:NAME",
        help="your compile(function, **options), compared instead of aotlite.compile; "
        "FILE.py:NAME too",
    )
    add(
        "--options",
        default="in turn",
        metavar="NAME=VALUE,...",
        help="what compiles is given (default: in turn those that aotlite.compile has)",
    )
    add(
        "--cell",
        default="any,any,any,any",
        metavar="VIEW,WRITE,OUTPUT,RELATION",
        help="what programs aim at: names of the table, or any",
    )
    add("--seconds-per-program", type=positive, default=20.0, help="longer is a hang (default 20)")


def _add_kept(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("what is kept and printed").add_argument
    add("--ledger", type=Path, metavar="FILE", help="keep the run there; one that is goes on")
    add("--out", type=Path, metavar="FOLDER", help="write a script for each failure")
    add("--show", type=number(0), default=5, help="failures to print in full (default 5)")
    add("--shrink", type=number(0), default=10, help="failures to make small (default 10)")
    add("--cells", action="store_true", help="print the table of cells by its margins")
    add("--summary", action="store_true", help="run nothing: print what the ledger has")


def command(args: argparse.Namespace) -> None:
    """Runs `aotlite fuzz`. The last line it prints has the numbers of programs, coverage cells and
    failures."""
    if "" not in sys.path:
        sys.path.insert(0, "")  # functions and engines of the user's own are named from here
    if args.out is not None:
        _make_folder(args.out)
    if args.summary:
        plan, tally = _kept(args)
    else:
        plan = _plan(args)
        with _progress(plan) as listener:
            tally = campaign.run(plan, listener)
    _print(plan, tally, args)
    if tally.is_interrupted:
        raise KeyboardInterrupt
    if tally.failed:
        raise SystemExit(1)


def _make_folder(path: Path) -> None:
    """Makes the folder of scripts before the run, so that an unwritable path fails at once."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(f"fuzz: --out gives {error}, expected a folder to write to") from error


def _plan(args: argparse.Namespace, **more: object) -> Plan:
    names = {field.name for field in attrs.fields(Plan)} & set(vars(args))
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    return Plan(**{**given, "seconds": args.seconds_per_program, **more})


def _kept(args: argparse.Namespace) -> tuple[Plan, Tally]:
    """Returns the plan and the tally of a campaign's file."""
    if args.ledger is None:
        raise ArgumentError("fuzz: --summary is given without --ledger, expected the file to read")
    tally = Tally()
    identity = read(args.ledger, tally)
    names = ("seed", "engine", "against", "function", "options", "cell")
    plan = _plan(args, **{name: identity[name] for name in names})
    tally.targets = plan.targets()
    return plan, tally


def _print(plan: Plan, tally: Tally, args: argparse.Namespace) -> None:
    console = Console(soft_wrap=True)
    console.print(figures(tally))
    if args.cells:
        console.print(tally.coverage.table())
        print("\n".join(cell_lines(tally)))
    for line in lines(plan, tally, args.show):
        print(line)
    for failure in tally.failures if args.out else ():
        path = write_script(plan, failure, args.out)
        print(f"{path}" if path else f"program {failure.seed} could not be drawn: no script")
    print(tally.last_line(), flush=True)


# ----------------------------------------------------------------------------------- the progress
@contextmanager
def _progress(plan: Plan) -> Iterator[Any]:
    """Yields a callback that shows the progress of a run on standard error."""
    columns = (BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=1.0)

        def listener(campaign: Campaign) -> None:
            progress.update(task, completed=campaign.share_done(), description=_shown(campaign))

        yield listener


def _shown(campaign: Campaign) -> str:
    tally = campaign.tally
    shrinking = f", {campaign.shrinking} shrinking" if campaign.shrinking else ""
    return (
        f"{tally.programs:,} programs, {tally.rate():,.0f} a minute a core, "
        f"{tally.hit():,} cells hit, {tally.hit(ENOUGH):,} full, "
        f"{len(tally.failed)} failures{shrinking}"
    )
