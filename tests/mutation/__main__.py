"""Mutation testing of the deciding code by properties alone.

    python -m tests.mutation record                   records the lines of each case: minutes
    python -m tests.mutation run --seed 0 --each 80   runs the sample: hours; can be continued
    python -m tests.mutation run --again              runs the survivors again
    python -m tests.mutation summary --survivors      the figures, and the survivors
    python -m tests.mutation show 17                  one mutant
    python -m tests.mutation unreached                lines that no property executes

Files are in `build/mutation/`. Spec: `docs/mutation.md`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from tests.mutation import equivalents, ledger, reach, summary
from tests.mutation.child import preload
from tests.mutation.running import Plan, baseline, run_all
from tests.mutation.targets import ROOT, STRATA

FOLDER = ROOT / "build" / "mutation"
CONSOLE = Console(soft_wrap=True, highlight=False)


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit status."""
    given = _parser().parse_args(arguments)
    try:
        action: Callable[[argparse.Namespace], int] = given.action
        return action(given)
    except (ValueError, FileNotFoundError) as error:
        CONSOLE.print(f"mutation: {error}", markup=False)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the ledger and the record")
    commands = parser.add_subparsers(required=True)
    for name, action, text in (
        ("record", _record, "run all cases as things are; note which lines they execute"),
        ("run", _run, "run the mutants that have no verdict yet"),
        ("summary", _summary, "the figures"),
        ("show", _show, "one mutant"),
        ("unreached", _unreached, "lines of deciding code that no case executes"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(action=action)
        _OPTIONS[name](command)
    return parser


def _run_options(command: Any) -> None:
    command.add_argument("--seed", type=int, default=0, help="of the sample")
    command.add_argument("--each", type=int, default=80, help="mutants of each stratum")
    command.add_argument("--jobs", type=int, default=1)
    command.add_argument("--budget", type=float, default=20.0, help="seconds for a survivor")
    command.add_argument("--again", action="store_true", help="the survivors once more")
    command.add_argument("--only", default="", metavar="PATTERN", help="those whose key has it")


def _record_options(command: Any) -> None:
    command.add_argument("--jobs", type=int, default=1)
    command.add_argument("--again", default=None, metavar="TEXT", help="also cases that begin so")


_OPTIONS: dict[str, Callable[[Any], None]] = {
    "record": _record_options,
    "run": _run_options,
    "summary": lambda command: command.add_argument("--survivors", action="store_true"),
    "show": lambda command: command.add_argument("number", type=int),
    "unreached": lambda command: None,
}


# --------------------------------------------------------------------------------------- commands
def _record(given: argparse.Namespace) -> int:
    preload()
    names = reach.in_child(_all_cases)
    path = given.folder / "reach.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    found = _recorded(path).only(names, given.again)
    todo = [name for name in names if name not in found.seconds]
    with Progress(console=Console(stderr=True), auto_refresh=False) as progress:
        bar = progress.add_task("cases", total=len(todo))

        def note(done: int) -> None:
            progress.update(bar, completed=done, refresh=done % 10 == 0)

        found = reach.merged([found, reach.record_in_parts(todo, given.jobs, note)])
    found.save(path)
    for case, text in found.failed.items():
        CONSOLE.print(f"not used: {case}: {text}", markup=False)
    CONSOLE.print(f"{len(found.seconds):,} cases, {sum(found.seconds.values()):,.0f} s")
    return 0


def _recorded(path: Path) -> reach.Reach:
    """The record of this code."""
    try:
        return reach.load(path)
    except (FileNotFoundError, ValueError):
        return reach.Reach(reach.digest(), {}, {}, {})


def _all_cases() -> list[str]:
    from tests.mutation.families import cases

    return cases()


def _run(given: argparse.Namespace) -> int:
    preload()
    path = given.folder / "ledger.jsonl"
    known = reach.load(given.folder / "reach.gz")
    book = ledger.read(path) if path.exists() else ledger.begin(path, given.seed, given.each)
    plan = Plan(known, given.seed, given.budget, given.jobs)
    passing = baseline(plan, list(known.seconds)[:: max(1, len(known.seconds) // 60)])
    if passing.is_caught:
        raise ValueError(f"the code as it is fails {passing.by}: {passing.text}")
    argued = equivalents.load()
    todo = book.survivors() if given.again else book.missing()
    todo = [m for m in todo if m.key not in argued and re.search(given.only, m.key)]
    with Progress(console=Console(stderr=True), auto_refresh=False) as progress:
        bar = progress.add_task("mutants", total=len(todo))
        survived = 0
        for mutant, verdict in run_all(todo, plan):
            book.add(mutant, verdict)
            survived += not verdict.is_caught
            text = f"mutants, {survived} survived"
            progress.update(bar, advance=1, description=text, refresh=True)
    return _print_summary(book)


def _summary(given: argparse.Namespace) -> int:
    book = ledger.read(given.folder / "ledger.jsonl")
    if given.survivors:
        argued = equivalents.load()
        for number, mutant in enumerate(book.mutants):
            verdict = book.verdicts.get(mutant.key)
            if verdict is not None and not verdict.is_caught and mutant.key not in argued:
                _print_lines(summary.described(number, mutant, verdict))
    return _print_summary(book)


def _print_summary(book: ledger.Ledger) -> int:
    argued = equivalents.load()
    CONSOLE.print(f"seed {book.header['seed']}, commit {book.header['commit']}")
    CONSOLE.print(summary.table_of(book, argued))
    wrong = [m.key for m in book.mutants if m.key in argued and m.key in book.verdicts]
    wrong = [key for key in wrong if book.verdicts[key].is_caught]
    for key in wrong:
        CONSOLE.print(f"argued to be equivalent, but caught: {key}", markup=False)
    return 1 if wrong else 0


def _show(given: argparse.Namespace) -> int:
    book = ledger.read(given.folder / "ledger.jsonl")
    mutant = book.mutants[given.number]
    _print_lines(summary.described(given.number, mutant, book.verdicts.get(mutant.key)))
    CONSOLE.print(summary.diff_of(mutant, 6), markup=False)
    reason = equivalents.load().get(mutant.key)
    if reason is not None:
        CONSOLE.print(f"equivalent: {reason}", markup=False)
    return 0


def _unreached(given: argparse.Namespace) -> int:
    known = reach.load(given.folder / "reach.gz")
    for name, files in STRATA.items():
        for file in files:
            missing = reach.unreached(known, file)
            CONSOLE.print(f"{name}: {file}: {len(missing)} lines", markup=False)
            _print_lines(f"   {number}: {text}" for number, text in missing.items())
    return 0


def _print_lines(lines: Any) -> None:
    for line in lines:
        CONSOLE.print(line, markup=False)


if __name__ == "__main__":
    sys.exit(main())
