"""Random programs about aliasing and mutation, each through the cache: cold, then restored.

`python -m tests.artifacts.random_programs --programs 1000` draws programs, writes each as a module
and runs that twice with functions of its own: the second time its entries are restored. Each run
compares the compiled calls with eager ones: values, writes, aliases, versions, gradients. With
`--backend cpu` kernels are found by the headers of graphs, and few graphs are read (CACHE-19).
"""

from __future__ import annotations

import collections
import os
import tempfile
import time
from collections.abc import Iterator

import attrs

from aotlite.ir.errors import UnsupportedError
from aotlite.testing.generate.random_programs import draw
from aotlite.testing.programs.program import Program
from tests.artifacts.drivers import empty_cache, options, report, run_as_module
from tests.artifacts.looked_up import Outcomes, outcomes

MODULE = "random_cached_program"
COMPILERS = {
    "reference": "tests.artifacts.looked_up:cached",
    "cpu": "tests.artifacts.looked_up:cached_on_cpu",
}
FILE = os.path.join(tempfile.gettempdir(), f"{MODULE}.py")


@attrs.define
class Figures:
    """What was counted."""

    programs: int = 0
    refused: int = 0
    cold: collections.Counter[str] = attrs.field(factory=collections.Counter)
    warm: collections.Counter[str] = attrs.field(factory=collections.Counter)
    reasons: collections.Counter[str] = attrs.field(factory=collections.Counter)
    wrong: list[str] = attrs.field(factory=list)

    def text(self) -> str:
        """The figures in a line."""
        return (
            f"{self.programs} programs, {self.refused} refused; cold {dict(self.cold)}, "
            f"restored {dict(self.warm)}: {len(self.wrong)} wrong"
        )


def _run(text: str) -> Outcomes:
    """Runs a script as a module, and returns what became of its look-ups."""
    with outcomes() as found:
        run_as_module(text, MODULE, FILE)
    return found


def run(seeds: Iterator[int] | range, backend: str = "reference") -> Figures:
    """Runs the programs of these seeds; returns the figures."""
    figures = Figures()
    began = time.monotonic()
    for seed in seeds:
        _run_program(draw(seed), COMPILERS[backend], figures)
        if time.monotonic() - began > 30 and __name__ == "__main__":
            began = time.monotonic()
            print(figures.text(), flush=True)
    return figures


def _run_program(program: Program, compiler: str, figures: Figures) -> None:
    figures.programs += 1
    text = program.to_script(compile=compiler)
    try:
        cold = _run(text)
    except UnsupportedError:
        figures.refused += 1
        return
    except AssertionError as error:
        if "UnsupportedError(" in str(error):
            figures.refused += 1
            return
        figures.wrong.append(f"cold: {error}\n{text}")
        return
    figures.cold.update(cold)
    if "bypass" in cold:
        figures.reasons[cold.why] += 1
    try:
        warm = _run(text)
    except Exception as error:
        figures.wrong.append(f"restored: {type(error).__name__}: {error}\n{text}")
        return
    figures.warm.update(warm)
    if cold.count("kept") > warm.count("hit"):
        figures.wrong.append(f"missed: {cold} then {warm}: {warm.why}\n{text}")


def main() -> None:
    """The command."""
    parser = options(__doc__, "programs", 1000)
    parser.add_argument("--backend", choices=COMPILERS, default="reference")
    args = parser.parse_args()
    with empty_cache():
        figures = run(range(args.seed, args.seed + args.programs), args.backend)
    report(figures, figures.reasons, args.show)


if __name__ == "__main__":
    main()
