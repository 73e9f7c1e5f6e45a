"""Random programs about aliasing and mutation, saved as bundles and called in a fresh process.

`python -m tests.artifacts.saved_programs --programs 300` draws programs, calls each, saves its
compiled function, and starts one new process with an empty cache, which loads all of them. There
no entry may be compiled; each call is compared with eager: values, writes, aliases, gradients.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import attrs

from aotlite.ir.errors import UnsupportedError
from aotlite.testing.generate.random_programs import draw
from tests.artifacts.drivers import empty_cache, options, report, run_as_module
from tests.artifacts.looked_up import COMPILED, LOADED, outcomes

MODULE = "random_saved_program"
FILE = os.path.join(tempfile.gettempdir(), f"{MODULE}.py")


@attrs.define
class Figures:
    """What was counted."""

    programs: int = 0
    saved: int = 0
    refused: int = 0
    reasons: collections.Counter[str] = attrs.field(factory=collections.Counter)
    wrong: list[str] = attrs.field(factory=list)

    def text(self) -> str:
        """The figures in a line."""
        return (
            f"{self.programs} programs, {self.refused} refused, {self.saved} saved and loaded in a "
            f"new process: {len(self.wrong)} wrong"
        )


def save(seed: int, folder: Path, figures: Figures) -> None:
    """Calls the program of a seed, and saves its compiled function in a folder."""
    figures.programs += 1
    COMPILED.clear()
    try:
        text = draw(seed).to_script(compile="tests.artifacts.looked_up:kept")
        run_as_module(text, MODULE, FILE)
    except (UnsupportedError, AssertionError):  # which a test without files looks at
        figures.refused += 1
        return
    (compiled,) = COMPILED
    try:
        compiled.save(folder / f"{seed}.bundle")
    except UnsupportedError as error:
        figures.refused += 1
        figures.reasons[str(error).partition("since ")[2].partition(", expected")[0]] += 1
    else:
        figures.saved += 1


def run(seeds: Iterable[int], folder: Path) -> Figures:
    """Saves the programs of these seeds, and loads them in a new process; returns the figures."""
    figures = Figures()
    for seed in seeds:
        save(seed, folder, figures)
    command = [sys.executable, "-m", "tests.artifacts.saved_programs", "--load", str(folder)]
    environment = {**os.environ, "AOTLITE_CACHE": str(folder / "cache"), "PYTHONHASHSEED": "7"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    figures.wrong += json.loads(done.stdout)
    return figures


def load_all(folder: Path) -> list[str]:
    """Runs the programs of all bundles of a folder; returns what went wrong."""
    wrong = []
    for path in sorted(folder.glob("*.bundle")):
        LOADED[:] = [path]
        text = draw(int(path.stem)).to_script(compile="tests.artifacts.looked_up:loaded")
        COMPILED.clear()
        try:
            with contextlib.redirect_stdout(sys.stderr), outcomes("bundle") as found:
                run_as_module(text, MODULE, FILE)
            entries = len(COMPILED[0].entries)
            assert entries == found.count("hit"), f"{entries} entries by {found}: {found.why}"
        except Exception as error:
            wrong.append(f"{path.stem}: {type(error).__name__}: {error}\n{text}")
    return wrong


def main() -> None:
    """The command."""
    parser = options(__doc__, "programs", 300)
    parser.add_argument("--load", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.load:
        print(json.dumps(load_all(Path(args.load))))
        return
    with empty_cache(in_memory=False) as folder:
        figures = run(range(args.seed, args.seed + args.programs), folder)
    report(figures, figures.reasons, args.show)


if __name__ == "__main__":
    main()
