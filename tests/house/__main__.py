"""Prints the state of the house.

    python -m tests.house                                    of this checkout
    python -m tests.house --root ../other                    of another one
    python -m tests.house --in aotlite.eager circles floors  two sections, of one package
    python -m tests.house --moves moves/*.txt                as tables of moves will make it

`--in` keeps what that package imports or is imported by; `-v` lists every import and member.
A table of moves has `old.module new.module` on a line.
"""

import argparse
from pathlib import Path

from tests.house.moves import read
from tests.house.report import SECTIONS, State, report
from tests.house.sources import ROOT, tree


def main() -> None:
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
    given = parser.parse_args()
    unknown = set(given.sections) - set(SECTIONS)
    if unknown:
        parser.error(f"no section {', '.join(sorted(unknown))}, expected {', '.join(SECTIONS)}")
    state = State(tree(given.root.resolve()), given.package, read(given.moves), given.verbose)
    print("\n".join(report(state, given.sections)))


if __name__ == "__main__":
    main()
