"""Prints the state of the house, or lowers its allowances.

    python -m tests.house                                    of this checkout
    python -m tests.house --root ../other                    of another one
    python -m tests.house --in aotlite.eager circles floors  two sections, of one package
    python -m tests.house --moves moves/*.txt                after the moves of these tables
    python -m tests.house --write                            lowers allowances to present counts
    python -m tests.house --write --moved                    moves numbers with their modules
    python -m tests.house --write --raise "lines ir" --because "what it is needed for"

`--in` restricts imports to those of or by the package; `-v` lists every import and member.
A table of moves has `old.module new.module` on a line. Without `--raise` no number grows; with
`--moved` their sum does not. `--raise lines` allows one check to grow.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.house import allowances
from tests.house.allowances import Allowances, CannotWrite
from tests.house.checks import CHECKS
from tests.house.house import House
from tests.house.moves import read
from tests.house.report import SECTIONS, View, report
from tests.house.sources import ROOT, tree


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser()
    given = parser.parse_args(arguments)
    unknown = set(given.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}, expected {', '.join(SECTIONS)}")
    if given.raised and not given.because:
        parser.error("--raise without --because, expected the reason")
    house = House(tree(given.root.resolve()), read(given.moves))
    if given.write:
        return write(house, given.raised, given.because, given.moved)
    print("\n".join(report(View(house, given.package, given.verbose), given.sections)))
    return 0


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.house",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout that is looked at")
    parser.add_argument("--in", dest="package", default="aotlite", metavar="PACKAGE")
    parser.add_argument("--moves", type=Path, nargs="+", default=[], metavar="TABLE")
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("--write", action="store_true", help="lower the allowances of --root")
    parser.add_argument("--moved", action="store_true", help="with --write: let numbers change key")
    parser.add_argument(
        "--raise", dest="raised", action="append", default=[], metavar='"CHECK KEY"'
    )
    parser.add_argument("--because", default="", metavar="TEXT")
    return parser


def write(house: House, raised: Sequence[str], because: str, moved: bool) -> int:
    """Rewrites the allowances of the tree; the exit code is 1 if one would have to grow."""
    file = house.tree.root / allowances.FILE.relative_to(ROOT)
    allowed = allowances.read(file.read_text("utf-8") if file.exists() else "")
    found: dict[str, Allowances] = {}
    refused = []
    for name, check in CHECKS.items():
        counts = check.counts(house)
        keys = [each.removeprefix(f"{name} ") for each in raised if each.startswith(f"{name} ")]
        keys += counts if name in raised else []
        before = allowed.get(name, Allowances())
        try:
            found[name] = allowances.rewritten(check, counts, before, keys, because, moved)
        except CannotWrite as error:
            refused.append(str(error))
    if refused:
        print("These would have to grow; nothing is written:", *refused, sep="\n", file=sys.stderr)
        return 1
    file.write_text(allowances.written(found), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
